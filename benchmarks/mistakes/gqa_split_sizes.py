# crash: with fewer key heads than query heads, the fused projection does not split into three equal parts
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    n_embd: int = 128
    n_head: int = 8
    n_kv_head: int = 2
    n_layer: int = 2

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head


class GroupedQueryAttention(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.cfg = cfg
        self.q_size = cfg.n_head * cfg.head_dim
        self.kv_size = cfg.n_kv_head * cfg.head_dim
        self.qkv_proj = nn.Linear(cfg.n_embd, self.q_size + 2 * self.kv_size, bias=False)
        self.o_proj = nn.Linear(self.q_size, cfg.n_embd, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        sizes = [self.q_size, self.kv_size, self.kv_size]  # mistake: sizes = [self.q_size, self.q_size, self.q_size]
        q, k, v = self.qkv_proj(x).split(sizes, dim=-1)
        q = q.view(b, t, self.cfg.n_head, -1).transpose(1, 2)
        k = k.view(b, t, self.cfg.n_kv_head, -1).transpose(1, 2)
        v = v.view(b, t, self.cfg.n_kv_head, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Stack(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.blocks = nn.ModuleList([GroupedQueryAttention(cfg) for _ in range(cfg.n_layer)])

    def forward(self, x):
        for block in self.blocks:
            x = x + block(F.rms_norm(x, x.shape[-1:]))
        return x


def small_stack() -> Stack:
    return Stack(Config())


# run:
small_stack()(torch.randn(2, 10, 128)).sum().backward()
