"""Operations that only say where elements are: views, and what picks or joins elements."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.index import ZERO, Coords, Index, contiguous_strides, expression, linear
from fx_lsp.codegen.pull import Builder, Cut, shape_of
from fx_lsp.codegen.registry import args_of, lowering
from fx_lsp.codegen.values import Guard, Value


def dimension(value: Any, rank: int) -> int:
    """A dimension that may count from the end."""
    return int(value) % rank if rank else 0


def argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """An argument of a node, by position or by name."""
    return args_of(node)[position] if len(args_of(node)) > position else node.kwargs.get(name, default)


def size(value: Any) -> Index:
    """A size among the arguments: a number, or a node that computes one."""
    return expression(value.meta["val"] if isinstance(value, fx.Node) else value)


@lowering(
    "aten.view", "aten._unsafe_view", "aten.reshape", "aten._reshape_alias", "prims.collapse_view", "prims.split_dim"
)
def view(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """The same elements in the same order under another shape."""
    source: Any = args_of(node)[0]
    position = linear(coords, contiguous_strides(shape_of(node)))
    return b.pull(source, b.space.coordinates(position, shape_of(source)), guard)


@lowering("aten.permute", "prims.transpose")
def permute(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Dimensions in another order."""
    source, order = args_of(node)
    at: list[Index] = [ZERO] * len(coords)
    for coordinate, dim in zip(coords, order, strict=True):
        at[dimension(dim, len(coords))] = coordinate
    return b.pull(source, tuple(at), guard)


