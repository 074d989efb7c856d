# crash: the key and value heads of grouped-query attention are expanded, and an expanded tensor cannot be viewed
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ModelArgs:
    dim: int = 256
    n_heads: int = 8
    n_kv_heads: int = 2
    n_layers: int = 2
    norm_eps: float = 1e-5


def repeat_kv(x: torch.Tensor, n_rep: int) -> torch.Tensor:
    bs, n_kv_heads, slen, head_dim = x.shape
    if n_rep == 1:
        return x
    x = x[:, :, None, :, :].expand(bs, n_kv_heads, n_rep, slen, head_dim)
    return x.reshape(bs, n_kv_heads * n_rep, slen, head_dim)  # mistake: return x.view(bs, n_kv_heads * n_rep, slen, -1)


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.n_heads, self.n_kv_heads = args.n_heads, args.n_kv_heads
        self.head_dim = args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, args.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, args.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim).transpose(1, 2)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim).transpose(1, 2)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim).transpose(1, 2)
        n_rep = self.n_heads // self.n_kv_heads
        out = F.scaled_dot_product_attention(xq, repeat_kv(xk, n_rep), repeat_kv(xv, n_rep), is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(bsz, seqlen, -1))


class Transformer(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.layers = nn.ModuleList(Attention(args) for _ in range(args.n_layers))
        self.norms = nn.ModuleList(nn.RMSNorm(args.dim, eps=args.norm_eps) for _ in range(args.n_layers))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            h = h + layer(norm(h))
        return h


# run:
Transformer(ModelArgs())(torch.randn(2, 12, 256)).sum().backward()
