# crash: the normalizer of linear attention has one dimension fewer than what it divides
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=32):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        context = torch.einsum("bhnd,bhne->bhde", k, v)
        total = torch.einsum("bhnd,bhd->bhn", q, k.sum(dim=2))
        out = torch.einsum("bhnd,bhde->bhne", q, context) / total.unsqueeze(-1)  # mistake: out = torch.einsum("bhnd,bhde->bhne", q, context) / total
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))


# run:
LinearAttention(64)(torch.randn(2, 16, 64)).sum().backward()
