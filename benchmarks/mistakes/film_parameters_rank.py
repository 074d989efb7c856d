# crash: the scales and shifts of conditional normalization are matrices and meet images
# evidence: config
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class StyleConfig:
    style_dim: int = 64
    channels: list[int] = field(default_factory=lambda: [64, 48, 32])
    start_size: int = 4


class AdaIN(nn.Module):
    def __init__(self, style_dim, num_features):
        super().__init__()
        self.norm = nn.InstanceNorm2d(num_features, affine=False)
        self.fc = nn.Linear(style_dim, num_features * 2)

    def forward(self, x, s):
        h = self.fc(s)
        h = h.view(h.size(0), h.size(1), 1, 1)  # mistake: pass
        gamma, beta = torch.chunk(h, chunks=2, dim=1)
        return (1 + gamma) * self.norm(x) + beta


class SynthesisBlock(nn.Module):
    def __init__(self, cin, cout, style_dim):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.adain = AdaIN(style_dim, cout)

    def forward(self, x, s):
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        return F.leaky_relu(self.adain(self.conv(x), s), 0.2)


class Synthesis(nn.Module):
    def __init__(self, cfg: StyleConfig):
        super().__init__()
        c = cfg.channels
        self.const = nn.Parameter(torch.randn(1, c[0], cfg.start_size, cfg.start_size))
        self.blocks = nn.ModuleList(SynthesisBlock(cin, cout, cfg.style_dim) for cin, cout in pairwise(c))
        self.to_rgb = nn.Conv2d(c[-1], 3, 1)

    def forward(self, s):
        x = self.const.expand(s.size(0), -1, -1, -1)
        for block in self.blocks:
            x = block(x, s)
        return self.to_rgb(x)


# run:
Synthesis(StyleConfig())(torch.randn(3, 64)).sum().backward()
