"""Rows of the table of operations: what they say of numbers, indices and bools is what their text computes."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import sympy
import torch

from fx_lsp.codegen.ir import ops
from fx_lsp.codegen.ir.ops import ADD, INVERT, MUL, WHERE, Op, cast, op

ROWS = [row for row in vars(ops).values() if isinstance(row, Op)]
NUMBERS = (-2.5, 0.5, 3.0)
TRITON = SimpleNamespace(
    abs=abs,
    exp=math.exp,
    sigmoid=lambda a: 1 / (1 + math.exp(-a)),
    maximum=lambda a, b, **_: max(a, b),
    minimum=lambda a, b, **_: min(a, b),
    where=lambda a, b, c: b if a else c,
    PropagateNan=SimpleNamespace(ALL=None),
)


def computed(row: Op, *values: Any) -> Any:
    """What the text of a row computes of values."""
    functions = {"tl": TRITON, "relu": lambda a: max(a, 0.0), "not_": lambda a: not a}
    return eval(row.text, functions, dict(zip("abc", values, strict=False)))


def arity(row: Op) -> int:
    return len({name for name in compile(row.text, "", "eval").co_names if name in ("a", "b", "c")})


@pytest.mark.parametrize("row", [r for r in ROWS if r.number is not None], ids=lambda row: row.text)
def test_of_numbers(row: Op) -> None:
    assert row.number is not None
    for values in product(NUMBERS, repeat=arity(row)):
        assert row.number(*values) == computed(row, *values)


@pytest.mark.parametrize("row", [r for r in ROWS if r.index is not None], ids=lambda row: row.text)
def test_of_indices(row: Op) -> None:
    assert row.index is not None
    symbols = sympy.symbols("i j")[: arity(row)]
    assert sympy.expand(row.index(*symbols) - computed(row, *symbols)) == 0


@pytest.mark.parametrize("row", [r for r in ROWS if r.sign is not None], ids=lambda row: row.text)
def test_a_comparison_has_its_sign(row: Op) -> None:
    assert row.text == f"a {row.sign} b"


@pytest.mark.parametrize("row", [r for r in ROWS if r.identity is not None], ids=lambda row: row.text)
def test_what_changes_nothing(row: Op) -> None:
    for value in NUMBERS:
        assert computed(row, value, row.identity) == value
        assert (computed(row, row.identity, value) == value) == row.commutes


@pytest.mark.parametrize("row", [ADD, MUL], ids=lambda row: row.text)
def test_of_bools(row: Op) -> None:
    assert row.of_bools is not None
    for a, b in product((False, True), repeat=2):
        assert computed(row.of_bools, a, b) == bool(computed(row, a, b))


def test_the_inverse_of_a_bool_is_no_inverse_of_its_bits() -> None:
    assert INVERT.of_bools is not None
    assert [computed(INVERT.of_bools, a) for a in (False, True)] == [True, False]


@pytest.mark.parametrize("row", [r for r in ROWS if r.is_exact], ids=lambda row: row.text)
def test_what_is_exact_gives_an_argument_or_its_negative_or_zero(row: Op) -> None:
    for values in product(NUMBERS, repeat=arity(row)):
        chosen = values[1:] if row is WHERE else values
        assert computed(row, *values) in {0.0, *chosen, *(-v for v in chosen)}


def test_there_is_one_operation_for_each_text() -> None:
    assert op("a + b") is ADD
    assert op("erfcx(a)") is op("erfcx(a)") is not op("i0(a)")
    assert cast(torch.float32) is cast(torch.float32) is not cast(torch.float16, torch.float32)
    assert cast(torch.float16, torch.float32).text == "a.to(tl.float16).to(tl.float32)"
    assert len({row.text for row in ROWS}) == len(ROWS)
