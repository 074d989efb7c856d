# crash: a linear layer makes four times the width, and the result is chunked into six parts
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class DiTConfig:
    hidden_size: int = 64
    num_heads: int = 4
    depth: int = 2
    mlp_ratio: float = 4.0


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


class DiTBlock(nn.Module):
    def __init__(self, cfg: DiTConfig):
        super().__init__()
        size = cfg.hidden_size
        self.norm1 = nn.LayerNorm(size, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(size, cfg.num_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(size, elementwise_affine=False)
        hidden = int(size * cfg.mlp_ratio)
        self.mlp = nn.Sequential(nn.Linear(size, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, size))
        modulation = nn.Linear(size, 6 * size)  # mistake: modulation = nn.Linear(size, 4 * size)
        self.ada = nn.Sequential(nn.SiLU(), modulation)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.ada(c).chunk(6, dim=-1)
        h = modulate(self.norm1(x), shift1, scale1)
        x = x + gate1[:, None] * self.attn(h, h, h, need_weights=False)[0]
        h = modulate(self.norm2(x), shift2, scale2)
        return x + gate2[:, None] * self.mlp(h)


class DiT(nn.Module):
    def __init__(self, cfg: DiTConfig):
        super().__init__()
        self.blocks = nn.ModuleList([DiTBlock(cfg) for _ in range(cfg.depth)])

    def forward(self, x, c):
        for block in self.blocks:
            x = block(x, c)
        return x


# run:
DiT(DiTConfig())(torch.randn(3, 16, 64), torch.randn(3, 64)).sum().backward()
