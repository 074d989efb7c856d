"""Operations that pick elements by the numbers in a tensor, and sums into such elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.graph.query import dimension, shape_of
from fx_lsp.codegen.graph.scatter import PUT, indices_of_sum, named_dimensions, values_of_sum
from fx_lsp.codegen.ir.index import ZERO, Coords, Index, linear
from fx_lsp.codegen.ir.ops import args_of, lowering, operation
from fx_lsp.codegen.ir.values import Addition, Axes, Buffer, Compute, Constant, Guard, Value
from fx_lsp.codegen.lower.builder import Builder, Cut

FEW = 4
"""Up to how many elements of each line are replaced by a comparison each."""


@lowering("aten.embedding")
def embedding(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Rows of a table."""
    table, indices = args_of(node)[:2]
    row = b.index_of(b.operand(indices, coords[:-1], guard, torch.int64), shape_of(table)[0])
    return b.pull(table, (row, coords[-1]), guard)


@lowering("aten.index_select")
def index_select(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """The indices of one dimension that a tensor names."""
    source, dim, indices = args_of(node)
    rank = len(shape_of(source))
    if not rank:
        return b.pull(source, (), guard)
    at, where = list(coords), dimension(dim, rank)
    behind = coords[where : where + 1] if shape_of(indices) else ()
    at[where] = b.index_of(b.operand(indices, behind, guard, torch.int64), shape_of(source)[where])
    return b.pull(source, tuple(at), guard)


@lowering("aten.gather")
def gather(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """For each element, the index of one dimension that a tensor names."""
    source, dim, indices = args_of(node)[:3]
    if not shape_of(source):
        return b.pull(source, (), guard)
    return b.pull(source, along_dimension(b, node, dim, indices, shape_of(source), coords, guard), guard)


def along_dimension(
    b: Builder, node: fx.Node, dim: Any, indices: fx.Node, shape: Coords, coords: Coords, guard: Guard = ()
) -> Coords:
    """Coordinates in a tensor of a shape, which a tensor of indices names along a dimension."""
    at, where = list(coords) or [ZERO], dimension(dim, len(shape))
    at[where] = b.index_of(b.operand(indices, coords, guard, torch.int64), shape[where])
    return tuple(at)


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """The elements that tensors of indices name, which broadcast with each other; negative ones count from the end."""
    source, indices = args_of(node)[:2]
    if any(i is not None and i.meta["val"].dtype is torch.bool for i in indices):
        raise Cut(node, "depends on the values of a mask")
    return b.pull(source, picked(b, node, shape_of(source), indices, coords, guard), guard)


def picked(
    b: Builder,
    node: fx.Node,
    shape: Coords,
    indices: Sequence[fx.Node | None],
    coords: Coords,
    guard: Guard = (),
    checked: bool = True,
) -> Coords:
    """Coordinates in a tensor of a shape, which tensors of indices name for the element at `coords` of what they pick.

    Where they are not `checked`, none is negative.
    """
    begin, rank = named_dimensions(indices)
    named, rest = coords[begin : begin + rank], iter((*coords[:begin], *coords[begin + rank :]))
    at: list[Index] = []
    for extent, tensor in zip_longest(shape, indices):
        if tensor is None:
            at.append(next(rest))
            continue
        value = b.operand(tensor, named, guard, torch.int64)
        if checked:
            value = b.compute("tl.where(a < 0, a + b, a)", (value, b.coordinate(extent, node)), torch.int64, node)
        at.append(b.index_of(value, extent))
    return tuple(at)


@lowering("aten.scatter.value", "aten.scatter.src")
def scatter(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A tensor with a few elements of each line along a dimension replaced, where a tensor of indices says.

    Where it names one twice, the last value stays; PyTorch leaves open which.
    """
    source, dim, indices, written = args_of(node)[:4]
    shape, inside = shape_of(node), shape_of(indices)
    where = dimension(dim, len(shape))
    dtype = node.meta["val"].dtype
    if not shape:
        return b.operand(written, coords, guard, dtype)
    few = inside[where].is_Integer and 1 <= inside[where] <= FEW
    if not few or any(i != where and a != s for i, (a, s) in enumerate(zip(inside, shape, strict=True))):
        raise Cut(node, "may write an element more than once")
    value = b.operand(source, coords, guard, dtype)
    for number in range(int(inside[where])):
        at = (*coords[:where], sympy.Integer(number), *coords[where + 1 :])
        place = b.pull(indices, at, guard)
        here = b.compute("a == b", (b.coordinate(coords[where], node), place), torch.bool, node)
        new = b.constant(written, dtype) if not isinstance(written, fx.Node) else b.pull(written, at, guard)
        value = b.compute("tl.where(a, b, c)", (here, b.convert(new, dtype), value), value.dtype, node)
    return value


def addition(b: Builder, node: fx.Node, coords: Coords, over: Axes, buffer: Buffer) -> Addition:
    """What a sum adds, for the element at `coords` of what it adds, which runs over the axes `over`."""
    values, dtype = values_of_sum(node), buffer.dtype
    if operation(node) in PUT:
        checked = operation(node) != "aten._unsafe_index_put.default"
        at = picked(b, node, shape_of(node), indices_of_sum(node), coords, (), checked)
        value = b.operand(values, coords, (), dtype)
    else:
        at = along_dimension(b, node, args_of(node)[1], args_of(node)[2], shape_of(node), coords)
        value = b.convert(b.pull(values, coords), dtype)
    index = sympy.expand(linear(at, buffer.strides))
    value, where = _chosen(b, value, node)
    return Addition(buffer, index, value, node, b.behind(index.free_symbols), where, over)


def _chosen(b: Builder, value: Value, node: fx.Node) -> tuple[Value, Value | None]:
    """A value, and where it is added: adding zero is left out."""
    if isinstance(value, Compute) and value.template == "tl.where(a, b, c)":
        condition, yes, no = value.args
        if isinstance(no, Constant) and no.value == 0:
            return yes, condition
        if isinstance(yes, Constant) and yes.value == 0:
            return no, b.compute("not_(a)", (condition,), torch.bool, node)
    return value, None
