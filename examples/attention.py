"""Causal self-attention, written out and as a module."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device).tril()
    weights = F.softmax(scores.masked_fill(~keep, float("-inf")), dim=-1)
    return weights @ v


def split_heads(x, heads):
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2)


def merge_heads(x):
    batch, heads, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * width)


class SelfAttention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = attention(q, k, v)
        return self.out(merge_heads(mixed))
