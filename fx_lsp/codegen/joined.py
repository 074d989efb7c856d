"""Sums over what is stacked become sums of its parts, which need not be in memory then: a mean of what steps give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.edits import added_up, converted, inserted, replaced
from fx_lsp.codegen.lowerings.reductions import reduced_dimensions
from fx_lsp.codegen.lowerings.views import argument, dimension
from fx_lsp.codegen.registry import operation

aten = torch.ops.aten
_REDUCTIONS = ("aten.sum.dim_IntList", "aten.mean.dim")

FEWEST = 4
"""From how many parts on: fewer are not worth a look."""


def sum_parts(graph: fx.Graph) -> None:
    """Add up the parts of what is stacked and then summed, or averaged, over the dimension that made."""
    for node in list(graph.nodes):
        dims = reduced_dimensions(node) if operation(node) in _REDUCTIONS else ()
        parts = _stacked(node.args[0], dims[0]) if len(dims) == 1 else []
        if len(parts) < FEWEST:
            continue
        value = node.meta["val"]
        with graph.inserting_before(node):
            total = added_up(graph, node, parts, value.dtype)
            if operation(node) == "aten.mean.dim":
                total = inserted(graph, node, aten.div.Tensor, (total, len(parts)))
            total = converted(graph, node, total, value.dtype)
            if total.meta["val"].dim() < value.dim():
                total = inserted(graph, node, aten.unsqueeze.default, (total, reduced_dimensions(node)[0]))
        replaced(graph, node, total)
    graph.eliminate_dead_code()


def _stacked(node: Any, dim: int) -> Sequence[fx.Node]:
    """The tensors that a node stacks along a dimension, and that nothing but the reduction takes from it; or none."""
    found = stacked(node) if isinstance(node, fx.Node) else None
    source: Any = node.args[0] if found is not None else None
    alone = len(node.users) == 1 and (not isinstance(source, fx.Node) or len(source.users) == 1)
    return found[1] if found is not None and found[0] == dim and alone else []


def stacked(node: fx.Node) -> tuple[int, Sequence[fx.Node]] | None:
    """Along which new dimension a node stacks tensors, and which; None where it does not."""
    joins: Any = node.args[0] if operation(node) == "aten.view.default" else node
    if operation(joins) != "aten.cat.default":
        return None
    given: Any = joins.args[0]
    rank = joins.meta["val"].dim()
    dim = dimension(argument(joins, 1, "dim", 0), rank)
    if joins is node:
        apart = all(operation(g) == "aten.unsqueeze.default" and dimension(g.args[1], rank) == dim for g in given)
        return (dim, [g.args[0] for g in given]) if apart else None
    shape = tuple(given[0].meta["val"].shape)
    alike = all(tuple(g.meta["val"].shape) == shape for g in given)
    fits = alike and tuple(node.meta["val"].shape) == (*shape[:dim], len(given), *shape[dim:])
    return (dim, given) if fits else None
