# crash: a product for batches of matrices gets queries and keys that have a dimension for heads
# evidence: none
import torch
import torch.nn as nn


class SelfAttention(nn.Module):
    def __init__(self, embed_dim=64, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).view(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        attn = torch.matmul(q, k.transpose(-2, -1)) * self.head_dim**-0.5  # mistake: attn = torch.bmm(q, k.transpose(-2, -1)) * self.head_dim**-0.5
        out = torch.matmul(attn.softmax(dim=-1), v)
        return self.proj(out.transpose(1, 2).reshape(B, N, C))


# run:
SelfAttention()(torch.randn(2, 10, 64)).sum().backward()
