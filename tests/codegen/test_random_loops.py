"""Random loops over time: kernels of them are right, forward and backward, however their steps depend on each other."""

import random

import pytest
import torch
from interpreted import wrong
from parameters import some

UNARY = (
    torch.tanh,
    torch.sigmoid,
    lambda a: a * 0.5,
    lambda a: 1.0 - a,
    torch.relu,
    lambda a: (a > 0.1).to(a.dtype),
    torch.sin,
)
BINARY = (
    torch.add,
    torch.sub,
    torch.mul,
    lambda a, b: 0.9 * a + b,
    lambda a, b: torch.where(a > 0, b, a),
    lambda a, b: a + (b - a) * 0.25,
)


class Loop:
    """A function `(x, y, w) -> results` with a loop of as many steps as `x` has rows, made up from a seed."""

    def __init__(self, seed):
        chosen = random.Random(seed)
        self.states = chosen.randint(1, 3)
        self.steps = []
        known = self.states + chosen.randint(1, 3)  # states, a row of x, and perhaps one of y, and w
        self.inputs = known - self.states
        for _ in range(chosen.randint(2, 7)):
            if chosen.random() < 0.4:
                self.steps.append((chosen.choice(UNARY), (chosen.randrange(known),)))
            else:
                self.steps.append((chosen.choice(BINARY), (chosen.randrange(known), chosen.randrange(known))))
            known += 1
        self.following = [chosen.randrange(self.states, known) for _ in range(self.states)]
        self.given = [chosen.randrange(self.states, known) for _ in range(chosen.randint(0, 2))]
        self.zeros = chosen.random() < 0.5
        self.backwards = chosen.random() < 0.2
        self.last = chosen.random() < 0.5 or not self.given
        self.summed = chosen.choice(("no", "sum", "mean", "both"))
        self.length = chosen.choice((4, 5, 8, 11))
        self.shared = chosen.choice(((), (7,), (3, 7)))
        more = random.Random(f"more {seed}")
        self.following = [more.randrange(self.states) if more.random() < 0.3 else p for p in self.following]
        self.writes = more.random() < 0.4

    def __call__(self, x, y, w):
        states = [torch.zeros_like(x[0]) if self.zeros else y[0] * (k + 1) for k in range(self.states)]
        kept = [torch.empty_like(x) if self.writes else [None] * len(x) for _ in self.given]
        for t in reversed(range(len(x))) if self.backwards else range(len(x)):
            values = [*states, *(x[t], w, y[t])[: self.inputs]]
            for function, places in self.steps:
                values.append(function(*(values[p] for p in places)))
            states = [values[p].expand_as(x[0]) for p in self.following]
            for found, place in zip(kept, self.given, strict=True):
                found[t] = values[place].expand_as(x[0])
        results = [*states] if self.last else []
        for found in kept:
            stacked = found if self.writes else torch.stack(found[::-1] if self.backwards else found)
            results += [stacked] if self.summed in ("no", "both") else []
            results += [stacked.mean(0) if self.summed == "mean" else stacked.sum(0)] if self.summed != "no" else []
        return tuple(results)


@pytest.mark.parametrize("seed", some(range(40), (0, 7, 13, 22, 31, 38)))
def test_random_loops(seed):
    loop = Loop(seed)
    torch.manual_seed(seed)
    rows = (loop.length, 3, 7)
    inputs = [torch.randn(rows), torch.randn(rows), torch.randn(loop.shared)]
    assert wrong(loop.__call__, [i.requires_grad_() for i in inputs]) == []
