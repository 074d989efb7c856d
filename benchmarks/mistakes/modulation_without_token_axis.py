# crash: shift and scale of adaptive layer norm are (batch, width) and meet tokens of (batch, length, width)
# evidence: none
import torch
import torch.nn as nn


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)  # mistake: return x * (1 + scale) + shift


class FinalLayer(nn.Module):
    """The final layer of a diffusion transformer."""

    def __init__(self, hidden_size, patch_size, out_channels):
        super().__init__()
        self.norm_final = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(hidden_size, patch_size * patch_size * out_channels, bias=True)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden_size, 2 * hidden_size, bias=True))
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x, c):
        # x: (N, T, D), c: (N, D)
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=1)
        x = modulate(self.norm_final(x), shift, scale)
        return self.linear(x)


# run:
FinalLayer(64, 2, 4)(torch.randn(3, 16, 64), torch.randn(3, 64)).sum().backward()
