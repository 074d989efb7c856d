# Every operation knows the expression it came from, in forward and in backward.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A sum of gradients belongs to the value whose gradient it is
# fx: x=f32[8, 16]
def f(x):
    h = torch.exp(x)
    return h.sin() * h.cos()
#: f [backward]

# === A call of an own function lies on the chain
def norm(x):
    return x / x.sum()

# fx: x=f32[8]
def f(x):
    return norm(x) + 1
#: f [forward]

# === Variables that are unpacked to name the parts
def swapped(x):
    low, high = x - 1, x + 1
    return high, low

# fx: x=f32[2, 12]
def f(x):
    a, b, c = x.chunk(3, -1)
    _, where = c.max(-1)
    first, second = b * 2
    (p, q), r = (a.sin(), a.cos()), a.tan()
    one, other = swapped(c)
    return p, q, r, first * second, where, one * other
#: f [forward]
