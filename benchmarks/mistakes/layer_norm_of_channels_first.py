# crash: nn.LayerNorm over the channels is applied to an image with the channels in the second dimension
# evidence: none
import torch
import torch.nn as nn


class ConvNeXtBlock(nn.Module):
    """DwConv -> LayerNorm -> Linear -> GELU -> Linear, with layer scale."""

    def __init__(self, dim: int, layer_scale: float = 1e-6):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(layer_scale * torch.ones(dim))

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)  # mistake: pass
        x = self.norm(x)
        x = self.pwconv2(self.act(self.pwconv1(x)))
        x = self.gamma * x
        x = x.permute(0, 3, 1, 2)
        return shortcut + x


# run:
ConvNeXtBlock(96)(torch.randn(2, 96, 28, 28)).sum().backward()
