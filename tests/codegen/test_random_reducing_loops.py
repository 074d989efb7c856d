"""Random loops over time whose states are matrices that each step reduces: kernels of them are right, both ways."""

import random

import pytest
import torch
from interpreted import wrong
from parameters import some

from fx_lsp.codegen.graph import loop_batching, loops


def rows(a):
    return a.sum(-1, keepdim=True)


def columns(a):
    return a.sum(-2, keepdim=True)


def all_of(a):
    return a.mean((-2, -1), keepdim=True)


def over_the_batch(a):
    return a.mean(0, keepdim=True).expand_as(a)


REDUCING = (rows, columns, all_of, lambda a: a.amax(-1, keepdim=True), lambda a: torch.softmax(a, -1))
UNARY = (torch.tanh, torch.sigmoid, lambda a: a * 0.3, lambda a: a / (1 + a.abs()))
BINARY = (torch.add, torch.mul, lambda a, b: 0.8 * a + 0.2 * b, lambda a, b: a - 0.1 * b)


class Loop:
    """A function `(u, v, m, w) -> results` of columns `u`, rows `v`, and matrices `m` of each step, and a shared `w`,
    with a loop over the steps, made up from a seed."""

    def __init__(self, seed):
        chosen = random.Random(seed)
        self.states = chosen.randint(1, 2)
        known = self.states + 4
        self.steps = []
        for _ in range(chosen.randint(3, 8)):
            kind = chosen.choice((REDUCING, UNARY, BINARY, BINARY))
            places = tuple(chosen.randrange(known) for _ in range(2 if kind is BINARY else 1))
            self.steps.append((chosen.choice(kind), places))
            known += 1
        self.following = [chosen.randrange(self.states, known) for _ in range(self.states)]
        self.given = [chosen.randrange(self.states + 4, known) for _ in range(chosen.randint(1, 3))]
        self.ways = [chosen.choice((rows, columns, all_of, None, over_the_batch)) for _ in self.given]
        self.dim = chosen.choice((0, 1))
        self.last = chosen.random() < 0.5
        self.length = chosen.choice((4, 6, 9))
        self.many = chosen.random() < 0.5
        self.tile = chosen.choice((1024, 24))

    def __call__(self, u, v, m, w):
        states = [torch.zeros_like(m[0]) for _ in range(self.states)]
        kept = [[] for _ in self.given]
        for t in range(len(m)):
            values = [*states, u[t][..., None], v[t][..., None, :], m[t], w]
            for function, places in self.steps:
                values.append(function(*(values[p] for p in places)))
            states = [values[p].expand_as(m[0]) for p in self.following]
            for found, place, way in zip(kept, self.given, self.ways, strict=True):
                value = values[place].expand_as(m[0])
                found.append(value if way is None else way(value))
        return (*(torch.stack(found, self.dim) for found in kept), *(states if self.last else ()))


@pytest.mark.parametrize("seed", some(range(20), (1, 6, 11, 17)))
def test_random_reducing_loops(seed, monkeypatch):
    loop = Loop(seed)
    monkeypatch.setattr(loops, "MIN_STEPS_TO_SAVE", 5 if loop.many else 17)
    monkeypatch.setattr(loop_batching, "TILE_ELEMENTS", loop.tile)
    torch.manual_seed(seed)
    n, inputs = loop.length, ((2, 6), (2, 5), (2, 6, 5))
    tensors = [*(torch.randn(n, *shape) * 0.5 for shape in inputs), torch.randn(6, 5) * 0.5]
    assert wrong(loop.__call__, [i.requires_grad_() for i in tensors]) == []
