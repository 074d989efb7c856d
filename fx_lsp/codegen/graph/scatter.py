"""Sums into places that tensors of indices name: scatter_add, index_put that accumulates, the gradients of indexing.

Several programs may add to one element: they do so with atomic operations, to zeros, in single precision at least. What
else such an operation does, adding to a tensor that is not zero and rounding, becomes operations on elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.graph.edit import converted, inserted, replaced
from fx_lsp.codegen.graph.query import SCATTER_KEY, expressions, is_zero, shape_of
from fx_lsp.codegen.ir.index import ONE, Coords, count
from fx_lsp.codegen.ir.ops import args_of, operation

aten = torch.ops.aten
FEW = 4
"""The most rows for which a sum is a reduction for each of them."""
MANY = 32
"""From how many values for each place on it is."""
_SUMMED = {
    **{dtype: dtype for dtype in (torch.float32, torch.float64, torch.int32, torch.int64)},
    **dict.fromkeys((torch.float16, torch.bfloat16), torch.float32),
    **dict.fromkeys((torch.int8, torch.int16, torch.uint8), torch.int32),
}
"""What tensors of a dtype are summed in."""


def keep_sums(graph: fx.Graph) -> None:
    """Have sums of a joint graph not be computed again in backward."""
    for node in filter(is_accumulation, graph.nodes):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def add_to_zeros(graph: fx.Graph) -> None:
    """Have the sums of a graph add to zeros, in precision that atomic operations have; `is_sum` knows them then."""
    for node in [n for n in graph.nodes if is_accumulation(n) and _has_kernel(n)]:
        base, values = _base(node), values_of_sum(node)
        dtype = node.meta["val"].dtype
        wide = _SUMMED[dtype]
        with graph.inserting_before(node):
            options = {"dtype": wide, "device": node.meta["val"].device}
            zeros = inserted(graph, node, aten.full.default, (list(base.meta["val"].shape), 0), options)
            added = converted(graph, node, values, wide)
            if _has_few_places(node):
                made = _sums_of_rows(graph, node, added)
            elif operation(node) in PUT:
                made = inserted(graph, node, node.target, (zeros, node.args[1], added, True))
                made.meta[SCATTER_KEY] = True
            else:
                made = inserted(graph, node, aten.scatter_add.default, (zeros, *node.args[1:3], added))
                made.meta[SCATTER_KEY] = True
            made.name = f"{node.name}_total"
            total = made
            if not is_zero(base):
                total = inserted(graph, node, aten.add.Tensor, (converted(graph, node, base, wide), made))
            total = converted(graph, node, total, dtype)
        replaced(graph, node, total)
    graph.eliminate_dead_code()


def _has_few_places(node: fx.Node) -> bool:
    """Whether a sum adds many values to each of a few rows: so many at a time would wait for each other."""
    shape, indices = shape_of(node), indices_of_sum(node) if operation(node) in PUT else []
    if len(indices) != 1 or not shape[0].is_Integer or int(shape[0]) > FEW:
        return False
    each = count(summed_shape(node)) / count(shape)
    return not each.is_Number or float(each) >= MANY


def _sums_of_rows(graph: fx.Graph, node: fx.Node, added: fx.Node) -> fx.Node:
    """A sum as reductions, one for each row of its result, of the values whose index names that row."""
    (indices,), shape = indices_of_sum(node), node.meta["val"].shape
    assert indices is not None
    wide = list(indices.meta["val"].shape) + [1] * (len(shape) - 1)
    full = list(indices.meta["val"].shape) + list(shape[1:])
    if list(added.meta["val"].shape) != full:
        added = inserted(graph, node, aten.expand.default, (added, full))
    zero = inserted(graph, node, aten.full.default, ([], 0), {"dtype": added.meta["val"].dtype})
    rows: list[fx.Node] = []
    for row in range(shape[0]):
        here = inserted(graph, node, aten.eq.Scalar, (indices, row))
        if operation(node) != "aten._unsafe_index_put.default":
            behind = inserted(graph, node, aten.eq.Scalar, (indices, row - shape[0]))
            here = inserted(graph, node, aten.logical_or.default, (here, behind))
        here = inserted(graph, node, aten.view.default, (here, wide))
        chosen = inserted(graph, node, aten.where.self, (here, added, zero))
        total = inserted(graph, node, aten.sum.dim_IntList, (chosen, list(range(indices.meta["val"].dim()))))
        rows.append(inserted(graph, node, aten.unsqueeze.default, (total, 0)))
    return rows[0] if len(rows) == 1 else inserted(graph, node, aten.cat.default, (rows, 0))


def _has_kernel(node: fx.Node) -> bool:
    tensors = [n.meta["val"] for n in (node, *node.all_input_nodes)]
    if any(t.layout is not torch.strided or count(expressions(t)) == 0 for t in tensors) or not node.meta["val"].dim():
        return False
    indices = indices_of_sum(node) if operation(node) in PUT else []
    masked = any(i is not None and i.meta["val"].dtype in (torch.bool, torch.uint8) for i in indices)
    return node.meta["val"].dtype in _SUMMED and not masked


def _base(node: fx.Node) -> fx.Node:
    return args_of(node)[0]


PUT = ("aten.index_put.default", "aten._unsafe_index_put.default")


def is_accumulation(node: fx.Node) -> bool:
    """Whether a node adds to elements of a tensor that indices name, in whatever way."""
    name = operation(node)
    if name in PUT:
        return len(node.args) > 3 and bool(node.args[3])
    if name == "aten.scatter_reduce.two":
        return node.args[4] == "sum" and node.kwargs.get("include_self", True) is True
    return name == "aten.scatter_add.default"


def summed_shape(node: fx.Node) -> Coords:
    """The shape of what a sum adds: an element for each addition."""
    if operation(node) in PUT:
        return picked_shape(shape_of(node), indices_of_sum(node))
    return shape_of(args_of(node)[2])


def values_of_sum(node: fx.Node) -> fx.Node:
    return args_of(node)[2] if operation(node) in PUT else args_of(node)[3]


def indices_of_sum(node: fx.Node) -> list[fx.Node | None]:
    return list(args_of(node)[1])


def picked_shape(shape: Coords, indices: Sequence[fx.Node | None]) -> Coords:
    """The shape of what tensors of indices pick of a tensor."""
    begin, rank = named_dimensions(indices)
    shapes = [shape_of(i) for i in indices if i is not None]
    named = [next((s[-k] for s in shapes if len(s) >= k and s[-k] != 1), ONE) for k in range(rank, 0, -1)]
    rest = [extent for extent, tensor in zip_longest(shape, indices) if tensor is None]
    return (*rest[:begin], *named, *rest[begin:])


def named_dimensions(indices: Sequence[fx.Node | None]) -> tuple[int, int]:
    """Where the dimensions of tensors of indices stand in what they pick, and how many they are."""
    places = [i for i, t in enumerate(indices) if t is not None]
    rank = max(len(shape_of(t)) for t in indices if t is not None)
    return places[0] if places == list(range(places[0], places[-1] + 1)) else 0, rank
