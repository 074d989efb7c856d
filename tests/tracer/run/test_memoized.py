"""Functions that remember what they gave: each trace computes it anew, in its own graph."""

from __future__ import annotations

import pytest
from conftest import TraceFixture

SOURCE = """
import functools
from functools import lru_cache

import torch

@lru_cache
def causal(n):
    return torch.ones(n, n, dtype=torch.bool).tril()

# fx: x=f32[4, 8]
def plain(x):
    return (x @ x.T).masked_fill(~causal(len(x)), 0)

@functools.lru_cache(maxsize=None)
def table(n):
    return torch.arange(n) * 2.0

# fx: x=f32[4, 8]
def with_arguments(x):
    return x + table(x.shape[-1])

class Layer(torch.nn.Module):
    @functools.cache
    def window(self, n):
        return torch.hann_window(n)

    def forward(self, x):
        return x * self.window(x.shape[-1])

# fx: x=f32[4, 8]
def made_inside(x):
    @functools.cache
    def scale(n):
        return torch.full((n,), 2.0)
    return x * scale(8) + scale(8)
"""


@pytest.mark.parametrize(
    ("name", "made"),
    [("plain", "tril"), ("with_arguments", "arange"), ("Layer", "hann_window"), ("made_inside", "full")],
)
def test_it_is_in_the_graph(trace: TraceFixture, name: str, made: str) -> None:
    nodes = trace(SOURCE, name).stage("forward").nodes
    assert [node.target.split(".")[1] for node in nodes if node.op == "call_function"].count(made) == 1
