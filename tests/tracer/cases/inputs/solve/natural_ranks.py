# Inputs of functions whose ranks nothing fixes look like what one would have passed.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === One tensor that attends to itself has no heads yet
def f(x):
    return (x @ x.transpose(-1, -2)).softmax(-1) @ x
#: f(x=f32[4, 8, 64] · search) -> f32[4, 8, 64]

# === Axes from the end have a batch before them
def f(a, b):
    return a @ b.mT
#: f(a=f32[4, 8, 64] · search; b=f32[4, 16, 64] · search: sizes that fit) -> f32[4, 8, 16]

# === What layers get that two inputs are joined for are images
class Cell(nn.Module):
    def __init__(self, hidden=16, width=24):
        super().__init__()
        self.gate = nn.Conv2d(hidden + width, hidden, 3, padding=1)

    def forward(self, h, x):
        return torch.sigmoid(self.gate(torch.cat([h, x], dim=1))) * h
#: Cell(h=f32[4, 16, 64, 64], x=f32[4, 24, 64, 64] · search: sizes that fit) -> f32[4, 16, 64, 64]

# === Labels are scores without their classes
class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, padding=1)

    def forward(self, image, target):
        return F.cross_entropy(self.conv(image), target)
#: Segmenter(image=f32[4, 3, 64, 64] · search; target=i64[4, 64, 64] · search: rank that the operation accepts) -> f32[]

# === Images stay squares where one side is demanded
class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rows = nn.Conv2d(3, 8, 4, stride=4), nn.Parameter(torch.zeros(1, 8, 24, 1))

    def forward(self, x):
        return self.conv(x) + self.rows
#: Rows(x=f32[4, 3, 96, 96] · search: sizes that fit) -> f32[4, 8, 24, 24]

# === Layers are taken by number
class Stack(nn.Module):
    def __init__(self, depth: int = 2):
        super().__init__()
        self.depth, self.convs = depth, nn.ModuleList([nn.Conv1d(24, 24, 3, padding=1) for _ in range(depth)])

    def forward(self, x):
        for i in range(self.depth):
            x = x + self.convs[i](x)
        return x
#: Stack(x=f32[4, 24, 64] · search) -> f32[4, 24, 64]

# === Labels that are flattened are whole numbers
def f(scores, gold, smoothing=False):
    gold = gold.contiguous().view(-1)
    return F.cross_entropy(scores, gold)
#: f(scores=f32[96, 64] · search: sizes that fit; gold=i64[8, 12] · search; smoothing=False · default) -> f32[]

# === States are tensors whose size is a number
class Output(nn.Module):
    def __init__(self, hidden_size=32):
        super().__init__()
        self.layers = {"dense": nn.Linear(hidden_size, hidden_size)}
       #^^^^^^^^^^^ warning[unregistered]:
       #  `self.layers` is a plain dict: `parameters()`, `to()` and `state_dict()` do not reach its layers; make it an
       #  `nn.ModuleDict`.

    def forward(self, hidden_states, hidden_features):
        return self.layers["dense"](hidden_states) + hidden_features
#: Output(hidden_states=f32[4, 8, 32], hidden_features=f32[4, 8, 32] · search: sizes that fit) -> f32[4, 8, 32]
