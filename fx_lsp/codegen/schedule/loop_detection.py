"""Turn kernels that repeat the same steps into loops, such as a loop over time in a recurrent network.

Each value records the iteration of the operation that it comes from (`graph/loops.py`): the stores of an iteration are
its results, or without stores the values that later code uses. Only a sum of slices has terms of no iteration; it
orders them. The first and the last iterations may differ. How many do depends on the values, as constants such as an
initial state are folded only there: the iterations are compared (`loop_body.py`), with more and more left out. If the
iterations of a backward take values of a forward that is recomputed, a loop of its own computes and saves these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import sympy

from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.loop import Loop, LoopKernel, ProducerLoop
from fx_lsp.codegen.ir.node_facts import Iteration, facts_of
from fx_lsp.codegen.ir.ops import ADD
from fx_lsp.codegen.ir.values import Compute, IndexedStore, Load, Reduction, Store, Value, values_of
from fx_lsp.codegen.schedule.loop_body import IterationsDiffer, LoopMatching, values_to_rematerialize

MIN_LOOP_STEPS = 4
"""The least number of iterations for a loop."""

MAX_PEELED = 3
"""The largest number of differing iterations before the loop."""

MAX_SAVED_ITERATIONS = 32
"""The largest number of iterations of which values may be saved."""


def detect_loop(stores: Sequence[Store]) -> LoopKernel | None:
    """Return the loop that computes some stores, or None."""
    by_buffer: dict[str, list[Store]] = {}
    for store in stores:
        by_buffer.setdefault(store.buffer.name, []).append(store)
    number = max((len(s) for s in by_buffer.values()), default=0)
    if any(isinstance(s, IndexedStore) for s in stores):
        return None
    if number == 1:
        return _loop_without_stores(stores)
    fewest = max(number - MAX_PEELED, MIN_LOOP_STEPS - 1)
    if number < MIN_LOOP_STEPS or any(1 < len(s) < fewest for s in by_buffer.values()):
        return None
    several = [sorted(s, key=_address) for s in by_buffer.values() if len(s) > 1]
    single = [s for s in stores if len(by_buffer[s.buffer.name]) == 1]
    for rows, behind, first, reloads in _attempts(_iteration_rows(several), len(several)):
        try:
            return _loop_of_stores(rows, [*single, *behind], first, reloads)
        except IterationsDiffer:
            continue
    return None


def iteration_of(value: Value) -> Iteration | None:
    """Return the iteration of the operation that a value comes from, or None."""
    return facts_of(value.node).iteration if value.node is not None else None


def _iteration_rows(several: Iterable[Sequence[Store]]) -> list[list[Store]]:
    """Return the stores of each iteration, for stores into several tensors that are in the order of their addresses.

    The first and the last store into a tensor may be of no iteration, or of another loop. They belong to the iterations
    before and after those of their neighbours. All iterations may store the same value, or copies of a tensor: then the
    stored nodes say the iterations. Returns [] if they do not.
    """
    rows: dict[int, list[Store]] = {}
    for stores in several:
        numbers = _iteration_numbers([iteration_of(s.value) for s in stores])
        numbers = numbers or _iteration_numbers([facts_of(s.node).iteration for s in stores])
        if not numbers:
            return []
        way = 1 if numbers[0][1] < numbers[-1][1] else -1
        place, number = numbers[len(numbers) // 2]
        for k, store in enumerate(stores):
            rows.setdefault(number + (k - place) * way, []).append(store)
    return [rows[number] for number in sorted(rows)]


def _iteration_numbers(iterations: Sequence[Iteration | None]) -> list[tuple[int, int]]:
    """Return (place, number) of the iterations in the loop of the middle one. Returns [] if all are the same one."""
    present = [(k, i) for k, i in enumerate(iterations) if i is not None]
    numbers = [(k, i.number) for k, i in present if i.loop == present[len(present) // 2][1].loop]
    return numbers if numbers and numbers[0][1] != numbers[-1][1] else []


def _states(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Yield the results of an operation of the body, one for each iteration, if other iterations or later code use
    them.

    Those with the most iterations come first, then those that later code uses, then the latest.
    """
    users: dict[int, list[Value]] = {}
    for value in values:
        for each in value.inputs:
            users.setdefault(id(each), []).append(value)
    families: dict[tuple[int, int], dict[int, Value]] = {}
    for value in values:
        if (at := iteration_of(value)) is not None and isinstance(value, (Compute, Reduction)):
            families.setdefault((at.loop, at.position), {})[at.number] = value
    order = {id(v): k for k, v in enumerate(values)}
    candidates: list[tuple[Any, list[Value]]] = []
    for (loop, _), family in families.items():
        row = [family[number] for number in sorted(family)]
        places = [(iteration_of(u), number) for number, v in family.items() for u in users.get(id(v), ())]
        last = [iteration_of(u) for u in users.get(id(row[-1]), ())]
        behind = not last or any(at is None or at.loop != loop for at in last)
        if behind or any(at is None or (at.loop, at.number) != (loop, number) for at, number in places):
            candidates.append(((-len(row), not behind, -order[id(row[-1])]), row))
    yield from (row for _, row in sorted(candidates, key=lambda candidate: candidate[0]))


