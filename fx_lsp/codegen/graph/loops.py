"""Loops over time in a joint graph: what backward needs of each step is saved, what all steps share is summed once.

Without the first, backward computes all steps again before its first, and has to hold all of them. That is faster as
long as there are few short ones, as there is less to read, and as they reduce nothing. The gradient of what all steps
share is a sum over time of sums over elements: what it sums builds up in the loop over time, element by element, and is
reduced once, behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.graph.edit import added_up, converted, inserted, replaced
from fx_lsp.codegen.graph.query import dependents, is_reduction, is_zero, slice_of
from fx_lsp.codegen.graph.saved import Families
from fx_lsp.codegen.ir.ops import aliases_first, is_random, operation

aten = torch.ops.aten

LEAST = 4
"""From how many steps on there is a loop."""

MANY = 17
"""From how many steps on backward does not compute them again."""

MUCH = 320
"""From how many operations of all steps on it does not, either."""


def keep_states(graph: fx.Graph) -> Families:
    """Have what all steps of a loop share be computed and summed once, and many steps, or long ones, or such as reduce
    something, not be computed again.

    Returns what is the same in all steps that are not.
    """
    steps = _steps(graph)
    if steps:
        _merge(graph, {n for step in steps for n in step})
        sum_once(graph, len(steps))
    reduces = any(is_reduction(n) for step in steps[1:] for n in step)
    many = reduces or len(steps) >= MANY or sum(map(len, steps)) >= MUCH
    if len(steps) < LEAST or not many:
        return Families((), frozenset())
    number = {n: k for k, step in enumerate(steps) for n in step}
    families: dict[int, dict[int, fx.Node]] = {}
    signatures: dict[Any, int] = {}
    for k, step in enumerate(steps):
        known: dict[fx.Node, int] = {}
        for node in step:
            signature = _signature(node, k, number, known)
            known[node] = signatures.setdefault(signature, len(signatures))
            families.setdefault(known[node], {}).setdefault(k, node)
    states = {_state(n, number) for n, k in number.items() if any(number.get(u) == k + 1 for u in n.users)}
    inner = set(range(1, len(steps) - 1))
    repeated = [f for f in families.values() if inner <= set(f)]
    states.update(n for f in repeated if states & set(f.values()) for n in f.values())
    for node in states:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    names = [tuple(f[k].name if k in f else "" for k in range(len(steps))) for f in repeated]
    return Families(tuple(names), frozenset(n.name for n in steps[0]))


def _state(node: fx.Node, number: Mapping[fx.Node, int]) -> fx.Node:
    """What a step leaves for the next one, of which the next one takes `node`: what that is made of alone."""
    while number[node]:
        inside = [i for i in node.all_input_nodes if i in number]
        if len(inside) != 1 or number[inside[0]] != number[node] or slice_of(node) is not None:
            return node
        node = inside[0]
    return node


def _merge(graph: fx.Graph, inside: Collection[fx.Node]) -> None:
    """Have what each step computes for itself of what all of them share be computed once."""
    known: dict[Any, fx.Node] = {}
    for node in [n for n in graph.nodes if n.op == "call_function" and n not in inside]:
        if node.is_impure() or is_random(node):
            continue
        first = known.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _steps(graph: fx.Graph) -> list[list[fx.Node]]:
    """The nodes of forward by the step that they belong to, in the order of steps, which may go through slices from the
    last one to the first; [] without steps."""
    backward = dependents(graph)
    slices: dict[tuple[fx.Node, int], dict[int, list[fx.Node]]] = {}
    for node in graph.nodes:
        found = slice_of(node)
        if found is not None and node not in backward:
            source, dim, index = found
            slices.setdefault((source, dim), {}).setdefault(index, []).append(node)
    sizes = [source.meta["val"].shape[dim] for source, dim in slices]
    whole = [(n, each) for n, each in zip(sizes, slices.values(), strict=True) if isinstance(n, int) and n >= LEAST]
    whole = [(n, each) for n, each in whole if set(each) == set(range(n))]
    length = min((n for n, _ in whole), default=0)
    # some may have one slice more, from before or after all steps
    if not whole or max(n for n, _ in whole) > length + 1:
        return []
    given = {n: min(k, length - 1) for _, each in whole for k, nodes in each.items() for n in nodes}
    forwards, backwards = (_listed(graph, given, length, backward, last) for last in (True, False))
    longest, other = (max(map(len, listed)) for listed in (forwards, backwards))
    return forwards if longest <= other else backwards[::-1]


def _listed(
    graph: fx.Graph, given: Mapping[fx.Node, int], length: int, backward: Collection[fx.Node], last: bool
) -> list[list[fx.Node]]:
    """The nodes of each step: of what is made of several, the `last`, or the first."""
    steps = dict(given)
    listed: list[list[fx.Node]] = [[] for _ in range(length)]
    for node in graph.nodes:
        if node.op != "call_function" or node in backward or len(node.all_input_nodes) >= length:
            continue
        if node not in steps:
            found = [steps[i] for i in node.all_input_nodes if i in steps]
            if not found:
                continue
            steps[node] = max(found) if last else min(found)
        listed[steps[node]].append(node)
    return listed


def _signature(node: fx.Node, step: int, number: Mapping[fx.Node, int], known: Mapping[fx.Node, int]) -> Any:
    """What a node is in its step: the same for the nodes that compute the same in other steps. `known` has numbers for
    the signatures of nodes before it."""
    found = slice_of(node)
    if found is not None:
        return found[:2]

    def of(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return tuple(map(of, argument))
        if not isinstance(argument, fx.Node):
            return argument
        if argument in known:
            return "known", known[argument]
        if number.get(argument, -1) != step - 1:
            return argument
        alone = step or {number.get(u, step) for u in argument.users} == {step}  # what the first takes is its alone
        return "before" if alone else argument

    return node.target, of(node.args), of(tuple(node.kwargs.items()))


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
