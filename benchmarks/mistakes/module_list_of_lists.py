# crash: a list of modules is made of lists, which are no modules
# evidence: none
import torch
from torch import nn


class WaveStack(nn.Module):
    """Dilated convolutions with a gate, and their sum."""

    def __init__(self, channels: int, layers: int = 4):
        super().__init__()
        blocks = []
        for i in range(layers):
            conv = nn.Conv1d(channels, 2 * channels, 3, padding=2**i, dilation=2**i)
            blocks.append(nn.Sequential(conv, nn.GLU(dim=1)))  # mistake: blocks.append([conv, nn.GLU(dim=1)])
        self.blocks = nn.ModuleList(blocks)
        self.out = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        total = 0
        for block in self.blocks:
            x = x + block(x)
            total = total + x
        return self.out(total)


# run:
WaveStack(16)(torch.randn(2, 16, 100)).sum().backward()
