# crash: .view() after .transpose() in the merging of heads, "view size is not compatible with input tensor's size"
# evidence: none
import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, dim, num_heads=8, dropout=0.1):
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.out_proj = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def _split(self, x):
        b, t, _ = x.shape
        return x.view(b, t, self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x, mask=None):
        b, t, c = x.shape
        q, k, v = self._split(self.q_proj(x)), self._split(self.k_proj(x)), self._split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        attn = self.dropout(scores.softmax(dim=-1))
        x = attn @ v
        x = x.transpose(1, 2).reshape(b, t, c)  # mistake: x = x.transpose(1, 2).view(b, t, c)
        return self.out_proj(x)


# run:
SelfAttention(64)(torch.randn(2, 10, 64)).sum().backward()
