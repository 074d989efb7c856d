# crash: four neighbouring patches are joined and the layer that reduces them takes two
# evidence: none
import torch
import torch.nn as nn


class PatchMerging(nn.Module):
    """Halve the resolution and double the width."""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)  # mistake: self.reduction = nn.Linear(2 * dim, 2 * dim, bias=False)

    def forward(self, x):
        B, H, W, C = x.shape
        x0 = x[:, 0::2, 0::2, :]
        x1 = x[:, 1::2, 0::2, :]
        x2 = x[:, 0::2, 1::2, :]
        x3 = x[:, 1::2, 1::2, :]
        x = torch.cat([x0, x1, x2, x3], -1)
        x = x.view(B, -1, 4 * C)
        return self.reduction(self.norm(x))


# run:
PatchMerging(32)(torch.randn(2, 8, 8, 32)).sum().backward()
