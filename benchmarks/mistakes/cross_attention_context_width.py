# crash: keys and values come from text embeddings, but their projections have the width of the image features
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class UNetConfig:
    channels: int = 64
    context_dim: int = 96
    heads: int = 4
    depth: int = 2


class CrossAttention(nn.Module):
    def __init__(self, query_dim, context_dim=None, heads=8):
        super().__init__()
        context_dim = query_dim if context_dim is None else context_dim
        self.heads = heads
        self.to_q = nn.Linear(query_dim, query_dim, bias=False)
        self.to_k = nn.Linear(context_dim, query_dim, bias=False)
        self.to_v = nn.Linear(context_dim, query_dim, bias=False)
        self.to_out = nn.Linear(query_dim, query_dim)

    def forward(self, x, context=None):
        context = x if context is None else context
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class SpatialTransformer(nn.Module):
    def __init__(self, cfg: UNetConfig):
        super().__init__()
        c = cfg.channels
        self.norm = nn.GroupNorm(32, c)
        self.attn1 = nn.ModuleList(CrossAttention(c, heads=cfg.heads) for _ in range(cfg.depth))
        self.attn2 = nn.ModuleList()
        for _ in range(cfg.depth):
            cross = CrossAttention(c, cfg.context_dim, cfg.heads)  # mistake: cross = CrossAttention(c, heads=cfg.heads)
            self.attn2.append(cross)
        self.proj_out = nn.Conv2d(c, c, 1)

    def forward(self, x, context):
        b, c, h, w = x.shape
        y = self.norm(x).flatten(2).transpose(1, 2)
        for attn1, attn2 in zip(self.attn1, self.attn2, strict=True):
            y = y + attn1(y)
            y = y + attn2(y, context)
        return x + self.proj_out(y.transpose(1, 2).reshape(b, c, h, w))


# run:
SpatialTransformer(UNetConfig())(torch.randn(2, 64, 8, 8), torch.randn(2, 11, 96)).sum().backward()
