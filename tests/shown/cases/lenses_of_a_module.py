# shows: lenses
import torch
from torch import nn


class Gate(nn.Module):
#     ^^^^ lens 4 ops forward · 15 backward · saves 128 B
#     ^^^^ lens show forward graph
#     ^^^^ lens show backward graph
#     ^^^^ lens show joint graph
#     ^^^^ lens passes
#     ^^^^ lens why not fused
#     ^^^^ lens generate Triton kernel
    # fx: init(dim=8), x=f32[4, 8]
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        return x * torch.sigmoid(self.proj(x))
