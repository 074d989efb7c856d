"""Lower operations that only move elements: views, selections and concatenations."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.graph.query import argument, dimension, shape_of
from fx_lsp.codegen.ir.index import ZERO, Coords, Index, contiguous_strides, expression, linear
from fx_lsp.codegen.ir.lowerings import NotFusible, args_of, lowering, operation
from fx_lsp.codegen.ir.values import Guard, Value
from fx_lsp.codegen.lower.builder import Builder


def size(value: Any) -> Index:
    """Return a size argument, a number or a node that computes one, as an index."""
    return expression(value.meta["val"] if isinstance(value, fx.Node) else value)


@lowering(
    "aten.view", "aten._unsafe_view", "aten.reshape", "aten._reshape_alias", "prims.collapse_view", "prims.split_dim"
)
def view(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a view: the same elements in order under another shape."""
    source: Any = args_of(node)[0]
    position = linear(coords, contiguous_strides(shape_of(node)))
    return b.lower(source, b.space.coordinates(position, shape_of(source)), guard)


@lowering("aten.permute", "prims.transpose")
def permute(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a permutation of dimensions."""
    source, order = args_of(node)
    at: list[Index] = [ZERO] * len(coords)
    for coordinate, dim in zip(coords, order, strict=True):
        at[dimension(dim, len(coords))] = coordinate
    return b.lower(source, tuple(at), guard)


@lowering("aten.t", "aten.transpose", "aten.numpy_T", "aten.mT")
def transpose(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower an exchange of two dimensions."""
    source: Any = args_of(node)[0]
    at = list(coords)
    if len(at) > 1:
        first, second = (dimension(argument(node, i, f"dim{i - 1}", i - 1), len(at)) for i in (1, 2))
        at[first], at[second] = at[second], at[first]
    return b.lower(source, tuple(at), guard)


@lowering("aten.expand", "prims.broadcast_in_dim")
def expand(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower an expansion of dimensions of size 1."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    if str(node.target).startswith("prims."):
        behind = [coords[int(d)] for d in args_of(node)[2]]
    else:
        behind = list(coords[len(coords) - len(shape) :])
    return b.lower(source, tuple(ZERO if s == 1 else c for c, s in zip(behind, shape, strict=True)), guard)


@lowering("aten.repeat")
def repeat(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a repetition along existing dimensions, and along new ones before them."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    behind = coords[len(coords) - len(shape) :]
    return b.lower(source, tuple(b.space.split(c, s)[1] for c, s in zip(behind, shape, strict=True)), guard)


@lowering("aten.as_strided", "aten.as_strided_copy")
def as_strided(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a view by strides of a dense tensor. Raises NotFusible for other tensors and for symbolic sizes."""
    source: Any = args_of(node)[0]
    value = source.meta["val"]
    if not value.is_contiguous() or any(isinstance(s, torch.SymInt) for s in value.shape):
        raise NotFusible(node, "depends on the memory layout of a tensor")
    offset = argument(node, 3, "storage_offset")
    position = linear(coords, [size(s) for s in args_of(node)[2]]) + size(offset or 0)
    return b.lower(source, b.space.coordinates(position, shape_of(source)), guard)


@lowering("aten.unsqueeze")
def unsqueeze(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a new dimension of size 1."""
    dim = dimension(args_of(node)[1], len(coords))
    return b.lower(args_of(node)[0], coords[:dim] + coords[dim + 1 :], guard)


@lowering("aten.squeeze", "prims.squeeze")
def squeeze(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower the removal of dimensions of size 1: all of them, or the given ones."""
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    named = argument(node, 1, "dim", list(range(len(shape))))
    dims = {dimension(d, len(shape)) for d in (named if isinstance(named, (list, tuple)) else [named])}
    supply = iter(coords)
    at = tuple(ZERO if i in dims and s == 1 else next(supply) for i, s in enumerate(shape))
    return b.lower(source, at, guard)


@lowering("aten.slice.Tensor")
def slice_(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a range of one dimension."""
    return b.lower(args_of(node)[0], viewed_coordinates(node, coords, 1), guard)


def viewed_coordinates(node: fx.Node, coords: Coords, first: int) -> Coords:
    """Return the place, in the first argument of a node, of an element of its slice, selection or diagonal.

    The arguments of the node that describe this view begin at number `first`.
    """
    name, rank = operation(node), len(shape_of(args_of(node)[0]))
    if "slice" in name:
        dim, start, step = _range(node, first)
        return (*coords[:dim], start + coords[dim] * step, *coords[dim + 1 :])
    if "select" in name:
        dim, index = _selection(node, first)
        return (*coords[:dim], index, *coords[dim:])
    offset = int(argument(node, first, "offset", 0))
    ends = (dimension(argument(node, first + 1 + i, f"dim{i + 1}", i), rank) for i in (0, 1))
    along = dict(zip(ends, (coords[-1] + max(-offset, 0), coords[-1] + max(offset, 0)), strict=True))
    supply = iter(coords[:-1])
    return tuple(along[i] if i in along else next(supply) for i in range(rank))


def _selection(node: fx.Node, first: int) -> tuple[int, Index]:
    """Return the dimension and the index of a selection."""
    shape = shape_of(args_of(node)[0])
    dim, index = dimension(argument(node, first, "dim", 0), len(shape)), size(argument(node, first + 1, "index"))
    return dim, shape[dim] + index if index.is_negative else index


def _range(node: fx.Node, first: int) -> tuple[int, Index, Index]:
    """Return the dimension, the first index and the step of a slice."""
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
    """Lower one index of one dimension."""
    return b.lower(args_of(node)[0], viewed_coordinates(node, coords, 1), guard)


@lowering("aten.split", "aten.split_with_sizes", "aten.split_with_sizes_copy", "aten.unbind", "aten.chunk")
def split(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower one of the parts of a split along a dimension."""
    source: Any = args_of(node)[0]
    unbinds = "unbind" in str(node.target)
    dim = dimension(argument(node, 1 if unbinds else 2, "dim", 0), len(shape_of(source)))
    if unbinds:
        return b.lower(source, (*coords[:dim], expression(part), *coords[dim:]), guard)
    before = sum((shape_of(node, i)[dim] for i in range(part)), ZERO)
    return b.lower(source, (*coords[:dim], coords[dim] + before, *coords[dim + 1 :]), guard)


@lowering("aten.flip", "prims.rev")
def flip(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a reversal of dimensions."""
    shape = shape_of(node)
    dims = {dimension(d, len(shape)) for d in args_of(node)[1]}
    at = tuple(s - 1 - c if i in dims else c for i, (c, s) in enumerate(zip(coords, shape, strict=True)))
    return b.lower(args_of(node)[0], at, guard)


@lowering("aten.diagonal", "aten.diagonal_copy")
def diagonal(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a diagonal of two dimensions, as the last dimension."""
    return b.lower(args_of(node)[0], viewed_coordinates(node, coords, 1), guard)


@lowering("aten.unfold", "aten.unfold_copy")
def unfold(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower windows of one dimension, each along a new last dimension."""
    source: Any = args_of(node)[0]
    if not shape_of(source):
        return b.lower(source, (), guard)
    dim, step = dimension(args_of(node)[1], len(shape_of(source))), int(args_of(node)[3])
    at = list(coords[:-1])
    at[dim] = at[dim] * step + coords[-1]
    return b.lower(source, tuple(at), guard)


@lowering("aten.cat")
def cat(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a concatenation along a dimension."""
    dtype = node.meta["val"].dtype
    parts: Any = [p for p in args_of(node)[0] if len(shape_of(p)) == len(coords)]
    dim = dimension(argument(node, 1, "dim", 0), len(coords))
    start, candidates = ZERO, []
    for tensor in parts:
        end = start + shape_of(tensor)[dim]
        inside = b.refine_guard(guard, coords[dim], ">=", start)
        inside = None if inside is None else b.refine_guard(inside, coords[dim], "<", end)
        if inside is not None and end != start:
            at = (*coords[:dim], coords[dim] - start, *coords[dim + 1 :])
            candidates.append((end, b.convert(b.lower(tensor, at, inside), dtype)))
        start = end
    if not candidates:
        return b.constant(0, dtype)
    value = candidates[-1][1]
    for end, other in reversed(candidates[:-1]):
        before = b.refine_guard((), coords[dim], "<", end)
        value = value if before is None else b.where(before, other, value, node)
    return value


@lowering("aten.constant_pad_nd")
def pad(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a constant padding."""
    source: Any = args_of(node)[0]
    widths: Any = args_of(node)[1]
    dtype, shape, at = node.meta["val"].dtype, shape_of(source), list(coords)
    inside: Guard | None = ()
    for i in range(len(widths) // 2):
        dim, before = len(at) - 1 - i, size(widths[2 * i])
        at[dim] = at[dim] - before
        bounds = [(">=", ZERO)] if before != 0 else []
        for sign, bound in (*bounds, ("<", shape[dim])):
            inside = None if inside is None else b.refine_guard(inside, at[dim], sign, bound)
    other = b.constant(argument(node, 2, "value", 0), dtype)
    if inside is None:
        return other
    both = (*guard, *(c for c in inside if c not in guard))
    return b.where(inside, b.convert(b.lower(source, tuple(at), both), dtype), other, node)


@lowering("aten.slice_scatter", "aten.select_scatter", "aten.diagonal_scatter")
def scatter_view(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a tensor with one of its views replaced."""
    source, values = args_of(node)[:2]
    shape, name = shape_of(node), str(node.target)
    inside: Guard | None = ()
    if "slice" in name:
        dim, start, step = _range(node, 2)
        position, offset = b.space.split(coords[dim] - start, step)
        inside = b.refine_guard(inside, coords[dim], ">=", start)
        inside = None if inside is None else b.refine_guard(inside, position, "<", shape_of(values)[dim])
        if step != 1 and inside is not None:
            inside = b.refine_guard(inside, offset, "==", ZERO)
        at = (*coords[:dim], position, *coords[dim + 1 :])
    elif "select" in name:
        dim, index = _selection(node, 2)
        inside = b.refine_guard(inside, coords[dim], "==", index)
        at = (*coords[:dim], *coords[dim + 1 :])
    else:
        offset = int(argument(node, 2, "offset", 0))
        first, second = (dimension(argument(node, 3 + i, f"dim{i + 1}", i), len(shape)) for i in (0, 1))
        along = coords[first] - max(-offset, 0)
        inside = b.refine_guard(inside, coords[second] - max(offset, 0), "==", along)
        inside = None if inside is None else b.refine_guard(inside, along, ">=", ZERO)
        inside = None if inside is None else b.refine_guard(inside, along, "<", shape_of(values)[-1])
        at = (*(c for i, c in enumerate(coords) if i not in (first, second)), along)
    dtype = node.meta["val"].dtype
    if inside is None:
        return b.lower(source, coords, guard)
    both = (*guard, *(c for c in inside if c not in guard))
    value = b.convert(b.lower(values, at, both), dtype)
    return b.where(inside, value, b.lower(source, coords, guard), node) if inside else value


@lowering("prims.iota")
def iota(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a range of consecutive numbers."""
    index = size(node.kwargs["start"]) + size(node.kwargs["step"]) * coords[0]
    return b.convert(b.coordinate(index, node), node.meta["val"].dtype)
