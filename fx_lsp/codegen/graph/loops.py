"""The loops of a graph: which iteration a node belongs to, which operation of the body it is, what is saved of each.

A loop is traced as a graph in which the same operations follow one another again and again. It is where their sequence
is periodic; an iteration begins where the fewest values are carried from one to the next. The first and the last may be
others: there, a node is what others in its place take, or are taken by. Backward goes through the same iterations from
the last one to the first: autograd numbers the operations of forward, and those of backward that differentiate them.

What backward needs of each step of a loop over time is saved. Else it computes all steps again before its first, and
has to hold all of them. That is faster as long as there are few short ones, as there is less to read, and as they
reduce nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.graph.query import backward_nodes, is_reduction, slice_of
from fx_lsp.codegen.graph.reductions import sum_after_loop
from fx_lsp.codegen.graph.saved import StepFamilies
from fx_lsp.codegen.ir.lowerings import is_random
from fx_lsp.codegen.ir.node_facts import Iteration, add_facts, facts_of
from fx_lsp.periods import numbered, runs

Iterations: TypeAlias = "dict[fx.Node, Iteration]"

MIN_LOOP_STEPS = 4
"""From how many steps on there is a loop."""

MIN_STEPS_TO_SAVE = 17
"""From how many steps on backward does not compute them again."""

MIN_OPERATIONS_TO_SAVE = 320
"""From how many operations of all steps on it does not, either."""


def find_loops(graph: fx.Graph) -> None:
    """Have each node of a loop, in forward and in backward, know its iteration."""
    backward = backward_nodes(graph)
    computed = [n for n in graph.nodes if n.op == "call_function"]
    end = next((k for k, n in enumerate(computed) if n in backward), len(computed))
    iterations: Iterations = {}
    loops = _add_periodic(iterations, computed[:end], 0)
    _add_backward(iterations, computed[end:], backward, loops)
    _add_periodic(iterations, [n for n in computed[end:] if n not in iterations], 2 * loops)
    for node, iteration in iterations.items():
        add_facts(node, iteration=iteration)


def takers_of_later_iterations(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield nodes of a loop that take something of a later iteration of it."""
    for node in graph.nodes:
        at = facts_of(node).iteration
        inputs = [i for n in node.all_input_nodes if (i := facts_of(n).iteration) is not None]
        if at is not None and any(_is_later(i, at) for i in inputs):
            yield node


def _add_periodic(iterations: Iterations, nodes: Sequence[fx.Node], first: int) -> int:
    """Add loops where a sequence of nodes is periodic, numbered from `first` on; return how many."""
    periods = list(_disjoint_periods(nodes))
    for loop, (repeated, period) in enumerate(periods, first):
        places = {n: k for k, n in enumerate(repeated)}
        _extend(places, repeated, period)
        begin = _boundary(places, repeated, period)
        begin += (min(places.values()) - begin) // period * period
        for node, place in places.items():
            iterations.setdefault(node, Iteration(loop, *divmod(place - begin, period)))
    return len(periods)


def _disjoint_periods(nodes: Sequence[fx.Node]) -> Iterator[tuple[Sequence[fx.Node], int]]:
    """Yield (nodes, period) where a sequence is periodic: of stretches that overlap, those that repeat the most."""
    is_covered = [False] * len(nodes)
    stretches = runs(numbered(map(_operation_key, nodes, (None, *nodes))))
    for start, stop, period in sorted(stretches, key=lambda s: (s[0] - s[1] + s[2], s[2])):
        while start < stop and is_covered[start]:
            start += 1
        while start < stop and is_covered[stop - 1]:
            stop -= 1
        if stop - start >= 3 * period and not any(is_covered[start:stop]):
            is_covered[start:stop] = [True] * (stop - start)
            yield nodes[start:stop], period


