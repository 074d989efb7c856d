"""Operations that pick elements by the numbers in a tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.index import ZERO, Coords, Index
from fx_lsp.codegen.lowerings.views import dimension
from fx_lsp.codegen.pull import Builder, Cut, shape_of
from fx_lsp.codegen.registry import args_of, lowering
from fx_lsp.codegen.values import Guard, Value


@lowering("aten.embedding")
def embedding(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Rows of a table."""
    table, indices = args_of(node)[:2]
    row = b.index_of(b.pull(indices, coords[:-1], guard), shape_of(table)[0])
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
    at[where] = b.index_of(b.pull(indices, behind, guard), shape_of(source)[where])
    return b.pull(source, tuple(at), guard)


@lowering("aten.gather")
def gather(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """For each element, the index of one dimension that a tensor names."""
    source, dim, indices = args_of(node)[:3]
    if not shape_of(source):
        return b.pull(source, (), guard)
    at, where = list(coords) or [ZERO], dimension(dim, len(shape_of(source)))
    at[where] = b.index_of(b.pull(indices, coords, guard), shape_of(source)[where])
    return b.pull(source, tuple(at), guard)


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """The elements that tensors of indices name, which broadcast with each other; negative ones count from the end."""
    source: Any = args_of(node)[0]
    indices: Any = list(args_of(node)[1])
    shape = shape_of(source)
    indices += [None] * (len(shape) - len(indices))
    places = [i for i, t in enumerate(indices) if t is not None]
    if any(indices[i].meta["val"].dtype is torch.bool for i in places):
        raise Cut(node, "depends on the values of a mask")
    rank = max(len(shape_of(indices[i])) for i in places)
    together = places == list(range(places[0], places[-1] + 1))
    begin = places[0] if together else 0
    named, rest = coords[begin : begin + rank], iter((*coords[:begin], *coords[begin + rank :]))
    at: list[Index] = []
    for i, extent in enumerate(shape):
        if indices[i] is None:
            at.append(next(rest))
            continue
        value = b.operand(indices[i], named, guard, torch.int64)
        value = b.compute("tl.where(a < 0, a + b, a)", (value, b.coordinate(extent, node)), torch.int64, node)
        at.append(b.index_of(value, extent))
    return b.pull(source, tuple(at), guard)


@lowering("aten.scatter.value", "aten.scatter.src")
def scatter(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A tensor with one element of each line along a dimension replaced, where a tensor of indices says."""
    source, dim, indices, written = args_of(node)[:4]
    shape, inside = shape_of(node), shape_of(indices)
    where = dimension(dim, len(shape))
    dtype = node.meta["val"].dtype
    if not shape:
        return b.operand(written, coords, guard, dtype)
    if inside[where] != 1 or any(i != where and a != s for i, (a, s) in enumerate(zip(inside, shape, strict=True))):
        raise Cut(node, "may write an element more than once")
    at = (*coords[:where], ZERO, *coords[where + 1 :])
    place = b.pull(indices, at, guard)
    here = b.compute("a == b", (b.coordinate(coords[where], node), place), torch.bool, node)
    new = b.convert(b.pull(written, at, guard), dtype) if isinstance(written, fx.Node) else b.constant(written, dtype)
    return b.compute("tl.where(a, b, c)", (here, new, b.operand(source, coords, guard, dtype)), new.dtype, node)
