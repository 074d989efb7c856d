# targets: MultiHead, SelfAttention, Residual, ResidualOfNumbers
import math

import torch
import torch.nn.functional as F
from torch import nn

# What another rank of a guess lifts, or an argument that nobody can list, is no mistake.


class MultiHead(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, query, key, value, mask=None):
        b = query.size(0)
        q = self.q(query).view(b, -1, self.heads, self.width).transpose(1, 2)
        k = self.k(key).view(b, -1, self.heads, self.width).transpose(1, 2)
        v = self.v(value).view(b, -1, self.heads, self.width).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.width)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        return torch.softmax(scores, dim=-1) @ v


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x, attn_mask=None):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        att = q @ k.transpose(-2, -1)
        if attn_mask is not None:
            att = att + attn_mask
        return (att.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)


class Residual(nn.Module):
    def __init__(self, channels_in, channels_out, shortcut=None):
        super().__init__()
        self.left = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.right = shortcut

    def forward(self, x):
        residual = x if self.right is None else self.right(x)
        return F.relu(self.left(x) + residual)


class ResidualOfNumbers(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.left = nn.Conv2d(channels_in, channels_out, 3, padding=1)

    def forward(self, x):
        return F.relu(self.left(x) + x)
        #             ^^^^^^^^^^^^^^^^ warning[dimension]:
        #  `self.left(x) + x` only broadcasts when init.channels_out == init.channels_in. Is a dimension missing or
        #  swapped?