def _attempts(rows: list[list[Store]], several: int) -> Iterator[tuple[list[list[Store]], list[Store], int, bool]]:
    """Yield candidates: the rows of a loop, the stores behind it, its first iteration, and whether it loads again.

    Candidates in reverse order follow, for backward loops over the iterations of another loop.
    """
    for ordered in (rows, rows[::-1]):
        whole = [k for k, row in enumerate(ordered) if len(row) == several] or [len(ordered)]
        for end in range(len(ordered), max(len(ordered) - MAX_PEELED, MIN_LOOP_STEPS - 1) - 1, -1):
            behind = [s for row in ordered[end:] for s in row]
            last_first = min(MAX_PEELED, end - MIN_LOOP_STEPS + 1) if end <= whole[-1] + 1 else -1
            for first, reloads in product(range(whole[0], last_first + 1), (False, True)):
                yield ordered[:end], behind, first, reloads


def _address(store: Store) -> Index:
    """Return the address of a store, for large sizes."""
    return store.index.subs(dict.fromkeys(store.index.free_symbols, 1 << 10))


def _loop_without_stores(stores: Sequence[Store]) -> LoopKernel | None:
    """Return the loop of iterations that store nothing themselves, or None."""
    values = list(values_of(v for s in stores for v in s.values))
    families = [_longest_sum(values), *_states(values)]
    peeled = range(MAX_PEELED + 1)
    for behind, rows, first, reloads in product(peeled, families, peeled, (False, True)):
        end = len(rows) - behind
        if end < MIN_STORELESS_STEPS:
            continue
        try:
            loop, before, after, _ = _match_loop([[v] for v in rows[:end]], first, reloads, stores)
            if loop.carried:
                return _with_producer(loop, before, (), after)
        except IterationsDiffer:
            continue
    return None


def _longest_sum(values: Sequence[Value]) -> list[Value]:
    """Return the terms of the longest sum, in order."""
    terms: dict[int, list[Value]] = {}
    for value in values:
        if isinstance(value, Compute) and value.op is ADD:
            left, right = value.args
            terms[id(value)] = [*terms.get(id(left), [left]), right]
    return max(terms.values(), key=len, default=[])


def _match_loop(
    rows: Sequence[Sequence[Value]], first: int, reloads: bool, others: Iterable[Store]
) -> tuple[Loop, tuple[Store, ...], tuple[Store, ...], LoopMatching]:
    """Return the loop over `rows` from `first` on, the stores independent of it, the dependent ones, and its matching.

    The loop saves as few values as possible. Raises IterationsDiffer.
    """
    keeps = len(rows) - first <= MAX_SAVED_ITERATIONS
    matching = LoopMatching(rows, first, keeps, reloads)
    before, after = _split_by_dependence(others, matching)
    loop = matching.loop([s.value for s in after])
    again = values_to_rematerialize([k.values for k in loop.inputs]) if loop.inputs else None
    if again:
        matching = LoopMatching(rows, first, keeps, reloads, again)
        loop = matching.loop([s.value for s in after])
    return loop, before, after, matching


