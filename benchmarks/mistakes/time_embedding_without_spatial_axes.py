# crash: the embedding of the diffusion step is added to feature maps without two more dimensions
# evidence: none
import math

import torch
import torch.nn as nn


class SinusoidalEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        half = self.dim // 2
        freqs = torch.exp(torch.arange(half, device=t.device) * -(math.log(10000) / (half - 1)))
        args = t[:, None] * freqs[None, :]
        return torch.cat((args.sin(), args.cos()), dim=-1)


class ResnetBlock(nn.Module):
    def __init__(self, in_channels, out_channels, time_dim, groups=8):
        super().__init__()
        self.time_mlp = nn.Sequential(SinusoidalEmbedding(time_dim), nn.Linear(time_dim, out_channels), nn.SiLU())
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.norm1 = nn.GroupNorm(groups, out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, out_channels)
        self.act = nn.SiLU()
        self.skip = nn.Conv2d(in_channels, out_channels, 1) if in_channels != out_channels else nn.Identity()

    def forward(self, x, t):
        h = self.act(self.norm1(self.conv1(x)))
        h = h + self.time_mlp(t)[:, :, None, None]  # mistake: h = h + self.time_mlp(t)
        h = self.act(self.norm2(self.conv2(h)))
        return h + self.skip(x)


# run:
ResnetBlock(16, 32, 64)(torch.randn(4, 16, 20, 20), torch.randint(0, 1000, (4,))).sum().backward()
