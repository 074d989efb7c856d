"""Lower operations that gather elements by the indices in a tensor, and sums into such elements."""

from __future__ import annotations

from itertools import zip_longest

import sympy
import torch
from torch import fx

from fx_lsp.codegen.graph.query import VIEW_SCATTERS, dimension, shape_of
from fx_lsp.codegen.graph.scatter import INDEX_PUTS, is_accumulation, named_dimensions, replaces_few, scatter_values
from fx_lsp.codegen.ir.index import ZERO, Coords, Index, linear
from fx_lsp.codegen.ir.lowerings import NotFusible, args_of, lowering, operation
from fx_lsp.codegen.ir.ops import ADD, EQ, NOT, WHERE, op
from fx_lsp.codegen.ir.values import (
    AtomicAdd,
    Axes,
    Buffer,
    Compute,
    Constant,
    Guard,
    IndexedStore,
    Load,
    Store,
    Value,
)
from fx_lsp.codegen.lower.builder import Builder
from fx_lsp.codegen.lower.views import viewed_coordinates

UNCHECKED = "aten._unsafe_index_put.default"
"""The operation whose indices are never negative."""


@lowering("aten.embedding")
def embedding(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a lookup of rows in a table."""
    table, indices = args_of(node)[:2]
    row = b.index_symbol(b.operand(indices, coords[:-1], guard, torch.int64), shape_of(table)[0])
    return b.lower(table, (row, coords[-1]), guard)


@lowering("aten.index_select")
def index_select(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a selection along one dimension by a tensor of indices."""
    source, dim, indices = args_of(node)
    rank = len(shape_of(source))
    if not rank:
        return b.lower(source, (), guard)
    at, where = list(coords), dimension(dim, rank)
    behind = coords[where : where + 1] if shape_of(indices) else ()
    at[where] = b.index_symbol(b.operand(indices, behind, guard, torch.int64), shape_of(source)[where])
    return b.lower(source, tuple(at), guard)


@lowering("aten.gather")
def gather(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a gather: each element has its own index along one dimension."""
    source = args_of(node)[0]
    if not shape_of(source):
        return b.lower(source, (), guard)
    return b.lower(source, along_dimension(b, node, coords, guard), guard)


def along_dimension(b: Builder, node: fx.Node, coords: Coords, guard: Guard = ()) -> Coords:
    """Return coordinates in the first argument of a gather or scatter, from the index at `coords`."""
    source, dim, indices = args_of(node)[:3]
    shape = shape_of(source)
    at, where = list(coords) or [ZERO], dimension(dim, len(shape))
    at[where] = b.index_symbol(b.operand(indices, coords, guard, torch.int64), shape[where])
    return tuple(at)


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower indexing by tensors that broadcast with each other. Negative indices count from the end."""
    source, indices = args_of(node)[:2]
    if any(i is not None and i.meta["val"].dtype is torch.bool for i in indices):
        raise NotFusible(node, "depends on the values of a mask")
    return b.lower(source, indexed_coordinates(b, node, coords, guard), guard)


def indexed_coordinates(b: Builder, node: fx.Node, coords: Coords, guard: Guard = ()) -> Coords:
    """Return coordinates in the first argument of a node for the element at `coords` that its indices select."""
    source, indices = args_of(node)[:2]
    begin, rank = named_dimensions(indices)
    named, rest = coords[begin : begin + rank], iter((*coords[:begin], *coords[begin + rank :]))
    at: list[Index] = []
    for extent, tensor in zip_longest(shape_of(source), indices):
        if tensor is None:
            at.append(next(rest))
            continue
        value = b.operand(tensor, named, guard, torch.int64)
        if operation(node) != UNCHECKED:
            value = b.compute(op("tl.where(a < 0, a + b, a)"), (value, b.coordinate(extent, node)), torch.int64, node)
        at.append(b.index_symbol(value, extent))
    return tuple(at)


@lowering("aten.scatter.value", "aten.scatter.src", "aten.scatter_add")
def scatter(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a scatter that replaces, or adds to, a few elements of each line along a dimension.

    If an index occurs twice, the last value stays; PyTorch leaves it undefined.
    """
    source, dim, indices, written = args_of(node)[:4]
    dtype = node.meta["val"].dtype
    if not shape_of(node):
        return b.operand(written, coords, guard, dtype)
    if not replaces_few(node):
        raise NotFusible(node, "may write an element more than once")
    value = b.operand(source, coords, guard, dtype)
    where = dimension(dim, len(coords))
    for number in range(int(shape_of(indices)[where])):
        at = (*coords[:where], sympy.Integer(number), *coords[where + 1 :])
        place = b.lower(indices, at, guard)
        here = b.compute(EQ, (b.coordinate(coords[where], node), place), torch.bool, node)
        new = b.constant(written, dtype) if not isinstance(written, fx.Node) else b.lower(written, at, guard)
        if is_accumulation(node):
            new = b.compute(ADD, (value, b.convert(new, dtype)), value.dtype, node)
        value = b.compute(WHERE, (here, b.convert(new, dtype), value), value.dtype, node)
    return value


def write_in_place(b: Builder, node: fx.Node, coords: Coords, over: Axes) -> Store:
    """Return the store of a partial write for the written element at `coords`. It runs over the axes `over`.

    A new element is written where the old one is read.
    """
    base, values, dtype = args_of(node)[0], scatter_values(node), node.meta["val"].dtype
    if operation(node) in VIEW_SCATTERS:
        at, value = viewed_coordinates(node, coords, 2), b.operand(values, coords, (), dtype)
    elif operation(node) in INDEX_PUTS:
        at, value = indexed_coordinates(b, node, coords), b.operand(values, coords, (), dtype)
    else:
        at = along_dimension(b, node, coords)
        value = b.convert(b.lower(values, coords), dtype) if isinstance(values, fx.Node) else b.constant(values, dtype)
    old = b.lower(base, at)
    assert isinstance(old, Load)
    index = sympy.expand(old.index)
    if not old.indirect:
        return Store(old.buffer, index, value, node)
    return IndexedStore(old.buffer, index, value, node, old.indirect, None, over)


def atomic_add(b: Builder, node: fx.Node, coords: Coords, over: Axes, buffer: Buffer) -> AtomicAdd:
    """Return the atomic addition of a scatter sum for the added element at `coords`. It runs over the axes `over`."""
    values, dtype = scatter_values(node), buffer.dtype
    if operation(node) in INDEX_PUTS:
        at = indexed_coordinates(b, node, coords)
        value = b.operand(values, coords, (), dtype)
    else:
        at = along_dimension(b, node, coords)
        value = b.convert(b.lower(values, coords), dtype)
    index = sympy.expand(linear(at, buffer.strides))
    value, where = _split_mask(b, value, node)
    return AtomicAdd(buffer, index, value, node, b.values_behind(index.free_symbols), where, over)


def _split_mask(b: Builder, value: Value, node: fx.Node) -> tuple[Value, Value | None]:
    """Return a value and the condition under which it is added, None for always: adding zero is skipped."""
    if isinstance(value, Compute) and value.op is WHERE:
        condition, yes, no = value.args
        if isinstance(no, Constant) and no.value == 0:
            return yes, condition
        if isinstance(yes, Constant) and yes.value == 0:
            return no, b.compute(NOT, (condition,), torch.bool, node)
    return value, None
