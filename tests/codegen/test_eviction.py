"""What is read again is asked to stay in the cache; what is read once is not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from interpreted import checked, rotated


def kept(function: Callable[..., Any], *sizes: tuple[int, ...]) -> dict[str, list[bool]]:
    """Whether each load of the forward kernel is kept, by the parameter that it loads from."""
    inputs = [torch.randn(*s) for s in sizes]
    text = checked(function, inputs).text
    loads = re.findall(r"tl\.load\(\s*arg(\d+)_1_ptr(.*?)\)(?:\.to\(\w+\.\w+\))?\n", text, re.DOTALL)
    found: dict[str, list[bool]] = {name: [] for name in inspect.signature(function).parameters}
    for number, rest in loads:
        found[list(found)[int(number)]].append('eviction_policy="evict_last"' in rest)
    return found


def test_a_row_that_all_programs_read():
    assert kept(lambda x, bias: (x * 2 + bias).relu(), (500, 64), (64,)) == {"x": [False], "bias": [True]}


def test_a_column_that_the_blocks_of_a_row_read():
    def scaled(x, scale):
        return (x * scale).tanh()

    assert kept(scaled, (6, 5000), (6, 1)) == {"x": [False], "scale": [True]}
    assert kept(scaled, (500, 64), (500, 1)) == {"x": [False], "scale": [False]}


def test_what_the_only_program_reads():
    assert kept(lambda x, bias: torch.softmax(x + bias, -1), (2, 16), (16,)) == {"x": [False], "bias": [False]}


def test_halves_that_change_places():
    assert kept(lambda x, sin: rotated(x) * sin, (3, 600, 64), (600, 64)) == {"x": [False, False], "sin": [True]}
    assert kept(lambda x, sin: x + rotated(x) * sin, (3, 600, 64), (600, 64)) == {
        "x": [False, True, True],
        "sin": [True],
    }


def test_steps_of_a_loop():
    def summed(x):
        y = torch.zeros_like(x[0])
        for step in x:
            y = 0.5 * y + step
        return y

    assert set(kept(summed, (8, 30, 16))["x"]) == {False}
