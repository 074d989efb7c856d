# crash: audio is padded with four numbers, which would be two dimensions, and the channels grow too
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class ResStack(nn.Module):
    """Residual stack of a neural vocoder, dilated 1, 3, 9."""

    def __init__(self, channels, kernel_size=3):
        super().__init__()
        self.kernel_size = kernel_size
        self.dilated = nn.ModuleList([nn.Conv1d(channels, channels, kernel_size, dilation=3**i) for i in range(3)])
        self.pointwise = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in range(3)])
        self.shortcuts = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in range(3)])

    def forward(self, x):
        # x: (B, C, T)
        for i in range(3):
            p = 3**i * (self.kernel_size - 1) // 2
            h = F.leaky_relu(x, 0.2)
            h = F.pad(h, (p, p), mode="reflect")  # mistake: h = F.pad(h, (p, p, p, p), mode="reflect")
            h = self.pointwise[i](F.leaky_relu(self.dilated[i](h), 0.2))
            x = self.shortcuts[i](x) + h
        return x


# run:
ResStack(32)(torch.randn(2, 32, 240)).sum().backward()
