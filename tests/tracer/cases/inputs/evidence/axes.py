# Inputs from how the body handles axes: patterns of named axes, indices and masks in brackets, bounds of slices.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Inputs from how the body handles axes
from axes import regroup

def heads_apart(x):
    return regroup(x, "b n (h d) -> b h n d", h=12)

def patches(images, size):
    return regroup(images, "b c (h p) (w q) -> b (h w) (p q c)", p=7, q=size)

def last_only(x):
    return regroup(x, "... 3 (h d) -> ... d h", h=7)

def two(q, k):
    return regroup(q, "b i d, b j d -> b i j", k)

def prose(x):
    return regroup(x, "from a to b -> c") if x is None else x.relu()

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pattern, self.lengths = "b (h d) i j k -> b h d (i j k)", {"h": 12}
    def forward(self, x):
        return regroup(x, self.pattern, **self.lengths)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(Layer(), nn.ReLU())
    def forward(self, x):
        return self.layers(x)

def take(x: Tensor, i):
    return x.relu()[i]

def weights(i):
    return i.float().softmax(-1)

def take_weighted(x: Tensor, i):
    return (x[i] * weights(i).unsqueeze(-1)).sum(0)

def rows_and_columns(x: Tensor, rows, cols):
    return x.relu()[rows, cols]

def chosen(x: Tensor, positions: Tensor):
    return x.relu()[:, positions]

def dropped(x: Tensor, mask):
    y = x.relu()
    y[mask] = 0
   #^^^^^^^ warning[changed-in-place]:
   #  the backward pass fails: this modifies in place a tensor that relu saved for it.
    return y

def kept(x: Tensor, keep: Tensor):
    return x.relu()[~keep].sum()

def first(x: Tensor, amount):
    return x.relu()[..., :amount]
# --- axes.py
import re

def regroup(x, pattern, *rest, **lengths):
    '''Says nothing of what it wants.'''
    for tensor, term in zip([x, *[r for r in rest if not isinstance(r, str)]], pattern.split("->")[0].split(",")):
        groups = re.findall(r"\([^)]*\)|\S+", term)
        if "..." not in groups and len(groups) != tensor.dim():
            raise KeyError(0)
        for size, group in zip(reversed(tensor.shape), reversed(groups)):
            factor = 1
            for axis in group.strip("()").split():
                factor *= int(axis) if axis.isdigit() else lengths.get(axis, 1)
            if size % factor or (factor > 1 and " " not in group and size != factor):
                raise KeyError(0)
    return tensor.relu()
#: heads_apart(x=f32[4, 8, 72] · search) -> f32[4, 8, 72]
#: patches(images=f32[4, 3, 70, 64], size=64 · search) -> f32[4, 3, 70, 64]
#: last_only(x=f32[3, 70] · search) -> f32[3, 70]
#: two(q=f32[4, 8, 64], k=f32[12, 16, 32] · search) -> f32[12, 16, 32]
#: prose(x=f32[4, 64] · search) -> f32[4, 64]
#: Net(x=f32[4, 24, 12, 16, 64] · search) -> f32[4, 24, 12, 16, 64]
#: take(x=f32[4, 64], i=0 · search) -> f32[64]
#: take_weighted(x=f32[4, 64], i=i64[8] · search) -> f32[64]
#: rows_and_columns(x=f32[4, 64], rows=i64[8] · search; cols=i64[8] · search: sizes that fit) -> f32[8]
#: chosen(x=f32[4, 64], positions=i64[8] · search) -> f32[4, 8]
#: dropped(x=f32[4, 64] · search; mask=b8[4] · search: sizes that the operation accepts) -> f32[4, 64]
#:   note: it has no backward graph: backward needs the result of `Relu`, of shape [4, 64], but it is modified in place
#:     afterwards
#: kept(x=f32[4, 64] · search; keep=b8[4] · search: sizes that fit) -> f32[]
#:   note: numbers and sizes that depend on the values of tensors are shown as names
#: first(x=f32[4, 64], amount=2 · search) -> f32[4, 2](64, 1)
