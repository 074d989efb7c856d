# crash: a padding mask gets one new axis in place of two, so that the batch meets the heads
# evidence: none
import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int = 4, dropout: float = 0.1):
        super().__init__()
        self.h = num_heads
        self.d = hidden_size // num_heads
        self.qkv = nn.Linear(hidden_size, hidden_size * 3)
        self.out = nn.Linear(hidden_size, hidden_size)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, attention_mask):
        """
        x: [batch, seq, hidden]
        attention_mask: [batch, seq], 1 for tokens and 0 for padding
        """
        bsz, seq, hidden = x.shape
        q, k, v = self.qkv(x).view(bsz, seq, 3, self.h, self.d).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.d)
        mask = attention_mask[:, None, None, :]  # mistake: mask = attention_mask[:, None, :]
        scores = scores + (1.0 - mask.to(scores.dtype)) * torch.finfo(scores.dtype).min
        probs = self.drop(torch.softmax(scores, dim=-1))
        ctx = torch.matmul(probs, v).transpose(1, 2).reshape(bsz, seq, hidden)
        return self.out(ctx)


# run:
mask = (torch.arange(17) < torch.tensor([[17], [9], [12]])).long()
MultiHeadAttention(64)(torch.randn(3, 17, 64), mask).sum().backward()
