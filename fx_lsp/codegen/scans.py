"""Loops over time in a joint graph: what backward needs of each step is saved for it, all steps of it in one tensor.

Without that, backward computes all steps again before its first, and has to hold all of them. That is faster as long as
there are few short ones, as there is less to read, and as they reduce nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.attention import dependents
from fx_lsp.codegen.edits import inserted
from fx_lsp.codegen.families import slice_of
from fx_lsp.codegen.lowerings.reductions import is_reduction
from fx_lsp.codegen.lowerings.views import argument, dimension
from fx_lsp.codegen.own import tidied
from fx_lsp.codegen.registry import is_random, operation
from fx_lsp.codegen.stepsums import sum_once

aten = torch.ops.aten

LEAST = 4
"""From how many steps on there is a loop."""

MANY = 17
"""From how many steps on backward does not compute them again."""

MUCH = 320
"""From how many operations of all steps on it does not, either."""


@dataclass(frozen=True)
class Families:
    """The names of nodes that are the same in each step, in their order, or "" where the first or the last has none.

    `first` are the names of all nodes of the first step.
    """

    names: tuple[tuple[str, ...], ...]
    first: frozenset[str]


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


def _kind(result: Any) -> Any:
    """What two results have in common that may be rows of one tensor."""
    value = result.meta["val"] if isinstance(result, fx.Node) else None
    return (value.dtype, value.shape, value.device) if isinstance(value, torch.Tensor) else None


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


def _joined(parts: Sequence[fx.Node]) -> tuple[fx.Node | None, list[tuple[Any, ...]]]:
    """A tensor that forward joins all parts in, and the slices of it that they are; None where there is no such."""
    for user in parts[0].users:
        unsqueezed = operation(user) == "aten.unsqueeze.default"
        for cat in [u for u in user.users if operation(u) == "aten.cat.default"] if unsqueezed else [user]:
            if operation(cat) != "aten.cat.default":
                continue
            given: Any = cat.args[0]
            dim = dimension(argument(cat, 1, "dim", 0), cat.meta["val"].dim())
            start, slices = 0, dict[fx.Node, tuple[Any, ...]]()
            for each in given:
                size = each.meta["val"].shape[dim]
                if operation(each) == "aten.unsqueeze.default" and each.args[1] % each.meta["val"].dim() == dim:
                    slices[each.args[0]] = aten.select.int, dim, start
                slices[each] = aten.slice.Tensor, dim, start, start + size
                start += size
            if all(p in slices for p in parts):
                return cat, [slices[p] for p in parts]
    return None, []


def stack_saved(forward: fx.Graph, backward: fx.Graph, families: Families) -> None:
    """Have forward save in one tensor what it saves of each step, and backward take it from there."""
    output = next(n for n in reversed(forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] | None = list(output.meta["desc"]) if "desc" in output.meta else None
    taken = {n.name: n for n in backward.nodes if n.op == "placeholder"}
    first = families.first - {name for family in families.names for name in family}
    for named in families.names:
        at = {r.name: k for k, r in enumerate(results) if isinstance(r, fx.Node) and r.name in taken}
        family = named if named[-1] in at else named[:-1]
        if not all(name in at for name in family[1:]):
            continue
        if family[0] not in at:
            wanted = _kind(results[at[family[1]]])
            like = [n for n in at if n in first and _kind(results[at[n]]) == wanted]
            family = (*like[:1], *family[1:])
        if len(family) < len(named) - 2:
            continue
        parts = [results[at[name]] for name in family]
        saved, slices = _joined(parts)
        if saved is None:
            with forward.inserting_before(output):
                wide = [inserted(forward, p, aten.unsqueeze.default, (p, 0)) for p in parts]
                saved = inserted(forward, parts[-1], aten.cat.default, (wide, 0))
            saved.name = f"{family[0]}_of_all"
            slices = [(aten.select.int, 0, step) for step in range(len(parts))]
        stacked = taken.get(saved.name)
        if stacked is None:
            with backward.inserting_before(taken[family[0]]):
                stacked = backward.placeholder(saved.name)
            stacked.meta = {**taken[family[0]].meta, "val": saved.meta["val"]}
            stacked.name = saved.name
        for name, (function, *where) in zip(family, slices, strict=True):
            with backward.inserting_after(taken[name]):
                part = inserted(backward, stacked, function, (stacked, *where))
            taken[name].replace_all_uses_with(part)
            backward.erase_node(taken[name])
            part.name = name
        first_at, gone = at[family[0]], {at[name] for name in family[1:]}
        results[first_at] = saved
        results = [r for k, r in enumerate(results) if k not in gone]
        described = [d for k, d in enumerate(described) if k not in gone] if described is not None else None
        taken = {n.name: n for n in backward.nodes if n.op == "placeholder"}
    output.args = (tuple(results),)
    if described is not None:
        output.meta["desc"] = described
    tidied(backward)
