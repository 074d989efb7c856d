# crash: cosines of (length, head_dim) meet queries of (batch, length, heads, head_dim) without an axis for the heads
# evidence: none
import torch
from torch import nn


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, seq_len):
        t = torch.arange(seq_len, device=self.inv_freq.device).float()
        freqs = torch.outer(t, self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()


class RotaryQueryKey(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.rotary = RotaryEmbedding(dim // n_heads)

    def forward(self, x):
        bsz, seqlen, _ = x.shape
        q = self.wq(x).view(bsz, seqlen, self.n_heads, -1)
        k = self.wk(x).view(bsz, seqlen, self.n_heads, -1)
        cos, sin = self.rotary(seqlen)
        cos, sin = cos[:, None, :], sin[:, None, :]  # mistake: pass
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        return q.transpose(1, 2), k.transpose(1, 2)


# run:
q, k = RotaryQueryKey(64, 4)(torch.randn(2, 11, 64))
(q.sum() + k.sum()).backward()
