"""Simplify expressions of values: compute constants, keep indices symbolic, combine masks."""

from __future__ import annotations

import math

import sympy
import torch
from torch import fx

from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.ops import ADD, AND, COPY, ERF, FMA, MUL, NEG, NOT, ONE_PLUS_ERF, OR, SUB, WHERE, Op
from fx_lsp.codegen.ir.values import Comparison, Compute, Constant, Coordinate, Value
from fx_lsp.codegen.lower.builder import Builder


def simplify(b: Builder, op: Op, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None) -> Value:
    """Return the expression `op` of `args`, or an equal simpler value."""
    if op is COPY:
        return args[0]
    simpler = (
        _fold_numbers(b, op, args, dtype)
        or _fold_indices(b, op, args, dtype, node)
        or _fold_masks(op, args)
        or _fold_erf(b, op, args, dtype, node)
        or _factor_products(b, op, args, dtype, node)
    )
    if simpler is not None:
        return simpler
    if op is WHERE and isinstance(args[0], Compute) and args[0].op is NOT:
        args = (args[0].args[0], args[2], args[1])
    return b.compute(op, args, dtype, node)


def _fold_numbers(b: Builder, op: Op, args: tuple[Value, ...], dtype: torch.dtype) -> Value | None:
    numbers = [a.value for a in args if isinstance(a, Constant)]
    if len(numbers) == len(args) and op.number is not None and op.folds and dtype is not torch.bool:
        try:
            return b.constant(op.number(*numbers), dtype)
        except ZeroDivisionError:
            return b.constant(math.nan, dtype)
    if op.identity is None:
        return None
    left, right = args
    if isinstance(right, Constant) and right.value == op.identity and left.dtype == dtype:
        return left
    if op.commutes and isinstance(left, Constant) and left.value == op.identity and right.dtype == dtype:
        return right
    return None


def _fold_indices(
    b: Builder, op: Op, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    indices = [as_index(a) for a in args]
    if any(i is None for i in indices) or not any(isinstance(a, Coordinate) for a in args):
        return None
    if op.index is not None and dtype is torch.int64:
        return b.coordinate(sympy.expand(op.index(*indices)), node)
    if op.sign is not None:
        left, right = indices
        return b.test((Comparison(left, op.sign, right),))  # pyright: ignore[reportArgumentType]
    return None


def as_index(value: Value) -> Index | None:
    """Return an integer value as an index, or None for any other value."""
    if isinstance(value, Coordinate):
        return value.index
    if isinstance(value, Constant) and not value.dtype.is_floating_point and value.dtype is not torch.bool:
        return sympy.Integer(value.value)
    return None


def _fold_masks(op: Op, args: tuple[Value, ...]) -> Value | None:
    if op is NOT:
        inner = args[0]
        return inner.args[0] if isinstance(inner, Compute) and inner.op is NOT else None
    if op not in (AND, OR):
        return None
    for mask, other in (args, args[::-1]):
        if isinstance(mask, Constant) and mask.dtype is torch.bool:
            return other if mask.value == (op is AND) else mask
    return None


def _fold_erf(b: Builder, op: Op, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None) -> Value | None:
    """Return 1 + erf(x), as in gelu, as one operation: at float32 precision it needs fewer instructions than erf."""
    if op is not ADD or dtype is not torch.float32:
        return None
    for one, erf in (args, args[::-1]):
        if isinstance(one, Constant) and one.value == 1 and isinstance(erf, Compute) and erf.op is ERF:
            return b.compute(ONE_PLUS_ERF, erf.args, dtype, node)
    return None


def _factor_products(
    b: Builder, op: Op, args: tuple[Value, ...], dtype: torch.dtype, node: fx.Node | None
) -> Value | None:
    """Return a difference of products with a common factor as one product.

    The backward of softmax has one: y * x - x * s is x * (y - s).
    """
    if not dtype.is_floating_point:
        return None
    if op is FMA and isinstance(args[0], Compute) and args[0].op is NEG:
        subtracted, minuend = args[0].args + args[1:2], args[2]
    elif op is SUB and isinstance(args[1], Compute) and args[1].op is MUL:
        subtracted, minuend = args[1].args, args[0]
    else:
        return None
    if not (isinstance(minuend, Compute) and minuend.op is MUL):
        return None
    for x, less in (subtracted, subtracted[::-1]):
        for same, y in (minuend.args, minuend.args[::-1]):
            if same is x and not isinstance(x, Constant):
                return b.compute(MUL, (x, b.compute(SUB, (y, less), dtype, minuend.node)), dtype, node)
    return None


def scale_value(b: Builder, value: Value, factor: float) -> Value:
    """Return a value times a number. The number is multiplied into constants that the value contains, if it can be."""
    if isinstance(value, Constant):
        return b.constant(value.value * factor, value.dtype)
    if isinstance(value, Compute) and value.op is WHERE:
        args = (value.args[0], scale_value(b, value.args[1], factor), scale_value(b, value.args[2], factor))
        return b.compute(value.op, args, value.dtype, value.node)
    rest, share = split_factor(value)
    return simplify(b, MUL, (rest, b.constant(share * factor, value.dtype)), value.dtype, value.node)


def split_factor(value: Value) -> tuple[Value, float]:
    """Return a value without its constant factor, and the factor, 1.0 if it has none."""
    if isinstance(value, Compute) and value.op is MUL:
        for rest, number in (value.args, value.args[::-1]):
            if isinstance(number, Constant) and rest.dtype == value.dtype:
                return rest, float(number.value)
    return value, 1.0
