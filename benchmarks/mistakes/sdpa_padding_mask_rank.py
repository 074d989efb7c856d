# crash: F.scaled_dot_product_attention wants a mask that broadcasts to (batch, heads, queries, keys)
# evidence: none
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CrossAttention(nn.Module):
    def __init__(self, dim: int, context_dim: int, num_heads: int = 8):
        super().__init__()
        self.num_heads = num_heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(context_dim, 2 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, context: Tensor, context_mask: Tensor) -> Tensor:
        """x: (B, N, dim), context: (B, S, context_dim), context_mask: (B, S), True where there is a token"""
        q = self._heads(self.to_q(x))
        k, v = (self._heads(part) for part in self.to_kv(context).chunk(2, dim=-1))
        mask = context_mask[:, None, None, :]  # mistake: mask = context_mask
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.to_out(out.transpose(1, 2).flatten(2))


# run:
mask = torch.arange(12) < torch.tensor([[12], [5], [8]])
CrossAttention(64, 48)(torch.randn(3, 20, 64), torch.randn(3, 12, 48), mask).sum().backward()
