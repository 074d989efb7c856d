"""Reductions over dimensions, and running ones."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.index import ZERO, Coords, Index, count, expression
from fx_lsp.codegen.lowerings.views import argument, dimension
from fx_lsp.codegen.pull import Builder, Cut, shape_of
from fx_lsp.codegen.registry import args_of, lowering, operation
from fx_lsp.codegen.values import Guard, Value, compute_dtype

_KINDS = {
    "aten.sum": "sum",
    "aten.mean": "sum",
    "aten.amax": "max",
    "aten.amin": "min",
    "aten.prod": "prod",
    "aten.any": "any",
    "aten.all": "all",
    "prims.sum": "sum",
    "prims.amax": "max",
    "prims.amin": "min",
    "prims.prod": "prod",
    "aten.argmax": "argmax",
    "aten.argmin": "argmin",
    "aten.var_mean": "var_mean",
    "aten.var": "var_mean",
    "prims.var": "var_mean",
}


def is_reduction(node: fx.Node) -> bool:
    """Whether a node reduces dimensions."""
    return operation(node).rpartition(".")[0] in _KINDS


def reduced_dimensions(node: fx.Node) -> tuple[int, ...]:
    """The dimensions that a reduction reduces, in order."""
    source: Any = args_of(node)[0]
    rank = len(shape_of(source))
    dims = argument(node, 1, "dim")
    if isinstance(dims, bool) or dims is None or dims == [] or isinstance(dims, torch.dtype):
        return tuple(range(rank))
    return tuple(sorted({dimension(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}))


@lowering(*_KINDS)
def reduce(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A result of a reduction. Raises Cut where it is needed for other elements than those the kernel runs over."""
    source: Any = args_of(node)[0]
    shape, dims = shape_of(source), reduced_dimensions(node)
    inside = b.space.coordinates(b.domain.position(), shape)
    over = _axes(b, node, inside, dims)
    keeps = len(shape_of(node, 0)) == len(shape)
    expected = tuple(ZERO if i in dims else c for i, c in enumerate(inside) if keeps or i not in dims)
    if guard or expected != coords:
        raise Cut(node, "is needed for other elements than those that are at hand")
    name, kind = operation(node), _KINDS[operation(node).rpartition(".")[0]]
    result = node.meta["val"][part] if isinstance(node.meta["val"], (tuple, list)) else node.meta["val"]
    dtype = compute_dtype(result.dtype)
    if kind in ("any", "all"):
        truth = b.operand(source, inside, (), torch.bool)
        if not truth.axes & set(over):
            return truth
        number = b.convert(truth, torch.int32)
        found = b.reduction("max" if kind == "any" else "min", (number,), over, node, torch.int32, 0)
        return b.convert(found, torch.bool)
    if kind in ("argmax", "argmin"):
        return _arg(b, node, source, inside, dims, over, kind)
    value = b.operand(source, inside, (), result.dtype)
    total = count(shape[d] for d in dims)
    if not value.axes & set(over):
        return _of_one_value(b, node, kind if not name.startswith("aten.mean") else "max", value, total, part)
    if kind == "var_mean":
        number = b.convert(b.coordinate(total, node), dtype)
        if b.whole:
            mean = b.compute("a / b", (b.reduction("sum", (value,), over, node, dtype, 0), number), dtype, node)
            centred = b.compute("a - b", (value, mean), dtype, node)
            squares = b.reduction("sum", (b.compute("a * a", (centred,), dtype, node),), over, node, dtype, 0)
        else:
            mean = b.reduction(kind, (value,), over, node, dtype, 1)
            squares = b.reduction(kind, (value,), over, node, dtype, 0)
        if part == 1:
            return mean
        correction = node.kwargs.get("correction", 1 if name.startswith("aten.var") else 0)
        less = expression(1 if correction is None else correction)
        freedom = b.convert(b.coordinate(sympy.Max(ZERO, total - less), node), dtype)
        return b.compute("a / b", (squares, freedom), dtype, node)
    found = b.reduction(kind, (value,), over, node, dtype, 0)
    if name.startswith("aten.mean"):
        found = b.compute("a / b", (found, b.convert(b.coordinate(total, node), dtype)), dtype, node)
    return found


def _of_one_value(b: Builder, node: fx.Node, kind: str, value: Value, total: Index, part: int) -> Value:
    """A reduction of elements that are all the same."""
    number = b.convert(b.coordinate(total, node), value.dtype)
    if kind == "sum":
        return b.compute("a * b", (value, number), value.dtype, node)
    if kind == "prod":
        return b.compute(
            "pow(a, b)" if value.dtype.is_floating_point else "int_pow(a, b)", (value, number), value.dtype, node
        )
    return b.constant(0, value.dtype) if kind == "var_mean" and part == 0 else value


def _axes(b: Builder, node: fx.Node, inside: Coords, dims: tuple[int, ...]) -> tuple[sympy.Symbol, ...]:
    """The axes of the kernel that a reduction runs over."""
    over = frozenset[Any]().union(*(inside[d].free_symbols for d in dims))
    kept = frozenset[Any]().union(*(c.free_symbols for i, c in enumerate(inside) if i not in dims))
    sizes = b.space.sizes
    if over & kept & sizes.keys():
        raise Cut(node, "reduces a part of what the kernel runs over")
    return tuple(a for a in b.domain.axes if a in over)


def _arg(
    b: Builder, node: fx.Node, source: fx.Node, inside: Coords, dims: tuple[int, ...], over: Any, kind: str
) -> Value:
    from fx_lsp.codegen.index import contiguous_strides, linear

    shape = shape_of(source)
    value = b.operand(source, inside, (), source.meta["val"].dtype)
    at: Index = linear([inside[d] for d in dims], contiguous_strides([shape[d] for d in dims]))
    return b.reduction(kind, (value, b.coordinate(at, node)), over, node, torch.int64, 1)


@lowering("aten.cumsum", "aten.cumprod")
def scan(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A running sum or product along one dimension."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    dtype = node.meta["val"].dtype
    if not shape:
        return b.operand(source, coords, guard, dtype)
    dim = dimension(args_of(node)[1], len(shape))
    inside = b.space.coordinates(b.domain.position(), shape)
    over = _axes(b, node, inside, (dim,))
    if guard or inside != coords:
        raise Cut(node, "is needed for other elements than those that are at hand")
    kind = operation(node).split(".")[1]
    return b.scan(kind, b.operand(source, inside, (), dtype), over, node)
