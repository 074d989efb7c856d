import math

import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(q.size(-1))
        weights = F.softmax(scores, dim=-1)
        mixed = weights @ v
        return self.out(mixed.transpose(1, 2).reshape(B, T, C))
