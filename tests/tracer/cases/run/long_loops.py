# Loops of hundreds of steps: a few are traced, unless the author says how many.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A loop that begins with the second step
def total(x: Tensor):
    sums = [x[:, 0]]
    for t in range(1, x.shape[1]):
        sums.append((sums[-1] * 0.5 + x[:, t]).tanh())
    return torch.stack(sums, 1)

def main():
    total(torch.randn(2, 400))
#: total(x=f32[2, 5] · call site: line 14, with 5 instead of 400: a long loop iterates over it) -> f32[2, 5]

# === A number that is none of steps stays
def f(x: Tensor, n):
    for _ in range(120):
        x = torch.tanh(x.unflatten(-1, (n, x.shape[-1] // n)).flatten(-2))
    return x
#: f(x=f32[4, 64], n=2 · search) -> f32[4, 64]
