"""The gradient of what all steps of a loop share: a sum over time of sums over elements becomes one sum over elements.

What it sums builds up in the loop over time, element by element, and is reduced once, behind it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

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
        factor, terms = _factored(_terms(node))
        groups: dict[Any, list[tuple[fx.Node, ...]]] = {}
        for negative, term in terms:
            reduced = _reduction(term)
            groups.setdefault((negative, _kind(reduced)), []).append(reduced or (term,))
        if any(kind is None or len(found) < max(2, steps - 1) for (_, kind), found in groups.items()):
            continue
        with graph.inserting_before(node):
            total: Any = None
            for (negative, _), found in sorted(groups.items(), key=lambda group: group[0][0]):
                part = _total(graph, node, found)
                if total is None:
                    total = inserted(graph, node, aten.neg.default, (part,)) if negative else part
                else:
                    total = inserted(graph, node, aten.sub.Tensor if negative else aten.add.Tensor, (total, part))
            if factor is not None:
                total = inserted(graph, node, aten.mul.Tensor, (total, factor))
        node.replace_all_uses_with(total)
        name = node.name
        graph.erase_node(node)
        total.name = name
    graph.eliminate_dead_code()


Terms: TypeAlias = "list[tuple[bool, fx.Node]]"
"""What is added up, each with whether it is subtracted."""


def _terms(node: fx.Node) -> Terms:
    """What is added up, in the order in which it is: the terms of a sum that nothing but the sum takes."""
    terms: Terms = []
    stack: list[tuple[bool, Any]] = [(False, node)]
    while stack:
        negative, current = stack.pop()
        name = operation(current) if isinstance(current, fx.Node) else ""
        plain = current is node or (len(current.users) == 1 and not current.kwargs)
        nodes = plain and all(isinstance(a, fx.Node) for a in current.args)
        if nodes and name == "aten.add.Tensor":
            stack.extend((negative, a) for a in reversed(current.args))
        elif nodes and name == "aten.sub.Tensor":
            stack.extend([(not negative, current.args[1]), (negative, current.args[0])])
        elif nodes and name == "aten.neg.default":
            stack.append((not negative, current.args[0]))
        else:
            terms.append((negative, current))
    return terms


def _factored(terms: Terms) -> tuple[fx.Node | None, Terms]:
    """What all terms are multiplied with, and the terms without it, taken apart further."""
    products = [t for _, t in terms if operation(t) == "aten.mul.Tensor" and len(t.users) == 1]
    shared = [set(p.all_input_nodes) for p in products]
    common = set[fx.Node]().intersection(*shared) if not shared else shared[0].intersection(*shared)
    if len(products) < len(terms) or len(common) != 1 or any(len(p.all_input_nodes) != 2 for p in products):
        return None, terms
    (factor,) = common
    found: Terms = []
    for negative, product in terms:
        other = next(i for i in product.all_input_nodes if i is not factor)
        inner = _terms(other) if len(other.users) == 1 else [(False, other)]
        found += [(negative != sign, term) for sign, term in inner]
    return factor, found


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
    return value.shape, value.dtype, tuple((n.target, repr(n.args[1:]), repr(n.kwargs)) for n in reduction)


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
