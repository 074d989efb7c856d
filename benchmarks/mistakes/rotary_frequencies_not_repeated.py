# crash: rotary cosines for half of the head's width are multiplied to the whole of it
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class RopeConfig:
    d_model: int = 128
    n_heads: int = 4
    n_layers: int = 2
    max_len: int = 256
    theta: float = 10000.0


def precompute(head_dim: int, max_len: int, theta: float) -> tuple[Tensor, Tensor]:
    freqs = theta ** (-torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(max_len).float(), freqs)
    angles = torch.cat([angles, angles], dim=-1)  # mistake: pass
    return angles.cos(), angles.sin()


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.size(-1) // 2
    rotated = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + rotated * sin


class RotaryAttention(nn.Module):
    def __init__(self, cfg: RopeConfig):
        super().__init__()
        self.n_heads = cfg.n_heads
        self.qkv = nn.Linear(cfg.d_model, 3 * cfg.d_model, bias=False)
        self.out = nn.Linear(cfg.d_model, cfg.d_model, bias=False)
        cos, sin = precompute(cfg.d_model // cfg.n_heads, cfg.max_len, cfg.theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        q = apply_rotary(q, self.cos[:t], self.sin[:t])
        k = apply_rotary(k, self.cos[:t], self.sin[:t])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class RopeTransformer(nn.Module):
    def __init__(self, cfg: RopeConfig):
        super().__init__()
        self.layers = nn.ModuleList(RotaryAttention(cfg) for _ in range(cfg.n_layers))
        self.norm = nn.RMSNorm(cfg.d_model)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return x


# run:
RopeTransformer(RopeConfig())(torch.randn(2, 30, 128)).sum().backward()
