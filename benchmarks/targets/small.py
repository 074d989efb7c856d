import math

import torch


# fx: q=f32[2, 4, 64, 32], k=f32[2, 4, 64, 32], v=f32[2, 4, 64, 32]
def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return torch.softmax(scores, dim=-1) @ v
