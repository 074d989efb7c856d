"""Expressions of values, without what changes nothing: numbers are computed, indices stay indices, masks stay short."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.values import Compute, Condition, Constant, Coordinate, Value
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
_SIGNS = {f"a {sign} b": sign for sign in ("<", "<=", ">", ">=", "==", "!=")}
_NEUTRAL = {"a + b": 0, "a - b": 0, "a * b": 1, "a / b": 1}


def simplified(b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None) -> Value:
    """An expression of other values: `template` of `args`, or something simpler that is the same."""
    if template == "a":
        return args[0]
    found = (
        _of_numbers(b, template, args, dtype)
        or _of_indices(b, template, args, dtype, node)
        or _of_masks(template, args)
        or _of_erf(b, template, args, dtype, node)
        or _of_products(b, template, args, dtype, node)
    )
    if found is not None:
        return found
    if template == "tl.where(a, b, c)" and isinstance(args[0], Compute) and args[0].template == "not_(a)":
        args = (args[0].args[0], args[2], args[1])
    return b.compute(template, args, dtype, node)


def _of_numbers(b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype) -> Value | None:
    numbers = [a.value for a in args if isinstance(a, Constant)]
    if len(numbers) == len(args) and template in _NUMBERS and dtype is not torch.bool:
        return b.constant(_NUMBERS[template](*numbers), dtype)
    if template not in _NEUTRAL:
        return None
    left, right = args
    if isinstance(right, Constant) and right.value == _NEUTRAL[template] and left.dtype == dtype:
        return left
    commutes = template in ("a + b", "a * b")
    if commutes and isinstance(left, Constant) and left.value == _NEUTRAL[template] and right.dtype == dtype:
        return right
    return None


def _of_indices(
    b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    indices = [index_of(a) for a in args]
    if any(i is None for i in indices) or not any(isinstance(a, Coordinate) for a in args):
        return None
    if template in _INDICES and dtype is torch.int64:
        return b.coordinate(sympy.expand(_INDICES[template](*indices)), node)
    if template in _SIGNS:
        left, right = indices
        return b.test((Condition(left, _SIGNS[template], right),))  # pyright: ignore[reportArgumentType]
    return None


def index_of(value: Value) -> Index | None:
    """A whole number as an index, or None for anything else."""
    if isinstance(value, Coordinate):
        return value.index
    if isinstance(value, Constant) and not value.dtype.is_floating_point and value.dtype is not torch.bool:
        return sympy.Integer(value.value)
    return None


def _of_masks(template: str, args: tuple[Value, ...]) -> Value | None:
    if template == "not_(a)":
        inner = args[0]
        return inner.args[0] if isinstance(inner, Compute) and inner.template == "not_(a)" else None
    if template not in ("a & b", "a | b"):
        return None
    for mask, other in (args, args[::-1]):
        if isinstance(mask, Constant) and mask.dtype is torch.bool:
            return other if mask.value == (template == "a & b") else mask
    return None


def _of_erf(
    b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    """1 + erf, as in gelu: to no more than float32's precision of 1 it needs fewer instructions than erf does."""
    if template != "a + b" or dtype is not torch.float32:
        return None
    for one, erf in (args, args[::-1]):
        if isinstance(one, Constant) and one.value == 1 and isinstance(erf, Compute) and erf.template == "tl.erf(a)":
            return b.compute("one_plus_erf(a)", erf.args, dtype, node)
    return None


def _of_products(
    b: Builder, template: str, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    """A difference of products that share a factor, as in the backward of softmax: y * x - x * s is x * (y - s)."""
    if not dtype.is_floating_point:
        return None
    if template == "a * b + c" and isinstance(args[0], Compute) and args[0].template == "-a":
        taken, of = args[0].args + args[1:2], args[2]
    elif template == "a - b" and isinstance(args[1], Compute) and args[1].template == "a * b":
        taken, of = args[1].args, args[0]
    else:
        return None
    if not (isinstance(of, Compute) and of.template == "a * b"):
        return None
    for x, less in (taken, taken[::-1]):
        for same, y in (of.args, of.args[::-1]):
            if same is x and not isinstance(x, Constant):
                return b.compute("a * b", (x, b.compute("a - b", (y, less), dtype, of.node)), dtype, node)
    return None


def scaled(b: Builder, value: Value, factor: float) -> Value:
    """A value times a number, which goes into the numbers that the value is made with."""
    if isinstance(value, Constant):
        return b.constant(value.value * factor, value.dtype)
    if isinstance(value, Compute) and value.template == "tl.where(a, b, c)":
        args = (value.args[0], scaled(b, value.args[1], factor), scaled(b, value.args[2], factor))
        return b.compute(value.template, args, value.dtype, value.node)
    rest, share = unscaled(value)
    return simplified(b, "a * b", (rest, b.constant(share * factor, value.dtype)), value.dtype, value.node)


def unscaled(value: Value) -> tuple[Value, float]:
    """A value without the number that it is multiplied with, and that number."""
    if isinstance(value, Compute) and value.template == "a * b":
        for rest, number in (value.args, value.args[::-1]):
            if isinstance(number, Constant) and rest.dtype == value.dtype:
                return rest, float(number.value)
    return value, 1.0
