# crash: the outputs of an expert are weighted by a vector without the hidden dimension
# evidence: config
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class MoEConfig:
    dim: int = 64
    hidden: int = 128
    num_experts: int = 8
    top_k: int = 2
    num_layers: int = 2


class Expert(nn.Module):
    def __init__(self, config: MoEConfig):
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.hidden, bias=False)
        self.w2 = nn.Linear(config.hidden, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoELayer(nn.Module):
    def __init__(self, config: MoEConfig):
        super().__init__()
        self.top_k = config.top_k
        self.gate = nn.Linear(config.dim, config.num_experts, bias=False)
        self.experts = nn.ModuleList([Expert(config) for _ in range(config.num_experts)])

    def forward(self, x):
        flat = x.view(-1, x.shape[-1])
        weights, selected = torch.topk(self.gate(flat), self.top_k)
        weights = F.softmax(weights, dim=1)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            token, nth = torch.where(selected == i)
            weight = weights[token, nth, None]  # mistake: weight = weights[token, nth]
            out = out.index_add(0, token, weight * expert(flat[token]))
        return out.view_as(x)


class MoEStack(nn.Module):
    def __init__(self, config: MoEConfig):
        super().__init__()
        self.norms = nn.ModuleList([nn.RMSNorm(config.dim) for _ in range(config.num_layers)])
        self.moes = nn.ModuleList([MoELayer(config) for _ in range(config.num_layers)])

    def forward(self, x):
        for norm, moe in zip(self.norms, self.moes, strict=True):
            x = x + moe(norm(x))
        return x


# run:
MoEStack(MoEConfig())(torch.randn(2, 30, 64)).sum().backward()
