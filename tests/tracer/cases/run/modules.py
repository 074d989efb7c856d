# Modules as people build them: recurrent layers, copies, moves, state, other devices, several in one file.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Inputs of a file are for its outermost module and the others are watched
import copy

class Inner(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
    def forward(self, x):
        return torch.relu(self.fc(x))

class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.down = nn.Linear(dim, 6)
        self.inner = Inner(6)
    def forward(self, x):
        return self.inner(self.down(x))

def get_inputs():
    return [torch.rand(5, 10)]

def get_init_inputs():
    return [10]
#: Model(init.dim=10 · convention: get_init_inputs(); x=f32[5, 10] · convention: get_inputs()) -> f32[5, 6]
#: Inner(init.dim=6 · call site `self.inner = Inner(6)`; x=f32[5, 6] · call site `return self.inner(self.down(x))`) ->
#:   f32[5, 6]

# === What stops the inputs of the file is said and not what stops others
import copy

class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, dim)

    def forward(self, x):
        return self.up(x)

class Model(nn.Module):
    def __init__(self, dim, groups):
        super().__init__()
        self.experts = nn.ModuleList(Expert(dim) for _ in range(groups))
        self.dim = dim

    def forward(self, x, chosen):
        if max(x.sum(), x.mean()) > 0:
        #  ^^^^^^^^^^^^^^^^^^^^^^ information[data-dependent]:
        #  `if max(x.sum(), x.mean()) > 0:` branches on a tensor's value, and a trace has shapes but no values. Use
        #  `torch.where` (both sides are computed) or `torch.cond`, or branch on shapes.
            raise ValueError("positive")
        raise TypeError("negative")

def get_inputs():
    return [torch.rand(12, 10), torch.zeros(4, 6, dtype=torch.int64)]

def get_init_inputs():
    return [10, 6]
#: Model(init.dim=10, init.groups=6 · convention: get_init_inputs(); x=f32[12, 10], chosen=i64[4, 6] · convention:
#:   get_inputs())
