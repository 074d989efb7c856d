# crash: the key cache has heads before positions, but new keys are concatenated along the heads
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class DecoderConfig:
    hidden_size: int = 128
    num_heads: int = 4
    num_layers: int = 2
    vocab_size: int = 256


class CachedAttention(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.num_heads = config.num_heads
        self.head_dim = config.hidden_size // config.num_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x, past=None):
        b, t, c = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if past is not None:
            k = torch.cat([past[0], k], dim=2)  # mistake: k = torch.cat([past[0], k], dim=1)
            v = torch.cat([past[1], v], dim=2)  # mistake: v = torch.cat([past[1], v], dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        return self.out(y.transpose(1, 2).reshape(b, t, c)), (k, v)


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([CachedAttention(config) for _ in range(config.num_layers)])
        self.head = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, ids, cache=None):
        x = self.embed(ids)
        cache = cache or [None] * len(self.layers)
        new_cache = []
        for layer, past in zip(self.layers, cache, strict=True):
            y, present = layer(x, past)
            x = x + y
            new_cache.append(present)
        return self.head(x), new_cache

    @torch.no_grad()
    def generate(self, ids, steps):
        logits, cache = self(ids)
        for _ in range(steps):
            next_id = logits[:, -1:].argmax(dim=-1)
            ids = torch.cat([ids, next_id], dim=1)
            logits, cache = self(next_id, cache)
        return ids


# run:
Decoder(DecoderConfig()).generate(torch.randint(0, 256, (2, 7)), 3)
