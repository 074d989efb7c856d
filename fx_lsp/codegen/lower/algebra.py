"""Expressions of values, without what changes nothing: numbers are computed, indices stay indices, masks stay short."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.values import Comparison, Compute, Constant, Coordinate, Value
from fx_lsp.codegen.lower.builder import Builder

_NUMBERS: dict[str, Callable[..., Any]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b if b else math.nan,
    "-a": lambda a: -a,
}
_INDICES: dict[str, Callable[..., Index]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "-a": lambda a: -a,
}
_COMPARISONS = {f"a {sign} b": sign for sign in ("<", "<=", ">", ">=", "==", "!=")}
_IDENTITIES = {"a + b": 0, "a - b": 0, "a * b": 1, "a / b": 1}


def simplify(b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None) -> Value:
    """Return an expression of other values: `template` of `args`, or something simpler that is the same."""
    if template == "a":
        return args[0]
    simpler = (
        _fold_numbers(b, template, args, dtype)
        or _fold_indices(b, template, args, dtype, node)
        or _fold_masks(template, args)
        or _fold_erf(b, template, args, dtype, node)
        or _factor_products(b, template, args, dtype, node)
    )
    if simpler is not None:
        return simpler
    if template == "tl.where(a, b, c)" and isinstance(args[0], Compute) and args[0].template == "not_(a)":
        args = (args[0].args[0], args[2], args[1])
    return b.compute(template, args, dtype, node)


def _fold_numbers(b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype) -> Value | None:
    numbers = [a.value for a in args if isinstance(a, Constant)]
    if len(numbers) == len(args) and template in _NUMBERS and dtype is not torch.bool:
        return b.constant(_NUMBERS[template](*numbers), dtype)
    if template not in _IDENTITIES:
        return None
    left, right = args
    if isinstance(right, Constant) and right.value == _IDENTITIES[template] and left.dtype == dtype:
        return left
    commutes = template in ("a + b", "a * b")
    if commutes and isinstance(left, Constant) and left.value == _IDENTITIES[template] and right.dtype == dtype:
        return right
    return None


def _fold_indices(
    b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    indices = [as_index(a) for a in args]
    if any(i is None for i in indices) or not any(isinstance(a, Coordinate) for a in args):
        return None
    if template in _INDICES and dtype is torch.int64:
        return b.coordinate(sympy.expand(_INDICES[template](*indices)), node)
    if template in _COMPARISONS:
        left, right = indices
        return b.test((Comparison(left, _COMPARISONS[template], right),))  # pyright: ignore[reportArgumentType]
    return None


def as_index(value: Value) -> Index | None:
    """Return a whole number as an index, or None for anything else."""
    if isinstance(value, Coordinate):
        return value.index
    if isinstance(value, Constant) and not value.dtype.is_floating_point and value.dtype is not torch.bool:
        return sympy.Integer(value.value)
    return None


def _fold_masks(template: str, args: tuple[Value, ...]) -> Value | None:
    if template == "not_(a)":
        inner = args[0]
        return inner.args[0] if isinstance(inner, Compute) and inner.template == "not_(a)" else None
    if template not in ("a & b", "a | b"):
        return None
    for mask, other in (args, args[::-1]):
        if isinstance(mask, Constant) and mask.dtype is torch.bool:
            return other if mask.value == (template == "a & b") else mask
    return None


def _fold_erf(
    b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    """Return 1 + erf, as in gelu: to no more than float32's precision of 1 it needs fewer instructions than erf
    does."""
    if template != "a + b" or dtype is not torch.float32:
        return None
    for one, erf in (args, args[::-1]):
        if isinstance(one, Constant) and one.value == 1 and isinstance(erf, Compute) and erf.template == "tl.erf(a)":
            return b.compute("one_plus_erf(a)", erf.args, dtype, node)
    return None


def _factor_products(
    b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    """Return a difference of products that share a factor, as in the backward of softmax: y * x - x * s is x * (y -
    s)."""
    if not dtype.is_floating_point:
        return None
    if template == "a * b + c" and isinstance(args[0], Compute) and args[0].template == "-a":
        subtracted, minuend = args[0].args + args[1:2], args[2]
    elif template == "a - b" and isinstance(args[1], Compute) and args[1].template == "a * b":
        subtracted, minuend = args[1].args, args[0]
    else:
        return None
    if not (isinstance(minuend, Compute) and minuend.template == "a * b"):
        return None
    for x, less in (subtracted, subtracted[::-1]):
        for same, y in (minuend.args, minuend.args[::-1]):
            if same is x and not isinstance(x, Constant):
                return b.compute("a * b", (x, b.compute("a - b", (y, less), dtype, minuend.node)), dtype, node)
    return None


def scale_value(b: Builder, value: Value, factor: float) -> Value:
    """Return a value times a number, which goes into the numbers that the value is made with."""
    if isinstance(value, Constant):
        return b.constant(value.value * factor, value.dtype)
    if isinstance(value, Compute) and value.template == "tl.where(a, b, c)":
        args = (value.args[0], scale_value(b, value.args[1], factor), scale_value(b, value.args[2], factor))
        return b.compute(value.template, args, value.dtype, value.node)
    rest, share = split_factor(value)
    return simplify(b, "a * b", (rest, b.constant(share * factor, value.dtype)), value.dtype, value.node)


def split_factor(value: Value) -> tuple[Value, float]:
    """Return a value without the number that it is multiplied with, and that number."""
    if isinstance(value, Compute) and value.template == "a * b":
        for rest, number in (value.args, value.args[::-1]):
            if isinstance(number, Constant) and rest.dtype == value.dtype:
                return rest, float(number.value)
    return value, 1.0
