# What modules hold, and when: sizes that a first call decides, hooks, computed weights, tensors in containers.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A module that is pickled where it is made
import io
import pickle

class Kept(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)
        pickle.dump(self.state_dict(), io.BytesIO())
        self.copy = pickle.loads(pickle.dumps(nn.Linear(width, 4)))

    def forward(self, x):
        return self.copy(self.fc(x))
#: Kept [forward]

# === A sparse buffer and a deep copy
import copy

class Aligned(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)
        heads = torch.tensor([[True, False], [False, True]])
        self.register_buffer("heads", heads.to_sparse(), persistent=False)

    def forward(self, x):
        y = copy.deepcopy(x)
        y[:, 0] = 0
        return self.fc(x) + y
#: Aligned [forward]

# === A parameter that forward assigns to itself
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(1.0))

    # fx: x=f32[4, 8]
    def forward(self, x):
        self.alpha = self.alpha.to(x.device)
        return x * self.alpha
#: Scale [forward]

# === A state in a tuple is an input
class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.state = (torch.zeros(4, 8), torch.zeros(4, 8))

    # fx: x=f32[4, 8]
    def forward(self, x):
        hidden, count = self.state
        self.state = self.cell(x, hidden), count + 1
        return self.state[0] * count
#: Generator [backward, forward]
