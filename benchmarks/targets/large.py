"""A 32-layer decoder of Llama's shape, written out in plain PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = (p(x).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(dim, heads), Norm(dim), Norm(dim)
        self.gate, self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


# fx: ids=i64[2, 64]
class Decoder(nn.Module):
    def __init__(self, vocab=1000, dim=256, heads=8, layers=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm, self.head = Norm(dim), nn.Linear(dim, vocab, bias=False)
        self.width = dim // heads

    def forward(self, ids):
        angles = torch.arange(ids.size(1))[:, None] / 10000 ** (torch.arange(0, self.width, 2) / self.width)
        angles = torch.cat((angles, angles), dim=-1)
        x, cos, sin = self.embed(ids), angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))
