"""The gradient of what all steps of a loop share: a sum over time of sums over elements becomes one sum over elements.

What it sums builds up in the loop over time, element by element, and is reduced once, behind it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.own import inserted
from fx_lsp.codegen.registry import aliases_first, operation

aten = torch.ops.aten
_SUMS = ("aten.sum.default", "aten.sum.dim_IntList")
_KEY = "fx_lsp_whole"


def is_whole(node: fx.Node) -> bool:
    """Whether a node has to be in memory, so that what is made of it is no part of the loop that makes it."""
    return _KEY in node.meta


def sum_once(graph: fx.Graph, steps: int) -> None:
    """Replace sums of reductions, about one for each of a number of steps, by the reduction of a sum."""
    for node in reversed(list(graph.nodes)):
        if operation(node) != "aten.add.Tensor" or any(operation(u) == "aten.add.Tensor" for u in node.users):
            continue
        terms = _terms(node)
        reduced = [_reduction(term) for term in terms]
        if len(terms) < max(2, steps - 1) or any(r is None or _kind(r) != _kind(reduced[0]) for r in reduced):
            continue
        total = _total(graph, node, [r for r in reduced if r is not None])
        node.replace_all_uses_with(total)
        name = node.name
        graph.erase_node(node)
        total.name = name
    graph.eliminate_dead_code()


def _terms(node: fx.Node) -> list[fx.Node]:
    """What is added up, in the order in which it is: the terms of a sum that nothing but the sum takes."""
    terms: list[fx.Node] = []
    stack: list[Any] = [node]
    while stack:
        current = stack.pop()
        plain = operation(current) == "aten.add.Tensor" and not current.kwargs
        if plain and (current is node or len(current.users) == 1) and all(isinstance(a, fx.Node) for a in current.args):
            stack.extend(reversed(current.args))
        else:
            terms.append(current)
    return terms


def _reduction(term: fx.Node) -> tuple[fx.Node, ...] | None:
    """A reduction, and the views of it that lead to a term; None for anything else."""
    found = [term]
    while aliases_first(found[-1]) and isinstance(found[-1].args[0], fx.Node):
        found.append(found[-1].args[0])
    alone = all(len(n.users) == 1 for n in found)
    return tuple(reversed(found)) if alone and operation(found[-1]) in _SUMS else None


def _kind(reduction: tuple[fx.Node, ...] | None) -> Any:
    """What reductions have in common that may be one."""
    if reduction is None:
        return None
    source: Any = reduction[0].args[0]
    value = source.meta["val"]
    return value.shape, value.dtype, [(n.target, n.args[1:], n.kwargs) for n in reduction]


def _total(graph: fx.Graph, node: fx.Node, reductions: list[tuple[fx.Node, ...]]) -> fx.Node:
    """The reduction of a sum of what is reduced; half precision is added up in single precision."""
    sources: list[Any] = [r[0].args[0] for r in reductions]
    dtype = sources[0].meta["val"].dtype
    wide = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype
    with graph.inserting_before(node):
        total: Any = None
        for source in sources:
            if wide != dtype:
                source = inserted(graph, node, torch.ops.prims.convert_element_type.default, (source, wide))
            total = source if total is None else inserted(graph, node, aten.add.Tensor, (total, source))
        total.meta[_KEY] = True
        for step in reductions[0]:
            total = inserted(graph, node, step.target, (total, *step.args[1:]), step.kwargs)
        if wide != dtype:
            total = inserted(graph, node, torch.ops.prims.convert_element_type.default, (total, dtype))
    return total