@lowering("aten.t", "aten.transpose", "aten.numpy_T", "aten.mT")
def transpose(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Two dimensions exchanged."""
    source: Any = args_of(node)[0]
    at = list(coords)
    if len(at) > 1:
        first, second = (dimension(argument(node, i, f"dim{i - 1}", i - 1), len(at)) for i in (1, 2))
        at[first], at[second] = at[second], at[first]
    return b.pull(source, tuple(at), guard)


@lowering("aten.expand", "prims.broadcast_in_dim")
def expand(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Dimensions of size 1 repeated."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    if str(node.target).startswith("prims."):
        behind = [coords[int(d)] for d in args_of(node)[2]]
    else:
        behind = list(coords[len(coords) - len(shape) :])
    return b.pull(source, tuple(ZERO if s == 1 else c for c, s in zip(behind, shape, strict=True)), guard)


@lowering("aten.unsqueeze")
def unsqueeze(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """One more dimension of size 1."""
    dim = dimension(args_of(node)[1], len(coords))
    return b.pull(args_of(node)[0], coords[:dim] + coords[dim + 1 :], guard)


@lowering("aten.squeeze", "prims.squeeze")
def squeeze(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Without dimensions of size 1: all, or those that are named."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    named = argument(node, 1, "dim", list(range(len(shape))))
    dims = {dimension(d, len(shape)) for d in (named if isinstance(named, (list, tuple)) else [named])}
    supply = iter(coords)
    at = tuple(ZERO if i in dims and s == 1 else next(supply) for i, s in enumerate(shape))
    return b.pull(source, at, guard)


@lowering("aten.slice.Tensor")
def slice_(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A range of one dimension."""
    source: Any = args_of(node)[0]
    dim, start, step = _range(node, 1)
    at = list(coords)
    at[dim] = start + at[dim] * step
    return b.pull(source, tuple(at), guard)


def _range(node: fx.Node, first: int) -> tuple[int, Index, Index]:
    """The dimension, the first index and the step of a slice."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    dim = dimension(argument(node, first, "dim", 0), len(shape))
    start, step = argument(node, first + 1, "start"), argument(node, first + 3, "step", 1)
    begin = size(start or 0)
    if begin.is_negative:
        begin = sympy.Max(ZERO, shape[dim] + begin)
    return dim, sympy.Min(begin, shape[dim]), size(step or 1)


@lowering("aten.select.int")
def select(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """One index of one dimension."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    dim, index = dimension(args_of(node)[1], len(shape)), size(args_of(node)[2])
    index = shape[dim] + index if index.is_negative else index
    return b.pull(source, (*coords[:dim], index, *coords[dim:]), guard)


@lowering("aten.split", "aten.split_with_sizes", "aten.split_with_sizes_copy", "aten.unbind", "aten.chunk")
def split(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """One of the parts along a dimension."""
    source: Any = args_of(node)[0]
    unbinds = "unbind" in str(node.target)
    dim = dimension(argument(node, 1 if unbinds else 2, "dim", 0), len(shape_of(source)))
    if unbinds:
        return b.pull(source, (*coords[:dim], expression(part), *coords[dim:]), guard)
    before = sum((shape_of(node, i)[dim] for i in range(part)), ZERO)
    return b.pull(source, (*coords[:dim], coords[dim] + before, *coords[dim + 1 :]), guard)


@lowering("aten.flip", "prims.rev")
def flip(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Dimensions backwards."""
    shape = shape_of(node)
    dims = {dimension(d, len(shape)) for d in args_of(node)[1]}
    at = tuple(s - 1 - c if i in dims else c for i, (c, s) in enumerate(zip(coords, shape, strict=True)))
    return b.pull(args_of(node)[0], at, guard)


@lowering("aten.diagonal", "aten.diagonal_copy")
def diagonal(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A diagonal of two dimensions, as the last one."""
    source: Any = args_of(node)[0]
    rank = len(shape_of(source))
    offset = int(argument(node, 1, "offset", 0))
    first, second = dimension(argument(node, 2, "dim1", 0), rank), dimension(argument(node, 3, "dim2", 1), rank)
    supply = iter(coords[:-1])
    along = {first: coords[-1] + max(-offset, 0), second: coords[-1] + max(offset, 0)}
    return b.pull(source, tuple(along[i] if i in along else next(supply) for i in range(rank)), guard)


@lowering("aten.unfold", "aten.unfold_copy")
def unfold(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Windows of one dimension, each as a new last dimension."""
    source: Any = args_of(node)[0]
    dim, step = dimension(args_of(node)[1], len(shape_of(source))), int(args_of(node)[3])
    at = list(coords[:-1])
    at[dim] = at[dim] * step + coords[-1]
    return b.pull(source, tuple(at), guard)


@lowering("aten.cat")
def cat(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Tensors one behind the other along a dimension."""
    dtype = node.meta["val"].dtype
    parts: Any = [p for p in args_of(node)[0] if len(shape_of(p)) == len(coords)]
    dim = dimension(argument(node, 1, "dim", 0), len(coords))
    start, found = ZERO, []
    for tensor in parts:
        end = start + shape_of(tensor)[dim]
        inside = b.also(guard, coords[dim], ">=", start)
        inside = None if inside is None else b.also(inside, coords[dim], "<", end)
        if inside is not None and end != start:
            at = (*coords[:dim], coords[dim] - start, *coords[dim + 1 :])
            found.append((end, b.convert(b.pull(tensor, at, inside), dtype)))
        start = end
    if not found:
        return b.constant(0, dtype)
    value = found[-1][1]
    for end, other in reversed(found[:-1]):
        before = b.also((), coords[dim], "<", end)
        value = value if before is None else b.where(before, other, value, node)
    return value


@lowering("aten.constant_pad_nd")
def pad(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A tensor with a number around it."""
    source: Any = args_of(node)[0]
    widths: Any = args_of(node)[1]
    dtype, shape, at = node.meta["val"].dtype, shape_of(source), list(coords)
    inside: Guard | None = ()
    for i in range(len(widths) // 2):
        dim, before = len(at) - 1 - i, size(widths[2 * i])
        at[dim] = at[dim] - before
        for sign, bound in ((">=", ZERO), ("<", shape[dim])):
            inside = None if inside is None else b.also(inside, at[dim], sign, bound)
    other = b.constant(argument(node, 2, "value", 0), dtype)
    if inside is None:
        return other
    both = (*guard, *(c for c in inside if c not in guard))
    return b.where(inside, b.convert(b.pull(source, tuple(at), both), dtype), other, node)


@lowering("aten.slice_scatter", "aten.select_scatter", "aten.diagonal_scatter")
def scatter_view(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """A tensor in which a view of it is replaced."""
    source, values = args_of(node)[:2]
    shape, name = shape_of(node), str(node.target)
    inside: Guard | None = ()
    if "slice" in name:
        dim, start, step = _range(node, 2)
        position, offset = b.space.split(coords[dim] - start, step)
        inside = b.also(inside, coords[dim], ">=", start)
        inside = None if inside is None else b.also(inside, position, "<", shape_of(values)[dim])
        if step != 1 and inside is not None:
            inside = b.also(inside, offset, "==", ZERO)
        at = (*coords[:dim], position, *coords[dim + 1 :])
    elif "select" in name:
        dim, index = dimension(args_of(node)[2], len(shape)), size(args_of(node)[3])
        index = shape[dim] + index if index.is_negative else index
        inside = b.also(inside, coords[dim], "==", index)
        at = (*coords[:dim], *coords[dim + 1 :])
    else:
        raise Cut(node, "has no lowering")
    dtype = node.meta["val"].dtype
    if inside is None:
        return b.pull(source, coords, guard)
    both = (*guard, *(c for c in inside if c not in guard))
    value = b.convert(b.pull(values, at, both), dtype)
    return b.where(inside, value, b.pull(source, coords, guard), node) if inside else value


@lowering("prims.iota")
def iota(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Numbers in a row."""
    index = size(node.kwargs["start"]) + size(node.kwargs["step"]) * coords[0]
    return b.convert(b.coordinate(index, node), node.meta["val"].dtype)


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
    if (
        not shape
        or inside[where] != 1
        or any(i != where and a != s for i, (a, s) in enumerate(zip(inside, shape, strict=True)))
    ):
        raise Cut(node, "may write an element more than once")
    at = (*coords[:where], ZERO, *coords[where + 1 :])
    dtype = node.meta["val"].dtype
    place = b.pull(indices, at, guard)
    here = b.compute("a == b", (b.coordinate(coords[where], node), place), torch.bool, node)
    new = b.convert(b.pull(written, at, guard), dtype) if isinstance(written, fx.Node) else b.constant(written, dtype)
    return b.compute("tl.where(a, b, c)", (here, new, b.operand(source, coords, guard, dtype)), new.dtype, node)