def _split_by_dependence(
    stores: Iterable[Store], matching: LoopMatching
) -> tuple[tuple[Store, ...], tuple[Store, ...]]:
    """Return the stores that do not depend on the loop, and those that do."""
    dependences = [(matching.depends(s.value), s) for s in stores]
    return tuple(s for needs, s in dependences if not needs), tuple(s for needs, s in dependences if needs)


def _loop_of_stores(rows: Sequence[Sequence[Store]], others: Iterable[Store], first: int, reloads: bool) -> LoopKernel:
    """Return the loop over `rows` from `first` on, with other stores. Raises IterationsDiffer."""
    loop, before, after, matching = _match_loop([[s.value for s in row] for row in rows], first, reloads, others)
    columns = zip(*rows[first:], strict=True)
    body = [
        replace(column[0], index=matching.moving([s.index for s in column]), value=value)
        for column, value in zip(columns, loop.body, strict=True)
    ]
    return _with_producer(loop, (*before, *(s for row in rows[:first] for s in row)), tuple(body), after)


def _with_producer(
    loop: Loop, before: tuple[Store, ...], body: tuple[Store, ...], after: tuple[Store, ...]
) -> LoopKernel:
    """Return the loop with the producer of its inputs. Raises IterationsDiffer."""
    used = [s.value for s in (*before, *body, *after)]
    used += [v for c in loop.carried for v in (c.start, c.following)]
    return LoopKernel(loop, before, body, after, _producer_loop(loop, used) if loop.inputs else None)


def _producer_loop(loop: Loop, used: Sequence[Value]) -> ProducerLoop:
    """Return the loop that computes the inputs of `loop`. `used` are other values needed. Raises IterationsDiffer."""
    columns = [k.values for k in loop.inputs]
    numbers = [n for c in columns if (n := _iteration_numbers([iteration_of(v) for v in c]))]
    backwards = any(n[0][1] > n[-1][1] for n in numbers)
    if backwards:
        columns = [tuple(reversed(c)) for c in columns]
    lasts = [c.last for c in loop.carried if c.last is not None]
    longer = _extended_columns(columns, used)
    for produced in (longer, columns) if longer else (columns,):
        rows = list(zip(*produced, strict=True))
        for first in range(min(MAX_PEELED, len(rows) - 3) + 1):
            try:
                producer = LoopMatching(rows, first).loop(used, [*lasts, *(v for row in rows for v in row)])
            except IterationsDiffer:
                continue
            return ProducerLoop(producer, tuple(produced), backwards)
    raise IterationsDiffer


def _extended_columns(columns: Sequence[tuple[Value, ...]], used: Sequence[Value]) -> list[tuple[Value, ...]]:
    """Return columns with the values of one more iteration, if these are used, too. Returns [] if they are not."""
    column_values = values_of(v for c in columns for v in c)
    needed = {key: v for v in values_of(used, map(id, column_values)) if (key := _moved(v, v)) is not None}
    following = [needed.get(_moved(column[-1], column[-2])) for column in columns]
    values = [v for v in following if v is not None]
    return [(*c, v) for c, v in zip(columns, values, strict=True)] if len(values) == len(columns) else []


def _moved(value: Value, before: Value) -> Any:
    """Return a key of the value that follows `value` at the distance from `before`, or None outside of iterations."""
    if isinstance(value, Load) and isinstance(before, Load):
        return value.buffer.name, sympy.expand(2 * value.index - before.index)
    last, earlier = iteration_of(value), iteration_of(before)
    return replace(last, number=2 * last.number - earlier.number) if last is not None and earlier is not None else None


MIN_STORELESS_STEPS = 6
"""The least number of iterations for a loop that stores nothing itself but accumulates a sum or leaves a state."""
