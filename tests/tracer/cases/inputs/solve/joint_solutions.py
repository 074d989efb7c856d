# Numbers of constructors and sizes of inputs, solved for in one search.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A module is called with what it is told besides
import numpy as np

class Diffusion(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model
    def forward(self, x: Tensor, t: Tensor):
        return self.model(x, t).pow(2).mean() + t.float().mean()
#: Diffusion(init.model=lambda x, *others, **named: x, x=f32[4, 8, 64], t=f32[12, 16, 32] · search) -> f32[]

# === A constructor runs once whatever its numbers
import numpy as np

made = []

class Net(nn.Module):
    def __init__(self, words=1000, width=512, positions=300):
        super().__init__()
        made.append(width)
        assert len(made) == 1
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(positions, width)
    def forward(self, tokens):
        return self.words(tokens) + self.positions.weight[: tokens.shape[1]]
#: Net(tokens=i64[4, 8] · search) -> f32[4, 8, 512]

# === What is taken by number is no single number as another of its name is
import numpy as np

class Tower(nn.Module):
    def __init__(self, layers: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.first, self.second = Tower(layers[0]), Tower(layers[1])
    def forward(self, x):
        return self.second(self.first(x))
#: Net(init.layers=(2, 2), x=f32[4, 12, 8] · search) -> f32[4, 12, 8]
