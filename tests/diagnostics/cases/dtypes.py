# targets: Relations, RelationsOfIntegers, Times, TimesInDouble, Scaled, ScaledByIntegers, real_pairs,
#  real_pairs_of_floats
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Relations(nn.Module):
    def __init__(self):
        super().__init__()
        self.names, self.table = nn.Embedding(9, 32), nn.Parameter(torch.zeros(6, 32))

    def forward(self, head, relation):
        rows = F.one_hot(relation, 6).float()
        return self.names(head) * (rows @ self.table)


class RelationsOfIntegers(nn.Module):
    def __init__(self):
        super().__init__()
        self.names, self.table = nn.Embedding(9, 32), nn.Parameter(torch.zeros(6, 32))

    def forward(self, head, relation):
        rows = F.one_hot(relation, 6)
        return self.names(head) * (rows @ self.table)
        #                          ^^^^^^^^^^^^^^^^^ error[dtype]:
        #  expected m1 and m2 to have the same dtype, but got: long int != float (rows: i64[12, 16, 6], self.table:
        #  f32[6, 32]).


class Times(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.width, self.layer = width, nn.Linear(width, 32)

    def forward(self, t):
        steps = torch.from_numpy(np.exp(-np.arange(self.width))).float()
        return self.layer(t[:, None].float() * steps)


class TimesInDouble(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.width, self.layer = width, nn.Linear(width, 32)

    def forward(self, t):
        steps = torch.from_numpy(np.exp(-np.arange(self.width)))
        return self.layer(t[:, None].float() * steps)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[dtype]:
        #  mat1 and mat2 must have the same dtype, but got Double and Float (input: f64[4, 1, 8, 16], weight: f32[32,
        #  16], bias: f32[32]).


class Scaled(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, 8))
        self.scale = nn.Parameter(torch.full((classes,), 10.0))

    def forward(self, x):
        return F.linear(x, self.weight) * self.scale


class ScaledByIntegers(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, 8))
        self.scale = nn.Parameter(torch.full((classes,), 10))
        #            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[construct]:
        #  only Tensors of floating point dtype can require gradients (nn: i64[1000]) (constructing ScaledByIntegers).
        #  The inputs are guessed; write the real ones in a comment: `# fx: init(classes=1000)`.

    def forward(self, x):
        return F.linear(x, self.weight) * self.scale


def real_pairs(lengths: torch.Tensor):
    real = torch.arange(8)[None, :] < lengths[:, None]
    return real[:, :, None] & real[:, None, :]


def real_pairs_of_floats(lengths: torch.Tensor):
    real = (torch.arange(8)[None, :] < lengths[:, None]).float()
    return real[:, :, None] & real[:, None, :]
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[dtype]:
    #  "bitwise_and_cpu" not implemented for 'Float' (real[:, :, None]: f32[4, 8, 1], real[:, None, :]: f32[4, 1, 8]).
