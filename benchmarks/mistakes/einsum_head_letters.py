# crash: the letters of an einsum name heads and positions of the keys in another order than the tensor has
# evidence: none
import torch
import torch.nn as nn
from torch import einsum


class PreNormAttention(nn.Module):
    def __init__(self, dim, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads = heads
        self.scale = dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(inner_dim, dim)

    def forward(self, x):
        b, n, _ = x.shape
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in qkv)
        sim = einsum("bhid,bhjd->bhij", q, k) * self.scale
        attn = self.dropout(sim.softmax(dim=-1))
        out = einsum("bhij,bhjd->bihd", attn, v)  # mistake: out = einsum("bhij,bjhd->bihd", attn, v)
        return self.to_out(out.reshape(b, n, -1))


# run:
PreNormAttention(32, heads=4, dim_head=16)(torch.randn(2, 13, 32)).sum().backward()
