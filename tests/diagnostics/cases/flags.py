# targets: Gate, GateTyped, GateRight, Pooled, Switched, swapped, cached, inverted, inner, outer
import torch
import torch.nn as nn


class Gate(nn.Module):
    def __init__(self, width, parts):
        super().__init__()
        self.score = nn.Linear(width, parts)

    def forward(self, x, balance=False):
        p = self.score(x).softmax(-1)
        if balance:
            return p, (p.sum(0) - p.sum(1)).pow(2).mean()
            #          ^^^^^^^^^^^^^^^^^^^ warning[dimension]:
            #  with balance=True: `p.sum(0) - p.sum(1)` only broadcasts when x.shape[1] == x.shape[0]. Is a dimension
            #  missing or swapped?
        return p, None


class GateTyped(nn.Module):
    def __init__(self, width: int, parts: int):
        super().__init__()
        self.score = nn.Linear(width, parts)

    def forward(self, x: torch.Tensor, balance: bool = False):
        p = self.score(x).softmax(-1)
        if balance:
            return p, (p.sum(0) - p.sum(1)).pow(2).mean()
            #          ^^^^^^^^^^^^^^^^^^^ warning[dimension]:
            #  with balance=True: `p.sum(0) - p.sum(1)` only broadcasts when x.shape[1] == x.shape[0]. Is a dimension
            #  missing or swapped?
        return p, None


class GateRight(nn.Module):
    def __init__(self, width: int, parts: int):
        super().__init__()
        self.score = nn.Linear(width, parts)

    def forward(self, x: torch.Tensor, balance: bool = False):
        p = self.score(x).softmax(-1)
        if balance:
            return p, (p.mean(-1) - p.amax(-1)).pow(2).mean()
        return p, None


class Pooled(nn.Module):
    def __init__(self, width: int, kind: str = "linear"):
        super().__init__()
        self.kind = kind
        self.up = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor):
        y = self.up(x)
        if self.kind == "glu":
            first, second = y.chunk(2, dim=-1)
            return first * second.sigmoid() + y
            #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
            #  with kind=glu: shapes [4, 12, 16] and [4, 12, 8] do not broadcast: size 16 at dimension -1 does not
            #  match (first * second.sigmoid(): f32[4, 12, 8], y: f32[4, 12, 16]).
        if self.kind in ("tanh", "relu"):
            return y.tanh() if self.kind == "tanh" else y.relu()
        return y


class Switched(nn.Module):
    def __init__(self, dim: int, residual: bool = True, conditional: bool = False):
        super().__init__()
        self.net = nn.Linear(dim, dim)
        self.residual = residual
        self.conditional = conditional
        if conditional:
            self.embed = nn.Embedding(10, dim)

    def forward(self, x, label=None, hidden: bool = False):
        h = self.net(x).relu()
        if self.conditional:
            h = h + self.embed(label)[:, None]
        y = x + h if self.residual else h
        return (y, h) if hidden else y


def swapped(x: torch.Tensor, w: torch.Tensor, transposed: bool = False):
    if transposed:
        w = w.t()
    return x @ w


def cached(x: torch.Tensor, past=None, use_cache: bool = False):
    y = x * 2
    if use_cache:
        y = torch.cat([past.keys, y], 1)
        past.append(y)
    return y.softmax(-1)


def inverted(x: torch.Tensor, mask=None, invert: bool = False):
    if invert:
        mask = ~mask
    if mask is not None:
        x = x.masked_fill(mask, 0.0)
    return x.sum(-1)


def inner(x, flip=False):
    if flip:
        return x.reshape(-1, 7, 5) @ torch.ones(4, 4)
        #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[dimension]:
        #  with flip=True: matrices of 448×5 and 4×4 cannot be multiplied: the inner sizes 5 and 4 differ
        #  (x.reshape(-1, 7, 5): f32[64, 7, 5], torch.ones(4, 4): f32[4, 4]).
        #  line 102: also reached from outer
    return x * 2


def outer(x: torch.Tensor, flip=False):
    return inner(x.relu(), flip)
