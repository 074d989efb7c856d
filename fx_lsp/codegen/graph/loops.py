"""Find the loops of a graph: the iteration of each node, its operation in the body, and the values to save.

A loop is traced as a graph that repeats the same operations. It is a periodic part of the sequence; an iteration begins
where the fewest values are carried to the next. The first and the last may differ: there, a node matches by its inputs
or users. Backward runs through the same iterations in reverse: autograd numbers the operations of forward, and those of
backward that differentiate them.

The values of each step of a loop over time that backward needs are saved. Otherwise backward recomputes all steps
before its first, and has to hold all of them. That is faster for few short steps without reductions, because there is
less to read.
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
"""The least number of steps of a loop."""

MIN_STEPS_TO_SAVE = 17
"""The least number of steps that backward does not recompute."""

MIN_OPERATIONS_TO_SAVE = 320
"""The least number of operations of all steps that backward does not recompute."""


def find_loops(graph: fx.Graph) -> None:
    """Record the iteration of each node of a loop, in forward and in backward."""
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
    """Yield nodes of a loop that depend on a later iteration of it."""
    for node in graph.nodes:
        at = facts_of(node).iteration
        inputs = [i for n in node.all_input_nodes if (i := facts_of(n).iteration) is not None]
        if at is not None and any(_is_later(i, at) for i in inputs):
            yield node


def _add_periodic(iterations: Iterations, nodes: Sequence[fx.Node], first: int) -> int:
    """Add loops in the periodic parts of a sequence of nodes, numbered from `first` on; return their number."""
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
    """Yield (nodes, period) for the periodic parts of a sequence; of overlapping ones, those that repeat the most."""
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
    """Return a key of a node's operation, independent of its inputs except for the preceding node; slices have equal
    keys.
    """
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
    """Extend repeated nodes by the nodes before and after them that correspond to those of other iterations."""
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
    """Return the indices of a node's inputs that are another node."""
    return [k for k, i in enumerate(node.all_input_nodes) if i is source]


def _boundary(places: Mapping[fx.Node, int], nodes: Sequence[fx.Node], period: int) -> int:
    """Return the first node of an iteration: the place with the fewest live values, for the fewest iterations."""
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
    """Add the nodes of backward: each belongs to the iteration of the operation that it differentiates, a sum to that
    of its terms, and all to a later one that they depend on. Those that depend on gradients form a separate loop,
    which begins with the last iteration.
    """
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
    """Return True if an iteration follows another one of its loop."""
    return other is not None and one.loop == other.loop and one.number > other.number


def save_loop_states(graph: fx.Graph) -> StepFamilies:
    """Compute and sum values shared by all steps of a loop once, and save many or long steps, or steps with reductions.

    Returns the families of nodes that are saved.
    """
    if any(_is_over_time(steps) for steps in _loops(graph)):
        _deduplicate(graph)
    saved: list[tuple[fx.Node | None, ...]] = []
    first: set[fx.Node] = set()
    for steps in _loops(graph):
        if not _is_over_time(steps):
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
    """Return, for each loop of forward, the nodes of each step, in order."""
    backward = backward_nodes(graph)
    loops: dict[int, dict[int, list[fx.Node]]] = {}
    for node in graph.nodes:
        iteration = facts_of(node).iteration
        if iteration is not None and node not in backward:
            loops.setdefault(iteration.loop, {}).setdefault(iteration.number, []).append(node)
    return [[steps[number] for number in sorted(steps)] for steps in loops.values()]


def _is_over_time(steps: Sequence[Sequence[fx.Node]]) -> bool:
    """Return True if each step takes only its own slices and what all steps share, unlike a layer with its weights."""
    inside, middle = {n for step in steps for n in step}, len(steps) // 2
    sources = [_sources(step, inside) for step in steps[max(middle - 1, 0) : middle + 1]]
    return len(steps[middle]) > 1 and sources[0] == sources[-1]


def _sources(step: Sequence[fx.Node], inside: Collection[fx.Node]) -> set[fx.Node]:
    """Return the nodes outside of a loop that a step takes, or takes slices of."""
    nodes = {n for node in step for n in node.all_input_nodes if n not in inside}
    return {part[0] if (part := slice_of(n)) is not None else n for n in nodes}


def _takes_slices(step: Sequence[fx.Node]) -> bool:
    """Return True if a step reads its own slice of a tensor."""
    return any(slice_of(n) is not None for node in step for n in (node, *node.all_input_nodes))


def _families(steps: Sequence[Sequence[fx.Node]]) -> list[dict[int, fx.Node]]:
    """Return the nodes with the same computation in all steps, except perhaps the first and the last, by step."""
    families: dict[Any, dict[int, fx.Node]] = {}
    for number, step in enumerate(steps):
        for node in step:
            iteration = facts_of(node).iteration
            families.setdefault(iteration and iteration.position, {})[number] = node
    inner = set(range(1, len(steps) - 1))
    return [family for family in families.values() if inner <= set(family)]


def _is_worth_saving(steps: Sequence[Sequence[fx.Node]]) -> bool:
    """Return True if recomputation would be too expensive: many steps, long ones that read slices, or reductions."""
    reduces = any(is_reduction(n) for step in steps[1:] for n in step)
    is_long = sum(map(len, steps)) >= MIN_OPERATIONS_TO_SAVE and _takes_slices(steps[len(steps) // 2])
    return reduces or len(steps) >= MIN_STEPS_TO_SAVE or is_long


def _states(families: Iterable[Mapping[int, fx.Node]]) -> set[fx.Node]:
    """Return the loop-carried values, and the same values of other steps."""
    number = {n: k for family in families for k, n in family.items()}
    states = {_state_source(n, number) for n, k in number.items() if any(number.get(u) == k + 1 for u in n.users)}
    return states.union(n for f in families if states & set(f.values()) for n in f.values())


def _state_source(node: fx.Node, number: Mapping[fx.Node, int]) -> fx.Node:
    """Return the state that a step carries to the next one: the node that `node`, used there, depends on alone."""
    while number[node]:
        inside = [i for i in node.all_input_nodes if i in number]
        if len(inside) != 1 or number[inside[0]] != number[node] or slice_of(node) is not None:
            return node
        node = inside[0]
    return node


def _deduplicate(graph: fx.Graph) -> None:
    """Compute repeated expressions once."""
    first_by_call: dict[Any, fx.Node] = {}
    for node in [n for n in graph.nodes if n.op == "call_function"]:
        if node.is_impure() or is_random(node):
            continue
        first = first_by_call.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
