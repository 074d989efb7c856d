"""Lower reductions over dimensions, and scans."""

from __future__ import annotations

import math
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.graph.query import (
    REDUCTION_KINDS,
    is_reduction,
    is_unrolled,
    reduced_dimensions,
    scanned_dimension,
    shape_of,
)
from fx_lsp.codegen.ir.index import ONE, ZERO, Coords, Index, contiguous_strides, count, linear
from fx_lsp.codegen.ir.lowerings import NotFusible, args_of, lowering, operation
from fx_lsp.codegen.ir.ops import ADD, DIV, FMAX, INT_POW, MUL, POW, SQUARE, SUB
from fx_lsp.codegen.ir.values import Guard, Value, compute_dtype
from fx_lsp.codegen.lower.builder import Builder


@lowering(*REDUCTION_KINDS)
def reduce(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a result of a reduction. Raises NotFusible if it is needed at elements that the kernel does not
    run over.
    """
    if count(shape_of(args_of(node)[0])) == 0:
        return _empty_reduction(b, node, part)
    if not is_reduction(node):
        return _reduction_of_one(b, node, coords, guard, part)
    return _unrolled_sum(b, node, coords, guard) if is_unrolled(node) else _reduce(b, node, coords, guard, part)


def _reduce(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Return a result of a reduction over axes of the kernel."""
    source: Any = args_of(node)[0]
    shape, dims = shape_of(source), reduced_dimensions(node)
    keeps = len(shape_of(node, 0)) == len(shape)
    inside = b.space.coordinates(b.domain.position(), shape)
    over = _reduced_axes(b, node, inside, dims)
    expected = tuple(ZERO if i in dims else c for i, c in enumerate(inside) if keeps or i not in dims)
    if guard or expected != coords:
        raise NotFusible(node, "is needed at elements other than the current ones")
    name, kind = operation(node), REDUCTION_KINDS[operation(node).rpartition(".")[0]]
    dtype = compute_dtype(_result_dtype(node, part))
    if kind in ("any", "all"):
        return _truth_reduction(b, node, inside, over, kind)
    if kind in ("argmax", "argmin"):
        return _arg_reduction(b, node, inside, over, kind)
    value = b.operand(source, inside, (), dtype)
    total = count(shape[d] for d in dims)
    if not value.axes & set(over):
        return _constant_reduction(b, node, value, total, part)
    times = count(b.space.sizes[a] for a in over if a in b.invariant_axes)
    over = tuple(a for a in over if a not in b.invariant_axes)
    number = b.convert(b.coordinate(total / times, node), dtype)
    if kind == "var_mean":
        mean, squares = _mean_and_squares(b, node, value, over, number)
        if part == 1:
            return mean
        squares = _repeat(b, node, squares, times, "sum")
        return b.compute(DIV, (squares, _degrees_of_freedom(b, node, total, dtype)), dtype, node)
    reduced = b.reduction(kind, (value,), over, node)
    if name.startswith("aten.mean"):
        return b.compute(DIV, (reduced, number), dtype, node)
    return _repeat(b, node, reduced, times, kind)


def _unrolled_sum(b: Builder, node: fx.Node, coords: Coords, guard: Guard) -> Value:
    """Return a sum or a mean along the last dimension as the sum of each of its elements."""
    source: Any = args_of(node)[0]
    *outer, size = shape_of(source)
    dtype = compute_dtype(_result_dtype(node, 0))
    places = ((*coords[: len(outer)], sympy.Integer(place)) for place in range(int(size)))
    total, *others = (b.operand(source, place, guard, dtype) for place in places)
    for other in others:
        total = b.compute(ADD, (total, other), dtype, node)
    is_mean = operation(node).startswith("aten.mean")
    return b.compute(DIV, (total, b.constant(float(size), dtype)), dtype, node) if is_mean else total


def _reduction_of_one(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Return a reduction over dimensions of size 1."""
    source: Any = args_of(node)[0]
    rank, dims = len(shape_of(source)), reduced_dimensions(node)
    keeps = len(shape_of(node, 0)) == rank
    supply = iter(coords)
    at = tuple(ZERO if i in dims and not keeps else next(supply) for i in range(rank))
    return _constant_reduction(b, node, b.operand(source, at, guard, _result_dtype(node, part)), ONE, part)


def _truth_reduction(b: Builder, node: fx.Node, inside: Coords, over: tuple[sympy.Symbol, ...], kind: str) -> Value:
    """Return whether any or all of some elements are true."""
    truth = b.operand(args_of(node)[0], inside, (), torch.bool)
    if not truth.axes & set(over):
        return truth
    number = b.convert(truth, torch.int32)
    reduced = b.reduction("max" if kind == "any" else "min", (number,), over, node)
    return b.convert(reduced, torch.bool)


def _mean_and_squares(
    b: Builder, node: fx.Node, value: Value, over: tuple[sympy.Symbol, ...], number: Value
) -> tuple[Value, Value]:
    """Return the mean of a value and the sum of its squared deviations.

    They take two passes if the elements are held at once, otherwise Welford's algorithm.
    """
    dtype = value.dtype
    if not b.whole:
        return b.reduction("var_mean", (value,), over, node, 1), b.reduction("var_mean", (value,), over, node, 0)
    mean = b.compute(DIV, (b.reduction("sum", (value,), over, node), number), dtype, node)
    centred = b.compute(SUB, (value, mean), dtype, node)
    squares = b.reduction("sum", (b.compute(SQUARE, (centred,), dtype, node),), over, node)
    return mean, squares


def _result_dtype(node: fx.Node, part: int) -> torch.dtype:
    result = node.meta["val"]
    return (result[part] if isinstance(result, (tuple, list)) else result).dtype


def _degrees_of_freedom(b: Builder, node: fx.Node, total: Index, dtype: torch.dtype) -> Value:
    """Return the divisor of squared deviations."""
    stated: Any = node.kwargs.get("correction", 1 if operation(node).startswith("aten.var") else 0)
    correction = 1 if stated is None else stated
    if int(correction) == correction:
        return b.convert(b.coordinate(sympy.Max(ZERO, total - int(correction)), node), dtype)
    if total.is_Integer:
        return b.constant(max(0.0, int(total) - correction), dtype)
    less = b.compute(SUB, (b.convert(b.coordinate(total, node), dtype), b.constant(correction, dtype)), dtype, node)
    return b.compute(FMAX, (less, b.constant(0.0, dtype)), dtype, node)


def _empty_reduction(b: Builder, node: fx.Node, part: int) -> Value:
    """Return a reduction over no elements."""
    kind, dtype = REDUCTION_KINDS[operation(node).rpartition(".")[0]], _result_dtype(node, part)
    if kind == "var_mean" or operation(node).startswith("aten.mean"):
        return b.constant(math.nan, compute_dtype(dtype))
    return b.constant(int(kind in ("prod", "all")), compute_dtype(dtype))


def _constant_reduction(b: Builder, node: fx.Node, value: Value, total: Index, part: int) -> Value:
    """Return a reduction of elements that are all equal."""
    kind, dtype = REDUCTION_KINDS[operation(node).rpartition(".")[0]], value.dtype
    if kind in ("argmax", "argmin"):
        return b.constant(0, torch.int64)
    if kind == "var_mean" and part == 0:
        zero = b.compute(SUB, (value, value), dtype, node)
        return b.compute(DIV, (zero, _degrees_of_freedom(b, node, total, dtype)), dtype, node)
    return value if operation(node).startswith("aten.mean") else _repeat(b, node, value, total, kind)


def _repeat(b: Builder, node: fx.Node, value: Value, times: Index, kind: str) -> Value:
    """Return the sum or product of a value repeated `times` times; other reductions leave the value as it is."""
    if times == 1 or kind not in ("sum", "prod"):
        return value
    dtype = value.dtype
    number = b.convert(b.coordinate(times, node), dtype)
    times_itself = MUL if kind == "sum" else POW if dtype.is_floating_point else INT_POW
    return b.compute(times_itself, (value, number), dtype, node)


def _reduced_axes(b: Builder, node: fx.Node, inside: Coords, dims: tuple[int, ...]) -> tuple[sympy.Symbol, ...]:
    """Return the axes of the kernel that a reduction runs over."""
    over = frozenset[Any]().union(*(inside[d].free_symbols for d in dims))
    remaining = frozenset[Any]().union(*(c.free_symbols for i, c in enumerate(inside) if i not in dims))
    sizes = b.space.sizes
    if over & remaining & sizes.keys():
        raise NotFusible(node, "reduces a part of the elements that the kernel iterates over")
    return tuple(a for a in b.domain.axes if a in over)


def _arg_reduction(b: Builder, node: fx.Node, inside: Coords, over: tuple[sympy.Symbol, ...], kind: str) -> Value:
    source: Any = args_of(node)[0]
    shape, dims = shape_of(source), reduced_dimensions(node)
    value = b.operand(source, inside, (), source.meta["val"].dtype)
    if not value.axes & set(over):
        return b.constant(0, torch.int64)
    at: Index = linear([inside[d] for d in dims], contiguous_strides([shape[d] for d in dims]))
    return b.reduction(kind, (value, b.coordinate(at, node)), over, node, 1)


@lowering("aten.cumsum", "aten.cumprod")
def scan(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a running sum or product along one dimension."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    dtype = node.meta["val"].dtype
    if not shape:
        return b.operand(source, coords, guard, dtype)
    inside = b.space.coordinates(b.domain.position(), shape)
    over = _reduced_axes(b, node, inside, (scanned_dimension(node),))
    if guard or inside != coords:
        raise NotFusible(node, "is needed at elements other than the current ones")
    kind = operation(node).split(".")[1]
    if not over:
        return b.operand(source, inside, (), dtype)
    return b.scan(kind, b.operand(source, inside, (), dtype), over, node)
