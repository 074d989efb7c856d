# crash: the one key of multi-query attention has no dimension where the queries have their heads
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiQueryAttention(nn.Module):
    def __init__(self, dim=64, heads=8):
        super().__init__()
        self.heads, self.dim_head = heads, dim // heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * self.dim_head, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, n, _ = x.shape
        q = self.to_q(x).view(b, n, self.heads, self.dim_head).transpose(1, 2)
        k, v = self.to_kv(x).chunk(2, dim=-1)
        k, v = k.unsqueeze(1), v.unsqueeze(1)  # mistake: k, v = k.contiguous(), v.contiguous()
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.dim_head**-0.5
        out = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))


# run:
MultiQueryAttention()(torch.randn(4, 10, 64)).sum().backward()
