# crash: the forward of a block does not return its result, and the next block gets None
# evidence: none
import torch
from torch import nn


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim, expansion=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        inner = tokens * expansion
        self.token = nn.Sequential(nn.Linear(tokens, inner), nn.GELU(), nn.Linear(inner, tokens))
        self.norm2 = nn.LayerNorm(dim)
        self.channel = nn.Sequential(nn.Linear(dim, dim * expansion), nn.GELU(), nn.Linear(dim * expansion, dim))

    def forward(self, x):
        y = self.norm1(x).transpose(1, 2)
        x = x + self.token(y).transpose(1, 2)
        return x + self.channel(self.norm2(x))  # mistake: x = x + self.channel(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, tokens=49, dim=64, depth=3, num_classes=10):
        super().__init__()
        self.blocks = nn.ModuleList([MixerBlock(tokens, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


# run:
Mixer()(torch.randn(2, 49, 64)).sum().backward()
