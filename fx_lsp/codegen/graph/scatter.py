"""Handle sums into indexed places: scatter_add, accumulating index_put, the gradients of indexing.

Several programs may add to one element: they use atomic operations, on zeros, in at least single precision. The other
parts of such an operation, adding to a non-zero tensor and rounding, become element-wise operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.graph.edit import insert_call, insert_cast, replace_node
from fx_lsp.codegen.graph.query import VIEW_SCATTERS, dimension, is_saved, is_zero, shape_of, symbolic_shape
from fx_lsp.codegen.ir.index import ONE, Coords, count
from fx_lsp.codegen.ir.lowerings import args_of, operation
from fx_lsp.codegen.ir.node_facts import add_facts, facts_of

aten = torch.ops.aten
_SCATTERS = ("aten.scatter.value", "aten.scatter.src", "aten.scatter_add.default")
MAX_SCATTERED = 4
"""The largest number of elements of a line that a scatter replaces by one comparison for each."""
MAX_SUMMED_ROWS = 4
"""The most rows for which a sum becomes a reduction of each row."""
MIN_VALUES_PER_ROW = 32
"""The least number of values per row for that."""
_ACCUMULATION_DTYPES = {
    **{dtype: dtype for dtype in (torch.float32, torch.float64, torch.int32, torch.int64)},
    **dict.fromkeys((torch.float16, torch.bfloat16), torch.float32),
    **dict.fromkeys((torch.int8, torch.int16, torch.uint8), torch.int32),
}
"""The dtype in which tensors of a dtype are summed."""


def save_scatter_sums(graph: fx.Graph) -> None:
    """Save sums of a joint graph for backward, instead of recomputing them."""
    for node in filter(is_accumulation, graph.nodes):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def recomputed_sums(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield sums that backward may recompute."""
    return (n for n in graph.nodes if is_accumulation(n) and not is_saved(n))


def add_to_zeros(graph: fx.Graph) -> None:
    """Make the sums of a graph add to zeros, in a precision with atomic operations, and mark them."""
    for node in [n for n in graph.nodes if is_accumulation(n) and _has_kernel(n)]:
        base, values = _base(node), scatter_values(node)
        dtype = node.meta["val"].dtype
        wide = _ACCUMULATION_DTYPES[dtype]
        with graph.inserting_before(node):
            options = {"dtype": wide, "device": node.meta["val"].device}
            zeros = insert_call(node, aten.full.default, (list(base.meta["val"].shape), 0), options)
            added = insert_cast(graph, node, values, wide)
            if _has_few_rows(node):
                scattered = _sums_of_rows(graph, node, added)
            elif operation(node) in INDEX_PUTS:
                scattered = insert_call(node, node.target, (zeros, node.args[1], added, True))
                add_facts(scattered, scatter_sum=True)
            else:
                scattered = insert_call(node, aten.scatter_add.default, (zeros, *node.args[1:3], added))
                add_facts(scattered, scatter_sum=True)
            scattered.name = f"{node.name}_total"
            total = scattered
            if not is_zero(base):
                total = insert_call(node, aten.add.Tensor, (insert_cast(graph, node, base, wide), scattered))
            total = insert_cast(graph, node, total, dtype)
        replace_node(graph, node, total)
    graph.eliminate_dead_code()


