# Modules as people build them: recurrent layers, copies, moves, state, other devices, several in one file.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Modules are copied moved and tied
import copy

class Net(nn.Module):
    def __init__(self, vocabulary=50, dim=16):
        super().__init__()
        layer = nn.Linear(dim, dim)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2)).to("cpu").double()
        self.embed = nn.Embedding(vocabulary, dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.embed.weight
        self.double()
    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
#: Net [joint]

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
#: Model
#: Inner

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
            raise ValueError("positive")
        raise TypeError("negative")

def get_inputs():
    return [torch.rand(12, 10), torch.zeros(4, 6, dtype=torch.int64)]

def get_init_inputs():
    return [10, 6]
#: Model
