"""Code that a run did not reach, and what decided that."""

from __future__ import annotations

import pytest
from conftest import Traced, TraceFixture
from inline_snapshot import snapshot

from fx_lsp.features.wording.unreached import why_unreached
from fx_lsp.model import known_trace

SOURCE = """
import torch
from torch import nn

DEBUG = False

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 4)
        self.flash = True
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    # fx: x=f32[2, 8]
    def forward(self, x, targets=None):
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 7:
                x = x * 2
        if self.flash:
            x = x.relu()
        else:
            x = x.tanh()
        if targets is not None and self.training:
            loss = (self.head(x) - targets).sum()
        else:
            loss = None
        return self.head(x), loss

    def unused(self, x):
        return x if x is None else 0

def helped(x, scale=None):
    if scale is None:
        return x
    y = x * scale
    return y

# fx: x=f32[2, 8]
def left(x, scale=None):
    return helped(x, scale) + 1

# fx: x=f32[2, 8], n=0
def empty(x, n, kind="a"):
    for _ in range(n):
        x = x + 1
    while n > 3:
        n -= 1
    match kind:
        case "a":
            x = x * 2
        case "b":
            x = x * 3
    return x

# fx: x=f32[2, 8]
def of_sizes(x, masks=()):
    if x.dim() == 3:
        x = x[0]
    elif x.shape[-1] > 100:
        x = x.narrow(-1, 0, 100)
    if x.dim() != 2:
        raise ValueError("two dimensions")
    if len(masks):
        x = x * masks[0]
    if DEBUG:
        print(x)
    if (x.shape[0] + 1) % 2 == 0:
        x = x - 1
    return x

# fx: x=f32[2, 8], xs=(f32[2], f32[2])
def of_loops(x, xs):
    for y in xs:
        if y.dim() == 1:
            continue
        x = x + y
    while True:
        x = x + 1
        if x.dim() == 2:
            break
        x = x + 2
    return x

# fx: x=f32[2, 8]
def fails(x, flag=False):
    y = x.sin()
    if flag:
        y = y + 1
    z = y @ y
    w = z.cos()
    return w

# fx: x=f32[2, 8]
def caught(x):
    try:
        y = x @ x
        y = y + 1
    except RuntimeError:
        y = x
    if x.shape[0] == 2: y = y + 1
    else: y = y - 1
    return y
"""


@pytest.fixture
def why(trace: TraceFixture):
    def of(name: str) -> list[str]:
        traced: Traced = trace(SOURCE, name)
        known = known_trace(traced.outcome)
        assert known is not None, traced.outcome
        return [
            f"{' '.join(traced.at(u.span).split())} · {why_unreached(u, traced.outcome, traced.source)}"
            for u in known.unreached
        ]

    return of


def test_a_branch_that_was_not_taken_says_what_its_condition_was_made_of(why):
    assert why("Net") == snapshot(
        [
            "x = x * 2 · branch not taken: `i == 7` is false",
            "x = x.tanh() · branch not taken: self.flash is True",
            "loss = (self.head(x) - targets).sum() · branch not taken: targets is None",
        ]
    )


def test_what_follows_a_return_says_which_one(why):
    assert why("left") == snapshot(["y = x * scale return y · not run: line 34 returns because scale is None"])


def test_loops_that_have_nothing_to_go_over_and_cases_of_another_value(why):
    assert why("empty") == snapshot(
        [
            "x = x + 1 · not run: `range(n)` is empty, n is 0",
            "n -= 1 · branch not taken: n is 0",
            "x = x * 3 · branch not taken: kind is 'a'",
        ]
    )


def test_sizes_and_lengths_are_told_and_checks_that_pass_are_not(why):
    assert why("of_sizes") == snapshot(
        [
            "x = x[0] · branch not taken: x.dim() is 2",
            "x = x.narrow(-1, 0, 100) · branch not taken: x.shape[-1] is 8",
            "x = x * masks[0] · branch not taken: len(masks) is 0",
            "print(x) · branch not taken: DEBUG is False",
            "x = x - 1 · branch not taken: x.shape[0] is 2",
        ]
    )


def test_what_a_loop_goes_past(why):
    assert why("of_loops") == snapshot(
        [
            "x = x + y · not run: line 75 continues the loop because y.dim() is 1",
            "x = x + 2 · not run: line 80 leaves the loop because x.dim() is 2",
        ]
    )


def test_what_follows_a_failure(why):
    assert why("fails") == snapshot(
        ["y = y + 1 · branch not taken: flag is False", "w = z.cos() return w · not run: line 89 fails"]
    )


def test_what_follows_an_error_that_was_caught_is_no_news(why):
    assert why("caught") == snapshot(["y = y - 1 · branch not taken: x.shape[0] is 2"])