def sums_without_zeros(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield sums that a kernel supports and that do not add to zeros."""
    sums = (n for n in graph.nodes if is_accumulation(n) and _has_kernel(n))
    return (n for n in sums if not (facts_of(n).scatter_sum and is_zero(_base(n))))


def _has_few_rows(node: fx.Node) -> bool:
    """Return True if a sum adds many values to each of a few rows: atomic operations would wait for each other."""
    shape, indices = shape_of(node), scatter_indices(node) if operation(node) in INDEX_PUTS else []
    if len(indices) != 1 or not shape[0].is_Integer or int(shape[0]) > MAX_SUMMED_ROWS:
        return False
    each = count(scatter_shape(node)) / count(shape)
    return not each.is_Number or float(each) >= MIN_VALUES_PER_ROW


def _sums_of_rows(graph: fx.Graph, node: fx.Node, added: fx.Node) -> fx.Node:
    """Return a sum as reductions, one for each row of its result, of the values with the index of that row."""
    (indices,), shape = scatter_indices(node), node.meta["val"].shape
    assert indices is not None
    wide = list(indices.meta["val"].shape) + [1] * (len(shape) - 1)
    full = list(indices.meta["val"].shape) + list(shape[1:])
    if list(added.meta["val"].shape) != full:
        added = insert_call(node, aten.expand.default, (added, full))
    zero = insert_call(node, aten.full.default, ([], 0), {"dtype": added.meta["val"].dtype})
    rows: list[fx.Node] = []
    for row in range(shape[0]):
        here = insert_call(node, aten.eq.Scalar, (indices, row))
        if operation(node) != "aten._unsafe_index_put.default":
            behind = insert_call(node, aten.eq.Scalar, (indices, row - shape[0]))
            here = insert_call(node, aten.logical_or.default, (here, behind))
        here = insert_call(node, aten.view.default, (here, wide))
        chosen = insert_call(node, aten.where.self, (here, added, zero))
        total = insert_call(node, aten.sum.dim_IntList, (chosen, list(range(indices.meta["val"].dim()))))
        rows.append(insert_call(node, aten.unsqueeze.default, (total, 0)))
    return rows[0] if len(rows) == 1 else insert_call(node, aten.cat.default, (rows, 0))


def _has_kernel(node: fx.Node) -> bool:
    tensors = [n.meta["val"] for n in (node, *node.all_input_nodes)]
    if (
        any(t.layout is not torch.strided or count(symbolic_shape(t)) == 0 for t in tensors)
        or not node.meta["val"].dim()
        or replaces_few(node)
    ):
        return False
    indices = scatter_indices(node) if operation(node) in INDEX_PUTS else []
    masked = any(i is not None and i.meta["val"].dtype in (torch.bool, torch.uint8) for i in indices)
    return node.meta["val"].dtype in _ACCUMULATION_DTYPES and not masked


def _base(node: fx.Node) -> fx.Node:
    return args_of(node)[0]


INDEX_PUTS = ("aten.index_put.default", "aten._unsafe_index_put.default")


def is_accumulation(node: fx.Node) -> bool:
    """Return True if a node adds to indexed elements of a tensor, in any way."""
    name = operation(node)
    if name in INDEX_PUTS:
        return len(node.args) > 3 and bool(node.args[3])
    if name == "aten.scatter_reduce.two":
        return node.args[4] == "sum" and node.kwargs.get("include_self", True) is True
    return name == "aten.scatter_add.default"


def scatter_shape(node: fx.Node) -> Coords:
    """Return the shape of the added or written values: an element for each addition or write."""
    if operation(node) in INDEX_PUTS:
        return indexed_shape(shape_of(node), scatter_indices(node))
    return shape_of(args_of(node)[1 if operation(node) in VIEW_SCATTERS else 2])


def replaces_few(node: fx.Node) -> bool:
    """Return True if a scatter replaces, or adds to, a few elements of each line, by one comparison for each."""
    if operation(node) not in _SCATTERS or not shape_of(node):
        return False
    shape, inside = shape_of(node), shape_of(args_of(node)[2])
    where = dimension(args_of(node)[1], len(shape))
    few = inside[where].is_Integer and 1 <= inside[where] <= MAX_SCATTERED
    return bool(few) and all(i == where or a == s for i, (a, s) in enumerate(zip(inside, shape, strict=True)))


def scatter_values(node: fx.Node) -> Any:
    """Return the added or written values: a tensor, or a number for all."""
    place = 1 if operation(node) in VIEW_SCATTERS else 2 if operation(node) in INDEX_PUTS else 3
    return args_of(node)[place]


def scatter_indices(node: fx.Node) -> list[fx.Node | None]:
    return list(args_of(node)[1])


def indexed_shape(shape: Coords, indices: Sequence[fx.Node | None]) -> Coords:
    """Return the shape of the elements that tensors of indices select."""
    begin, rank = named_dimensions(indices)
    shapes = [shape_of(i) for i in indices if i is not None]
    named = [next((s[-k] for s in shapes if len(s) >= k and s[-k] != 1), ONE) for k in range(rank, 0, -1)]
    rest = [extent for extent, tensor in zip_longest(shape, indices) if tensor is None]
    return (*rest[:begin], *named, *rest[begin:])


def named_dimensions(indices: Sequence[fx.Node | None]) -> tuple[int, int]:
    """Return (first, number) of the dimensions of tensors of indices in the selected elements."""
    places = [i for i, t in enumerate(indices) if t is not None]
    rank = max(len(shape_of(t)) for t in indices if t is not None)
    return places[0] if places == list(range(places[0], places[-1] + 1)) else 0, rank