def _operation_key(node: fx.Node, before: fx.Node | None) -> Any:
    """Return a key of what a node does to its inputs, whichever they are, but for the node before it; slices have the
    same."""
    value, is_slice = node.meta.get("val"), slice_of(node) is not None

    def of(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return tuple(map(of, argument))
        if isinstance(argument, fx.Node):
            return argument is before
        if is_slice and type(argument) is int:
            return int
        return repr(argument)

    kind = (repr(value.shape), value.dtype) if isinstance(value, torch.Tensor) else type(value)
    return node.target, of(node.args), of(tuple(node.kwargs.items())), kind


def _extend(places: dict[fx.Node, int], nodes: Sequence[fx.Node], period: int) -> None:
    """Add the places of what comes before some nodes that repeat, and after them, as the same comes in other
    iterations."""
    by_place = dict(enumerate(nodes))

    def add(node: fx.Node, place: int, pending: list[fx.Node]) -> None:
        if node not in places and place not in by_place:
            places[node], by_place[place] = place, node
            pending.append(node)

    pending = list(nodes[:period])
    while pending:
        node = pending.pop()
        other = by_place.get(places[node] + period)
        if other is None or len(other.all_input_nodes) != len(node.all_input_nodes):
            continue
        for mine, others in zip(node.all_input_nodes, other.all_input_nodes, strict=True):
            if others in places and mine.target == others.target:
                add(mine, places[others] - period, pending)
    pending = list(nodes[-period:])
    while pending:
        node = pending.pop()
        other = by_place.get(places[node] - period)
        for others in other.users if other is not None else ():
            for mine in node.users if others in places else ():
                if mine.target == others.target and _inputs_that_are(mine, node) == _inputs_that_are(others, other):
                    add(mine, places[others] + period, pending)


def _inputs_that_are(node: fx.Node, source: fx.Node | None) -> list[int]:
    """Return which inputs of a node another one is."""
    return [k for k, i in enumerate(node.all_input_nodes) if i is source]


def _boundary(places: Mapping[fx.Node, int], nodes: Sequence[fx.Node], period: int) -> int:
    """Return the place where an iteration begins: where the fewest values are needed behind, so that there are the
    fewest iterations."""
    middle = (len(nodes) // period // 2) * period
    changes = [0] * (period + 1)
    for node in nodes[: middle + period]:
        last = max((places[u] for u in node.users if u in places), default=-1)
        if last >= middle:
            changes[max(places[node] + 1 - middle, 0)] += 1
            changes[min(last + 1 - middle, period)] -= 1
    live = list(accumulate(changes[:period]))
    first, last = min(places.values()), max(places.values())
    return min(range(period), key=lambda k: (live[k], (last - k) // period - (first - k) // period, k))


def _add_backward(iterations: Iterations, nodes: Iterable[fx.Node], backward: Collection[fx.Node], loops: int) -> None:
    """Add the nodes that backward is made of: each belongs to the iteration of what it differentiates, a sum to that of
    what it adds up, and all to a later one that they take something of. Those that take gradients are of a loop of
    their own, which begins with the last iteration."""
    origins, ends = dict[int, Iteration](), dict[int, int]()
    for node, iteration in iterations.items():
        origins.setdefault(node.meta.get("seq_nr", -1), iteration)
        ends[iteration.loop] = max(iteration.number, ends.get(iteration.loop, 0))
    positions, counts = dict[Any, int](), Counter[Any]()
    new = 1 + max((i.position for i in iterations.values()), default=0)
    for node in nodes:
        takes_gradient, sequence_number = node in backward, node.meta.get("seq_nr", -2)
        origin = origins.get(sequence_number)
        if origin is not None and takes_gradient:
            origin = Iteration(origin.loop + loops, ends[origin.loop] - origin.number, origin.position)
        inputs = [i for n in node.all_input_nodes if (i := iterations.get(n)) is not None]
        inputs = [i for i in inputs if (i.loop >= loops) == takes_gradient]
        latest = max(inputs, key=lambda i: (-i.loop, i.number), default=None)  # backward begins with the last loop
        if latest is not None and (node.target is torch.ops.aten.add.Tensor or _is_later(latest, origin)):
            place, key = latest, (latest.loop, latest.position, node.target)
        elif origin is not None:
            counts[sequence_number, node.target] += 1
            place, key = origin, (origin.loop, origin.position, node.target, counts[sequence_number, node.target])
        else:
            continue
        iterations[node] = Iteration(place.loop, place.number, positions.setdefault(key, new + len(positions)))


def _is_later(one: Iteration, other: Iteration | None) -> bool:
    """Return whether an iteration comes after another one of its loop."""
    return other is not None and one.loop == other.loop and one.number > other.number


def save_loop_states(graph: fx.Graph) -> StepFamilies:
    """Have what all steps of a loop share be computed and summed once, and many steps, or long ones, or such as reduce
    something, not be computed again.

    Returns what is the same in all steps that are not.
    """
    if any(_takes_slices(steps) for steps in _loops(graph)):
        _deduplicate(graph)
    saved: list[tuple[fx.Node | None, ...]] = []
    first: set[fx.Node] = set()
    for steps in _loops(graph):
        if not _takes_slices(steps):
            continue
        sum_after_loop(graph, len(steps))
        if len(steps) < MIN_LOOP_STEPS or not _is_worth_saving(steps):
            continue
        families = _families(steps)
        for node in _states(families):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        saved += [tuple(f.get(k) for k in range(len(steps))) for f in families]
        first.update(steps[0])
    return StepFamilies(tuple(saved), frozenset(first))


def _loops(graph: fx.Graph) -> list[list[list[fx.Node]]]:
    """Return, of each loop of forward, the nodes of each step, in the order of steps."""
    backward = backward_nodes(graph)
    loops: dict[int, dict[int, list[fx.Node]]] = {}
    for node in graph.nodes:
        iteration = facts_of(node).iteration
        if iteration is not None and node not in backward:
            loops.setdefault(iteration.loop, {}).setdefault(iteration.number, []).append(node)
    return [[steps[number] for number in sorted(steps)] for steps in loops.values()]


def _takes_slices(steps: Sequence[Sequence[fx.Node]]) -> bool:
    """Return whether each step takes a slice of its own of something."""
    step = steps[len(steps) // 2]
    return len(step) > 1 and any(slice_of(n) is not None for node in step for n in (node, *node.all_input_nodes))


def _families(steps: Sequence[Sequence[fx.Node]]) -> list[dict[int, fx.Node]]:
    """Return the nodes that compute the same in all steps, except perhaps the first and the last, by the number of the
    step."""
    families: dict[Any, dict[int, fx.Node]] = {}
    for number, step in enumerate(steps):
        for node in step:
            iteration = facts_of(node).iteration
            families.setdefault(iteration and iteration.position, {})[number] = node
    inner = set(range(1, len(steps) - 1))
    return [family for family in families.values() if inner <= set(family)]


def _is_worth_saving(steps: Sequence[Sequence[fx.Node]]) -> bool:
    """Return whether backward would compute too much again: many steps, long ones, or such as reduce something."""
    reduces = any(is_reduction(n) for step in steps[1:] for n in step)
    return reduces or len(steps) >= MIN_STEPS_TO_SAVE or sum(map(len, steps)) >= MIN_OPERATIONS_TO_SAVE


def _states(families: Iterable[Mapping[int, fx.Node]]) -> set[fx.Node]:
    """Return what steps leave for the next ones, and what is the same in other steps as any of that."""
    number = {n: k for family in families for k, n in family.items()}
    states = {_state_source(n, number) for n, k in number.items() if any(number.get(u) == k + 1 for u in n.users)}
    return states.union(n for f in families if states & set(f.values()) for n in f.values())


def _state_source(node: fx.Node, number: Mapping[fx.Node, int]) -> fx.Node:
    """Return the state that a step leaves for the next one, which takes `node`: what that is computed from alone."""
    while number[node]:
        inside = [i for i in node.all_input_nodes if i in number]
        if len(inside) != 1 or number[inside[0]] != number[node] or slice_of(node) is not None:
            return node
        node = inside[0]
    return node


def _deduplicate(graph: fx.Graph) -> None:
    """Have what is computed several times be computed once."""
    first_by_call: dict[Any, fx.Node] = {}
    for node in [n for n in graph.nodes if n.op == "call_function"]:
        if node.is_impure() or is_random(node):
            continue
        first = first_by_call.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
