"""Reductions with too few results to keep a GPU busy become two: of parts, and then of what those gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import converted, inserted, replaced
from fx_lsp.codegen.graph.loops import parts_of
from fx_lsp.codegen.graph.query import is_reduction, reduced_dimensions
from fx_lsp.codegen.ir.ops import operation

PROGRAMS = 512
"""How many programs there should be: a few for each multiprocessor of a large GPU."""
WIDTH = 128
"""How many neighbouring columns one program sums."""
LEAST = 32
"""The fewest elements that are worth a part of their own."""
LARGEST_ROW = 16384
LARGE = 1 << 20
"""What sizes are taken for that are known only when the kernels run."""

_TWICE = {"aten.sum": "sum", "aten.mean": "sum", "prims.sum": "sum", "aten.amax": "amax", "aten.amin": "amin"}
aten = torch.ops.aten


def split_reductions(graph: fx.Graph) -> None:
    """Split what is worth it, in place. Where a size is a symbol, the parts are as many as for a large one."""
    for node in list(graph.nodes):
        if operation(node).rpartition(".")[0] == "aten.var_mean" and _parts(graph, node) > 1:
            _into_sums(graph, node)
    for node in list(graph.nodes):
        if operation(node).rpartition(".")[0] in _TWICE:
            parts = parts_of(node) or _parts(graph, node)
            if parts > 1:
                _split(graph, node, parts)
    graph.lint()


def _parts(graph: fx.Graph, node: fx.Node) -> int:
    """How many parts a reduction is worth; 1 where it is fine as it is."""
    source: Any = node.args[0]
    value = source.meta["val"]
    shape, dims = [_about(s) for s in value.shape], reduced_dimensions(node)
    symbolic = any(isinstance(s, torch.SymInt) for s in value.shape)
    if 0 in shape:
        return 1
    length = math.prod(shape[d] for d in _longest_run(shape, dims))
    reduced = math.prod(shape[d] for d in dims)
    kept = math.prod(shape) // reduced
    rows = not shape or min(range(len(shape)), key=lambda d: (_about(value.stride(d)), -d)) in dims
    if symbolic and ((rows and kept > 1) or "var_mean" in operation(node)):
        return 1
    columns = math.ceil(kept / WIDTH) if symbolic else _columns(graph, node, value, dims, kept)
    wanted = PROGRAMS // max(1, kept if rows else columns)
    if wanted < 2 or reduced < 4 * LEAST or (rows and reduced <= 2 * LARGEST_ROW and kept > 1):
        return 1
    wanted = min(wanted, max(1, reduced // (LARGEST_ROW // 8 if rows else LEAST)))
    return min(wanted, length) if symbolic else _divisor(length, wanted)


def _about(size: Any) -> int:
    """A size; one that is a symbol is large."""
    return size if isinstance(size, int) else LARGE


def _columns(graph: fx.Graph, node: fx.Node, value: torch.Tensor, dims: Sequence[int], kept: int) -> int:
    """How many programs sum columns: one for each block of them, one for all where rows are reduced along with it."""
    for other in graph.nodes:
        if other is node or not is_reduction(other):
            continue
        source: Any = other.args[0]
        shape, along = source.meta["val"].shape, reduced_dimensions(other)
        if source.meta["val"].numel() != value.numel() or not along or along[-1] != len(shape) - 1:
            continue
        if math.prod(shape[d] for d in along) == kept <= LARGEST_ROW:
            return 1
    return math.ceil(kept / WIDTH)


def _longest_run(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """The neighbouring dimensions among `dims` with the most elements."""
    runs: list[list[int]] = []
    for dim in dims:
        if runs and runs[-1][-1] == dim - 1:
            runs[-1].append(dim)
        else:
            runs.append([dim])
    return tuple(max(runs, key=lambda r: math.prod(shape[d] for d in r), default=[]))


def _divisor(length: int, wanted: int) -> int:
    """The divisor of `length` that is nearest to `wanted` from below, or `wanted` where all of them are far from it."""
    found = next((d for d in range(min(wanted, length), 0, -1) if length % d == 0), 1)
    return found if found * 8 >= wanted else min(wanted, length)


def _split(graph: fx.Graph, node: fx.Node, parts: int) -> None:
    source: Any = node.args[0]
    value, result = source.meta["val"], node.meta["val"]
    dims = reduced_dimensions(node)
    run = _longest_run(value.shape, dims)
    length = math.prod(value.shape[d] for d in run)
    first, behind = run[0], value.shape[run[-1] + 1 :]
    each = (length + parts - 1) // parts
    moved = [d if d < first else d - len(run) + 2 for d in dims if d not in run]
    inner = sorted([first + 1, *moved])
    kind = _TWICE[operation(node).rpartition(".")[0]]
    dtype = torch.float32 if result.dtype in (torch.float16, torch.bfloat16) else result.dtype
    with graph.inserting_before(node):
        if isinstance(length, torch.SymInt) or length % parts:
            flat, padded = ([*value.shape[:first], s, *behind] for s in (length, parts * each))
            whole = inserted(graph, node, aten.view.default, (source, flat), value=value.new_empty(flat))
            widths = [*([0, 0] * len(behind)), 0, parts * each - length]
            neutral = _neutral(kind, value.dtype)
            pad, given = aten.constant_pad_nd.default, (whole, widths, neutral)
            source = inserted(graph, node, pad, given, value=value.new_empty(padded))
        shape = [*value.shape[:first], parts, each, *behind]
        pieces = inserted(graph, node, aten.view.default, (source, shape), value=value.new_empty(shape))
        name = f"{node.name}_partial"
        if kind == "sum":
            partial = inserted(graph, node, aten.sum.dim_IntList, (pieces, inner), {"dtype": dtype}, name)
            place = first - sum(d < first for d in moved)
            found = inserted(graph, node, aten.sum.dim_IntList, (partial, [place]), {"dtype": dtype})
        else:
            function = getattr(aten, kind).default
            partial = inserted(graph, node, function, (pieces, inner), name=name)
            place = first - sum(d < first for d in moved)
            found = inserted(graph, node, function, (partial, [place]))
        if "mean" in operation(node):
            count = math.prod(value.shape[d] for d in dims)
            found = inserted(graph, node, aten.div.Tensor, (found, count), value=found.meta["val"])
        found = converted(graph, node, found, result.dtype)
        if tuple(found.meta["val"].shape) != tuple(result.shape):
            found = inserted(graph, node, aten.reshape.default, (found, list(result.shape)))
    replaced(graph, node, found)


def _neutral(kind: str, dtype: torch.dtype) -> float:
    """What changes neither a sum nor a maximum or a minimum."""
    if kind == "sum":
        return 0
    least, most = (-math.inf, math.inf) if dtype.is_floating_point else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return least if kind == "amax" else most


def _into_sums(graph: fx.Graph, node: fx.Node) -> None:
    """Variance and mean as means: of the elements, then of the squares of their distances from that."""
    source: Any = node.args[0]
    value = source.meta["val"]
    dims = list(reduced_dimensions(node))
    count = math.prod(value.shape[d] for d in dims)
    correction: Any = node.kwargs.get("correction", 1)
    less = 1 if correction is None else correction
    shape = list(node.meta["val"][0].shape)
    with graph.inserting_before(node):
        mean = inserted(graph, node, aten.mean.dim, (source, dims, True))
        centred = inserted(graph, node, aten.sub.Tensor, (source, mean))
        squares = inserted(graph, node, aten.mul.Tensor, (centred, centred))
        total = inserted(graph, node, aten.sum.dim_IntList, (squares, dims, True))
        variance = inserted(graph, node, aten.div.Tensor, (total, max(count - less, 0)))
        results = [inserted(graph, node, aten.reshape.default, (n, shape)) for n in (variance, mean)]
    for user in list(node.users):
        number: Any = user.args[1]
        replaced(graph, user, results[number])
    graph.erase_node(node)
