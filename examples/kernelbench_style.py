"""A problem in the form that kernel benchmarks use: a `Model`, its inputs, and its constructor's arguments."""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 128
in_features = 1024
out_features = 512


class Model(nn.Module):
    def __init__(self, in_features, out_features, divisor):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.divisor = divisor

    def forward(self, x):
        x = self.linear(x)
        x = F.mish(x) / self.divisor
        return F.gelu(x).amax(dim=1)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, 10.0]
