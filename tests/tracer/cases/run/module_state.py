# What modules hold, and when: sizes that a first call decides, hooks, computed weights, tensors in containers.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A parameter that forward assigns to itself
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(1.0))

    # fx: x=f32[4, 8]
    def forward(self, x):
        self.alpha = self.alpha.to(x.device)
        return x * self.alpha
#: Scale [forward]() -> f32[4, 8]
#:   forward:
#:     alpha: f32[] = placeholder
#:     x: f32[4, 8] = placeholder
#:     mul: f32[4, 8] = aten.mul.Tensor(x, alpha)
#:     return (mul, alpha, x)
