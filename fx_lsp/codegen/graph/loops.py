"""Loops over time in a joint graph: what backward needs of each step is saved, what all steps share is summed once.

Without the first, backward computes all steps again before its first, and has to hold all of them. That is faster as
long as there are few short ones, as there is less to read, and as they reduce nothing. The gradient of what all steps
share is a sum over time of sums over elements: what it sums builds up in the loop over time, element by element, and is
reduced once, behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.graph.edit import insert_call, insert_cast, insert_sum, replace_node
from fx_lsp.codegen.graph.query import backward_nodes, is_reduction, is_zero, slice_of
from fx_lsp.codegen.graph.saved import StepFamilies
from fx_lsp.codegen.ir.lowerings import aliases_first, is_random, operation
from fx_lsp.codegen.ir.node_facts import add_facts, facts_of

aten = torch.ops.aten

MIN_LOOP_STEPS = 4
"""From how many steps on there is a loop."""

MIN_STEPS_TO_SAVE = 17
"""From how many steps on backward does not compute them again."""

MIN_OPERATIONS_TO_SAVE = 320
"""From how many operations of all steps on it does not, either."""


def save_loop_states(graph: fx.Graph) -> StepFamilies:
    """Have what all steps of a loop share be computed and summed once, and many steps, or long ones, or such as reduce
    something, not be computed again.

    Returns what is the same in all steps that are not.
    """
    steps = _steps(graph)
    if steps:
        _deduplicate(graph, {n for step in steps for n in step})
        sum_after_loop(graph, len(steps))
    if len(steps) < MIN_LOOP_STEPS or not _is_worth_saving(steps):
        return StepFamilies()
    number = {n: k for k, step in enumerate(steps) for n in step}
    inner = set(range(1, len(steps) - 1))
    repeated = [f for f in _families(steps, number) if inner <= set(f)]
    for node in _states(repeated, number):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    families = (tuple(f.get(k) for k in range(len(steps))) for f in repeated)
    return StepFamilies(tuple(families), frozenset(steps[0]))


def _is_worth_saving(steps: Sequence[Sequence[fx.Node]]) -> bool:
    """Return whether backward would compute too much again: many steps, long ones, or such as reduce something."""
    reduces = any(is_reduction(n) for step in steps[1:] for n in step)
    return reduces or len(steps) >= MIN_STEPS_TO_SAVE or sum(map(len, steps)) >= MIN_OPERATIONS_TO_SAVE


def _states(families: Iterable[Mapping[int, fx.Node]], number: Mapping[fx.Node, int]) -> set[fx.Node]:
    """Return what steps leave for the next ones, and what is the same in other steps as any of that."""
    states = {_state_source(n, number) for n, k in number.items() if any(number.get(u) == k + 1 for u in n.users)}
    return states.union(n for f in families if states & set(f.values()) for n in f.values())


def _families(steps: Sequence[Sequence[fx.Node]], number: Mapping[fx.Node, int]) -> list[dict[int, fx.Node]]:
    """Return the nodes that compute the same in their steps, by the number of the step."""
    families: dict[int, dict[int, fx.Node]] = {}
    signatures: dict[Any, int] = {}
    for k, step in enumerate(steps):
        signature_numbers: dict[fx.Node, int] = {}
        for node in step:
            signature = _signature(node, k, number, signature_numbers)
            signature_numbers[node] = signatures.setdefault(signature, len(signatures))
            families.setdefault(signature_numbers[node], {}).setdefault(k, node)
    return list(families.values())


def _state_source(node: fx.Node, number: Mapping[fx.Node, int]) -> fx.Node:
    """Return the state that a step leaves for the next one, which takes `node`: what that is computed from alone."""
    while number[node]:
        inside = [i for i in node.all_input_nodes if i in number]
        if len(inside) != 1 or number[inside[0]] != number[node] or slice_of(node) is not None:
            return node
        node = inside[0]
    return node


def _deduplicate(graph: fx.Graph, inside: Collection[fx.Node]) -> None:
    """Have what each step computes for itself of what all of them share be computed once."""
    first_by_call: dict[Any, fx.Node] = {}
    for node in [n for n in graph.nodes if n.op == "call_function" and n not in inside]:
        if node.is_impure() or is_random(node):
            continue
        first = first_by_call.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def _steps(graph: fx.Graph) -> list[list[fx.Node]]:
    """Return the nodes of forward by the step that they belong to, in the order of steps, which may go through slices
    from the last one to the first; [] without steps."""
    backward = backward_nodes(graph)
    slices: dict[tuple[fx.Node, int], dict[int, list[fx.Node]]] = {}
    for node in graph.nodes:
        part = slice_of(node)
        if part is not None and node not in backward:
            source, dim, index = part
            slices.setdefault((source, dim), {}).setdefault(index, []).append(node)
    sizes = [source.meta["val"].shape[dim] for source, dim in slices]
    whole = [
        (n, each) for n, each in zip(sizes, slices.values(), strict=True) if isinstance(n, int) and n >= MIN_LOOP_STEPS
    ]
    whole = [(n, each) for n, each in whole if set(each) == set(range(n))]
    length = min((n for n, _ in whole), default=0)
    # some may have one slice more, from before or after all steps
    if not whole or max(n for n, _ in whole) > length + 1:
        return []
    step_of_slice = {n: min(k, length - 1) for _, each in whole for k, nodes in each.items() for n in nodes}
    forwards, backwards = (_nodes_by_step(graph, step_of_slice, length, backward, last) for last in (True, False))
    longest, other = (max(map(len, listed)) for listed in (forwards, backwards))
    return forwards if longest <= other else backwards[::-1]


def _nodes_by_step(
    graph: fx.Graph, step_of_slice: Mapping[fx.Node, int], length: int, backward: Collection[fx.Node], last: bool
) -> list[list[fx.Node]]:
    """Return the nodes of each step: of what is made of several, the `last`, or the first."""
    steps = dict(step_of_slice)
    listed: list[list[fx.Node]] = [[] for _ in range(length)]
    for node in graph.nodes:
        if node.op != "call_function" or node in backward or len(node.all_input_nodes) >= length:
            continue
        if node not in steps:
            input_steps = [steps[i] for i in node.all_input_nodes if i in steps]
            if not input_steps:
                continue
            steps[node] = max(input_steps) if last else min(input_steps)
        listed[steps[node]].append(node)
    return listed


def _signature(
    node: fx.Node, step: int, number: Mapping[fx.Node, int], signature_numbers: Mapping[fx.Node, int]
) -> Any:
    """Return a key of a node in its step: the same for the nodes that compute the same in other steps.
    `signature_numbers` has numbers for the signatures of nodes before it."""
    part = slice_of(node)
    if part is not None:
        return part[:2]

    def of(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return tuple(map(of, argument))
        if not isinstance(argument, fx.Node):
            return argument
        if argument in signature_numbers:
            return "known", signature_numbers[argument]
        if number.get(argument, -1) != step - 1:
            return argument
        alone = step or {number.get(u, step) for u in argument.users} == {step}  # what the first takes is its alone
        return "before" if alone else argument

    return node.target, of(node.args), of(tuple(node.kwargs.items()))


_LINEAR = {"aten.mul.Tensor": (0, 1), "aten.where.self": (1,)}
_SUMS = ("aten.sum.default", "aten.sum.dim_IntList")

PROGRAM_ELEMENTS = range(256, 1025)
"""How many elements a program may reduce that has also gone through the steps: it holds much of each of them."""


def plan_parts(node: fx.Node, number: int) -> None:
    """Have a reduction be split into so many parts, unless it is known already."""
    if facts_of(node).parts is None:
        add_facts(node, parts=number)


def sum_after_loop(graph: fx.Graph, steps: int) -> None:
    """Replace sums of reductions, about one for each of a number of steps, by the reduction of a sum."""
    for node in reversed(list(graph.nodes)):
        if operation(node) != "aten.add.Tensor" or any(operation(u) == "aten.add.Tensor" for u in node.users):
            continue
        terms, around = _terms(node), list[tuple[fx.Node, int]]()
        while (inner := _common_factor(terms)) is not None:
            terms = inner[0]
            around.append(inner[1:])
        groups: dict[Any, list[tuple[fx.Node, ...]]] = {}
        for negative, term in terms:
            reduced = _reduction_chain(term)
            groups.setdefault((negative, _reduction_kind(reduced)), []).append(reduced or (term,))
        if any(kind is None or len(reductions) < max(2, steps - 1) for (_, kind), reductions in groups.items()):
            continue
        with graph.inserting_before(node):
            total: Any = None
            for (negative, _), reductions in sorted(groups.items(), key=lambda group: group[0][0]):
                part = _reduce_sum(graph, node, reductions)
                if total is None:
                    total = insert_call(graph, node, aten.neg.default, (part,)) if negative else part
                else:
                    total = insert_call(graph, node, aten.sub.Tensor if negative else aten.add.Tensor, (total, part))
            for wrapper, place in reversed(around):
                args = [total if k == place else a for k, a in enumerate(wrapper.args)]
                total = insert_call(graph, node, wrapper.target, tuple(args))
        replace_node(graph, node, total)
    graph.eliminate_dead_code()


Terms: TypeAlias = "list[tuple[bool, fx.Node]]"
"""What is added up, each with whether it is subtracted."""


def _terms(node: fx.Node) -> Terms:
    """Return the terms of a sum that nothing but the sum takes."""
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


def _common_factor(terms: Terms) -> tuple[Terms, fx.Node, int] | None:
    """Return (terms of the other factor, the first term, the position of that factor in it) if all terms are the same
    linear function of something; None else."""
    _, first = terms[0]
    for place in _LINEAR.get(operation(first), ()):
        inner_terms: Terms = []
        for negative, term in terms:
            inner = _differing_argument(term, first, place)
            if inner is None:
                break
            parts = _terms(inner) if len(inner.users) == 1 else [(False, inner)]
            inner_terms += [(negative != sign, part) for sign, part in parts]
        else:
            return inner_terms, first, place
    return None


def _differing_argument(term: fx.Node, like: fx.Node, place: int) -> fx.Node | None:
    """Return the argument of a term at `place` if all others are those of `like`; None else."""
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


def _reduction_chain(term: fx.Node) -> tuple[fx.Node, ...] | None:
    """Return a reduction, and the views of it that lead to a term; None for anything else."""
    chain = [term]
    while aliases_first(chain[-1]) and isinstance(chain[-1].args[0], fx.Node):
        chain.append(chain[-1].args[0])
    alone = all(len(n.users) == 1 for n in chain)
    return tuple(reversed(chain)) if alone and operation(chain[-1]) in _SUMS else None


def _reduction_kind(reduction: tuple[fx.Node, ...] | None) -> Any:
    """Return a key that reductions have in common which may be one."""
    if reduction is None:
        return None
    source: Any = reduction[0].args[0]
    value = source.meta["val"]
    return value.shape, value.dtype, tuple((n.target, repr(n.args[1:]), repr(n.kwargs)) for n in reduction)


def _reduce_sum(graph: fx.Graph, node: fx.Node, reductions: list[tuple[fx.Node, ...]]) -> fx.Node:
    """Return the reduction of a sum of what is reduced; half precision is added up in single precision."""
    sources: list[Any] = [r[0].args[0] for r in reductions]
    dtype = sources[0].meta["val"].dtype
    with graph.inserting_before(node):
        total = insert_sum(graph, node, sources, dtype)
        parts = _program_count(reductions[0][0])
        add_facts(total, must_materialize=parts == 0)
        for number, step in enumerate(reductions[0]):
            total = insert_call(graph, node, step.target, (total, *step.args[1:]), step.kwargs)
            if number == 0:
                plan_parts(total, parts)
        return insert_cast(graph, node, total, dtype)


def _program_count(reduction: fx.Node) -> int:
    """Return the number of programs for a full reduction that goes through the steps, too; 0 where it is apart."""
    source: Any = reduction.args[0]
    size, results = source.meta["val"].numel(), reduction.meta["val"].numel()
    if not isinstance(size, int) or not isinstance(results, int) or results != 1:
        return 0
    if size < PROGRAM_ELEMENTS.stop:
        return 1
    return next((size // each for each in reversed(PROGRAM_ELEMENTS) if size % each == 0), 0)
