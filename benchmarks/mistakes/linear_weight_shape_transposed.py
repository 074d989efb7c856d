# crash: a hand-written linear layer keeps its weight as (in, out), but F.linear wants (out, in)
# evidence: none
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn


class WeightNormLinear(nn.Module):
    def __init__(self, d_in: int, d_out: int, bias: bool = True):
        super().__init__()
        self.v = nn.Parameter(torch.empty(d_out, d_in))  # mistake: self.v = nn.Parameter(torch.empty(d_in, d_out))
        self.g = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None
        nn.init.xavier_uniform_(self.v)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.g * self.v / self.v.norm()
        return F.linear(x, weight, self.bias)


class MLP(nn.Module):
    def __init__(self, sizes: tuple[int, ...] = (32, 128, 128, 10)):
        super().__init__()
        self.layers = nn.ModuleList(WeightNormLinear(i, o) for i, o in pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


# run:
MLP()(torch.randn(16, 32)).sum().backward()
