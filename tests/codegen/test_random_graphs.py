"""Graphs that nobody chose: operations put together by Hypothesis, and inputs that PyTorch tests with."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpreted import wrong
from parameters import some

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

Step = tuple[str, int, int, int]
"""An operation, the numbers of its operands among what there is, and a number for what else there is to choose."""

SINGLE: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sin": lambda x, _: x.sin(),
    "sigmoid": lambda x, _: x.sigmoid(),
    "square": lambda x, _: (x * x).cos(),
    "scaled": lambda x, n: x * 0.5 + n,
    "mean": lambda x, n: x.mean(n % x.ndim, keepdim=True),
    "sum": lambda x, n: x.sum(n % x.ndim) / x.shape[n % x.ndim] if x.ndim > 1 else x.sum(0, keepdim=True).sin(),
    "most": lambda x, n: x.amax(n % x.ndim, keepdim=True),
    "variance": lambda x, n: x.var(n % x.ndim, correction=0, keepdim=True),
    "softmax": lambda x, n: x.softmax(n % x.ndim),
    "running": lambda x, n: x.cumsum(n % x.ndim).sin(),
    "transposed": lambda x, n: x.transpose(0, n % x.ndim),
    "flipped": lambda x, n: x.flip(n % x.ndim),
    "flat": lambda x, _: x.flatten(),
    "slice": lambda x, n: x.narrow(n % x.ndim, 0, (x.shape[n % x.ndim] + 1) // 2),
    "every other": lambda x, _: x[..., ::2],
    "padded": lambda x, n: torch.nn.functional.pad(x, (n % 3, 1), value=0.5),
    "widened": lambda x, n: (x[None].expand(3, *x.shape) * 0.5).mean(n % (x.ndim + 1)),
    "deeper": lambda x, n: x.unsqueeze(n % (x.ndim + 1)) if x.ndim < 4 else x.neg(),
}

DOUBLE: dict[str, Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]] = {
    "add": lambda x, y, _: x + y,
    "multiply": lambda x, y, _: (x * y).sin(),
    "divide": lambda x, y, _: x / (1.5 + y.cos()),
    "choose": lambda x, y, _: torch.where(y.detach() > 0.1, x, y),
    "greater": lambda x, y, _: torch.maximum(x, y + 0.3),
}


def computed(steps: list[Step], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What a list of steps makes of its inputs: the last two results."""
    found = list(inputs)
    for name, left, right, number in steps:
        x, y = found[left % len(found)], found[right % len(found)]
        if name in SINGLE:
            found.append(SINGLE[name](x, number))
        elif name == "joined":
            found.append(torch.cat([x, x.cos()], number % x.ndim))
        else:
            found.append(DOUBLE[name](x, y if fits(x, y) else y.mean(), number))
    return tuple(found[-2:])


def fits(x: torch.Tensor, y: torch.Tensor) -> bool:
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


shapes = st.lists(st.sampled_from((1, 2, 3, 7, 33)), min_size=1, max_size=3)
steps = st.tuples(st.sampled_from([*SINGLE, *DOUBLE, "joined"]), *[st.integers(0, 8)] * 3)


def test_operations_put_together() -> None:
    put_together(6)


@pytest.mark.release
def test_more_operations_put_together() -> None:
    put_together(30)


def put_together(examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(shapes, min_size=1, max_size=3), st.lists(steps, min_size=2, max_size=6), st.integers(0, 99))
    def compare(sizes: list[list[int]], chosen: list[Step], seed: int) -> None:
        torch.manual_seed(seed)
        inputs = [torch.randn(s).requires_grad_() for s in sizes]
        assert wrong(lambda *tensors: computed(chosen, *tensors), inputs) == []

    compare()


def some_operations() -> list[Any]:
    pytest.importorskip("expecttest", reason="torch.testing imports it")
    import opinfo

    return random.Random(7).sample(opinfo.operations(), 25)


@pytest.mark.parametrize("number", some(range(25), (3, 9, 14, 20)))
def test_inputs_of_pytorch_itself(number: int) -> None:
    op = some_operations()[number]
    import opinfo

    found = opinfo.tried(op)
    assert found.verdict != "wrong", f"{found.name}: {found.detail}"
