"""The gradient of what all steps of a loop share: a sum over time of sums over elements becomes one sum over elements.

What it sums builds up in the loop over time, element by element, and is reduced once, behind it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import fx

from fx_lsp.codegen.edits import added_up, converted, inserted, is_zero, replaced
from fx_lsp.codegen.registry import aliases_first, operation

aten = torch.ops.aten
_LINEAR = {"aten.mul.Tensor": (0, 1), "aten.where.self": (1,)}
_SUMS = ("aten.sum.default", "aten.sum.dim_IntList")
_KEY = "fx_lsp_whole"
_PARTS = "fx_lsp_parts"

ROWS = range(256, 1025)
"""How many elements a program may reduce that has also gone through the steps: it holds much of each of them."""


def is_whole(node: fx.Node) -> bool:
    """Whether a node has to be in memory, so that what is made of it is no part of the loop that makes it."""
    return node.meta.get(_KEY, False)


def parts_of(node: fx.Node) -> int:
    """Into how many parts a reduction of what a loop over time makes is to be split; 0 for any other."""
    return node.meta.get(_PARTS, 0)


def in_parts(node: fx.Node, number: int) -> None:
    """Have a reduction be split into so many parts, unless it is known already."""
    node.meta.setdefault(_PARTS, number)


def sum_once(graph: fx.Graph, steps: int) -> None:
    """Replace sums of reductions, about one for each of a number of steps, by the reduction of a sum."""
    for node in reversed(list(graph.nodes)):
        if operation(node) != "aten.add.Tensor" or any(operation(u) == "aten.add.Tensor" for u in node.users):
            continue
        terms, around = _terms(node), list[tuple[fx.Node, int]]()
        while (inner := _inside(terms)) is not None:
            terms = inner[0]
            around.append(inner[1:])
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
            for wrapper, place in reversed(around):
                args = [total if k == place else a for k, a in enumerate(wrapper.args)]
                total = inserted(graph, node, wrapper.target, tuple(args))
        replaced(graph, node, total)
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


def _inside(terms: Terms) -> tuple[Terms, fx.Node, int] | None:
    """What all terms are made of in the same way, which is linear, taken apart further; the first that is made so, and
    where in it stands what it is made of. None where they are not."""
    _, first = terms[0]
    for place in _LINEAR.get(operation(first), ()):
        found: Terms = []
        for negative, term in terms:
            inner = _argument(term, first, place)
            if inner is None:
                break
            parts = _terms(inner) if len(inner.users) == 1 else [(False, inner)]
            found += [(negative != sign, part) for sign, part in parts]
        else:
            return found, first, place
    return None


def _argument(term: fx.Node, like: fx.Node, place: int) -> fx.Node | None:
    """What stands at a place of a term, all else being as in another; None where it is not."""
    if operation(term) != operation(like) or len(term.users) != 1 or term.kwargs:
        return None
    args: list[Any] = list(term.args)
    if operation(term) == "aten.mul.Tensor" and args[place] is like.args[1 - place]:
        args.reverse()
    if operation(term) == "aten.where.self" and not is_zero(args[2]):
        return None
    if any(a is not b for k, (a, b) in enumerate(zip(args, like.args, strict=True)) if k != place):
        return None
    return args[place] if isinstance(args[place], fx.Node) else None


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
    with graph.inserting_before(node):
        total = added_up(graph, node, sources, dtype)
        parts = _parts(reductions[0][0])
        total.meta[_KEY] = parts == 0
        for number, step in enumerate(reductions[0]):
            total = inserted(graph, node, step.target, (total, *step.args[1:]), step.kwargs)
            if number == 0:
                in_parts(total, parts)
        return converted(graph, node, total, dtype)


def _parts(reduction: fx.Node) -> int:
    """How many programs the reduction of everything takes that goes through the steps, too; 0 where it is apart."""
    source: Any = reduction.args[0]
    size, results = source.meta["val"].numel(), reduction.meta["val"].numel()
    if not isinstance(size, int) or not isinstance(results, int) or results != 1:
        return 0
    if size < ROWS.stop:
        return 1
    return next((size // each for each in reversed(ROWS) if size % each == 0), 0)
