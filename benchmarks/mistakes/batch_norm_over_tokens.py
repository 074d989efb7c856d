# crash: BatchNorm1d wants the channels in the second dimension, a sequence of features has them in the last
# evidence: none
from itertools import pairwise

import torch
from torch import nn


class PointwiseMLP(nn.Module):
    """Linear layers with batch norm, applied to each point of a cloud (B, N, C)."""

    def __init__(self, widths=(3, 64, 128, 256)):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(i, o) for i, o in pairwise(widths)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(o) for o in widths[1:]])

    def forward(self, points):
        x = points
        for linear, norm in zip(self.linears, self.norms, strict=True):
            x = linear(x)
            x = norm(x.transpose(1, 2)).transpose(1, 2)  # mistake: x = norm(x)
            x = torch.relu(x)
        return x


class PointCloudEncoder(nn.Module):
    def __init__(self, embedding=128):
        super().__init__()
        self.mlp = PointwiseMLP()
        self.out = nn.Linear(256, embedding)

    def forward(self, points):
        return self.out(self.mlp(points).amax(dim=1))


# run:
PointCloudEncoder()(torch.randn(4, 100, 3)).sum().backward()
