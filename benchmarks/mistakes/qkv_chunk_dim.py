# crash: a fused projection is chunked along the sequence in place of the features
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class ViTBlock(nn.Module):
    def __init__(self, dim=192, heads=3, mlp_ratio=4.0, drop=0.0):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, dim * 3, bias=True)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        hidden = int(dim * mlp_ratio)
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(drop), nn.Linear(hidden, dim))

    def attention(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)  # mistake: q, k, v = self.qkv(x).chunk(3, dim=1)
        q, k, v = (t.reshape(B, N, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(B, N, C))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


# run:
ViTBlock()(torch.randn(2, 50, 192)).sum().backward()
