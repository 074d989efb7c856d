"""Tensors that are put together slice by slice: the gradient of what a function takes apart, `x[0]`, `x[1]`, …"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.edits import inserted, is_zero, replaced
from fx_lsp.codegen.registry import operation

aten = torch.ops.aten


def join_slices(graph: fx.Graph) -> None:
    """Replace sums of tensors that are zero but for one slice each by joining the slices, where all are there. What
    else is added is added to that."""
    for node in reversed(list(graph.nodes)):
        if operation(node) != "aten.add.Tensor" or not node.users or any(_is_sum(u) for u in node.users):
            continue
        slices = _slices(node)
        if slices is None:
            continue
        dim, parts, rest = slices
        with graph.inserting_before(node):
            joined: list[fx.Node] = []
            for number in range(node.meta["val"].shape[dim]):
                first, *others = parts[number]
                for other in others:
                    first = inserted(graph, node, aten.add.Tensor, (first, other))
                joined.append(inserted(graph, node, aten.unsqueeze.default, (first, dim)))
            made = inserted(graph, node, aten.cat.default, (joined, dim))
            for other in rest:
                made = inserted(graph, node, aten.add.Tensor, (other, made))
        replaced(graph, node, made)
    graph.eliminate_dead_code()


def _is_sum(node: fx.Node) -> bool:
    return operation(node) == "aten.add.Tensor" and not node.kwargs and all(isinstance(a, fx.Node) for a in node.args)


def _slices(total: fx.Node) -> tuple[int, dict[int, list[fx.Node]], list[fx.Node]] | None:
    """The dimension that a sum of slices is joined along, the slices by number, and what else it adds up; None where it
    is no such sum."""
    value = total.meta["val"]
    stack: list[Any] = [total]
    dims: set[int] = set()
    parts: dict[int, list[fx.Node]] = {}
    others: list[fx.Node] = []
    while stack:
        node = stack.pop()
        if _is_sum(node) and (node is total or len(node.users) == 1):
            stack.extend(node.args)
        elif not _is_slice(node, value):
            others.append(node)
        else:
            _, part, dim, number = node.args
            dims.add(dim % value.dim())
            parts.setdefault(number % value.shape[dim], []).append(part)
    if len(dims) != 1 or len(parts) != value.shape[next(iter(dims))]:
        return None
    return dims.pop(), parts, others


def _is_slice(node: Any, total: torch.Tensor) -> bool:
    """Whether a tensor of the shape of a sum is zero but for one slice whose number is known."""
    if operation(node) != "aten.select_scatter.default" or node.meta["val"].shape != total.shape:
        return False
    base, _, dim, number = node.args
    return is_zero(base) and all(isinstance(n, int) for n in (dim, number, total.shape[dim]))
