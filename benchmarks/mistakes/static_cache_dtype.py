# crash: a preallocated half-precision cache takes no float32 keys, "self and source expected to have the same dtype"
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class CacheConfig:
    max_batch: int = 4
    max_len: int = 64
    heads: int = 4
    head_dim: int = 16
    cache_dtype: torch.dtype = torch.float16


class StaticKVCache(nn.Module):
    def __init__(self, cfg: CacheConfig):
        super().__init__()
        shape = (cfg.max_batch, cfg.heads, cfg.max_len, cfg.head_dim)
        self.register_buffer("k", torch.zeros(shape, dtype=cfg.cache_dtype), persistent=False)
        self.register_buffer("v", torch.zeros(shape, dtype=cfg.cache_dtype), persistent=False)

    def update(self, positions, k, v):
        self.k.index_copy_(2, positions, k.to(self.k.dtype))  # mistake: self.k.index_copy_(2, positions, k)
        self.v.index_copy_(2, positions, v.to(self.v.dtype))  # mistake: self.v.index_copy_(2, positions, v)
        return self.k, self.v


class CachedSelfAttention(nn.Module):
    def __init__(self, cfg: CacheConfig):
        super().__init__()
        self.heads = cfg.heads
        width = cfg.heads * cfg.head_dim
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.cache = StaticKVCache(cfg)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        # x: (max_batch, T, width), positions: (T,)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        k, v = self.cache.update(positions, k, v)
        mask = torch.arange(k.size(2), device=x.device)[None, :] <= positions[:, None]
        y = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), attn_mask=mask)
        return self.proj(y.transpose(1, 2).flatten(2))


def build_attention() -> CachedSelfAttention:
    return CachedSelfAttention(CacheConfig())


# run:
with torch.no_grad():
    build_attention()(torch.randn(4, 5, 64), torch.arange(5))
