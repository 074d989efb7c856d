# crash: a gated linear unit halves the channels, and the convolution after it counts all of them
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ConformerConfig:
    dim: int = 64
    heads: int = 4
    kernel: int = 15
    layers: int = 2
    expansion: int = 2


class ConvModule(nn.Module):
    def __init__(self, cfg: ConformerConfig):
        super().__init__()
        inner = cfg.dim * cfg.expansion
        self.norm = nn.LayerNorm(cfg.dim)
        self.pointwise1 = nn.Conv1d(cfg.dim, 2 * inner, 1)  # mistake: self.pointwise1 = nn.Conv1d(cfg.dim, inner, 1)
        self.depthwise = nn.Conv1d(inner, inner, cfg.kernel, padding=cfg.kernel // 2, groups=inner)
        self.bn = nn.BatchNorm1d(inner)
        self.pointwise2 = nn.Conv1d(inner, cfg.dim, 1)

    def forward(self, x):
        y = self.norm(x).transpose(1, 2)
        y = F.glu(self.pointwise1(y), dim=1)
        y = F.silu(self.bn(self.depthwise(y)))
        return self.pointwise2(y).transpose(1, 2)


class ConformerBlock(nn.Module):
    def __init__(self, cfg: ConformerConfig):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.dim)
        self.attn = nn.MultiheadAttention(cfg.dim, cfg.heads, batch_first=True)
        self.conv = ConvModule(cfg)
        self.ff = nn.Sequential(
            nn.LayerNorm(cfg.dim), nn.Linear(cfg.dim, 4 * cfg.dim), nn.SiLU(), nn.Linear(4 * cfg.dim, cfg.dim)
        )

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        x = x + self.conv(x)
        return x + 0.5 * self.ff(x)


class Conformer(nn.Module):
    def __init__(self, cfg: ConformerConfig):
        super().__init__()
        self.blocks = nn.ModuleList([ConformerBlock(cfg) for _ in range(cfg.layers)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


# run:
Conformer(ConformerConfig())(torch.randn(2, 50, 64)).sum().backward()
