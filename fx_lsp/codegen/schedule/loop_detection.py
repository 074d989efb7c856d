"""Kernels that do the same again and again, as a loop: over time, where a step takes what the step before it left.

What a kernel stores tells the iterations apart: the stores into one tensor, each as far from the one before it; or what
it adds up; or the states that lead to what it stores in the end. The first and the last iterations may be others. What
an iteration takes of what was computed before all of them, as backward does of the steps that it computes again, is
computed in a loop of its own, which saves it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any

from fx_lsp.codegen.ir.loop import Loop, LoopKernel, ProducerLoop
from fx_lsp.codegen.ir.ops import ADD
from fx_lsp.codegen.ir.values import AtomicAdd, Compute, Load, Store, Value, values_of
from fx_lsp.codegen.schedule.loop_body import IterationsDiffer, LoopMatching, values_to_rematerialize

MIN_LOOP_STEPS = 4
"""From how many iterations on there is a loop."""

MAX_PEELED = 3
"""How many iterations may come before the loop because they are others."""

MAX_ORDERED_TENSORS = 3
"""For how many tensors it is tried whether what is stored into them comes the other way round."""

MAX_SAVED_ITERATIONS = 32
"""Of how many iterations something may be saved."""


def detect_loop(stores: Sequence[Store]) -> LoopKernel | None:
    """Return the loop that stores amount to, or None."""
    by_buffer: dict[str, list[Store]] = {}
    for store in stores:
        by_buffer.setdefault(store.buffer.name, []).append(store)
    number = max((len(s) for s in by_buffer.values()), default=0)
    if any(isinstance(s, AtomicAdd) for s in stores):
        return None
    if number == 1:
        return _loop_without_stores(stores)
    fewest = max(number - MAX_PEELED, MIN_LOOP_STEPS - 1)
    if number < MIN_LOOP_STEPS or any(1 < len(s) < fewest for s in by_buffer.values()):
        return None
    several = [_ordered_stores(s) for s in by_buffer.values() if len(s) > 1]
    single = [s for s in stores if len(by_buffer[s.buffer.name]) == 1]
    for rows in chain.from_iterable(_iteration_rows(ordered, number) for ordered in _orders(several)):
        for rows_inside, behind, first, reloads in _attempts(rows, number, len(several)):
            try:
                return _loop_of_stores(rows_inside, [*single, *behind], first, reloads)
            except IterationsDiffer:
                continue
    return None


def _attempts(
    rows: list[list[Store]], number: int, several: int
) -> Iterator[tuple[list[list[Store]], list[Store], int, bool]]:
    """Yield what of `rows` may be in a loop, the stores behind it, its first iteration, and whether it loads again."""
    whole = [k for k, row in enumerate(rows) if len(row) == several]
    for end in range(number, max(number - MAX_PEELED, MIN_LOOP_STEPS) - 1, -1):
        behind = [s for row in rows[end:] for s in row]
        firsts = range(whole[0], min(MAX_PEELED, end - MIN_LOOP_STEPS + 1) + 1) if end <= whole[-1] + 1 else ()
        for first, reloads in product(firsts, (False, True)):
            yield rows[:end], behind, first, reloads


def _ordered_stores(stores: Sequence[Store]) -> list[Store]:
    """Return stores into one tensor as they follow one another in it; what needs the most comes last."""
    ordered = sorted(stores, key=lambda store: store.index.subs(dict.fromkeys(store.index.free_symbols, 1 << 10)))
    return ordered if _cost(ordered[0].value) <= _cost(ordered[-1].value) else ordered[::-1]


def _iteration_rows(several: Sequence[Sequence[Store]], number: int) -> Iterator[list[list[Store]]]:
    """Yield what may be stored in each iteration, of stores into several tensors. Some may lack the first or the last
    iterations: those that need about as much as others are of the same iteration."""
    middle = number // 2
    needed = _cost(next(s for s in several if len(s) == number)[middle].value)
    nearest = [
        min(range(number - len(s) + 1), key=lambda late, s=s: abs(_cost(s[middle - late].value) - needed))
        for s in several
    ]
    for late in (nearest, [0] * len(several)) if any(nearest) else (nearest,):
        rows: list[list[Store]] = [[] for _ in range(number)]
        for stores, by in zip(several, late, strict=True):
            for k, store in enumerate(stores, by):
                rows[k].append(store)
        yield rows


def _loop_without_stores(stores: Sequence[Store]) -> LoopKernel | None:
    """Return the loop of steps that store nothing themselves, or None."""
    values = list(values_of(v for s in stores for v in s.values))
    added = longest_sum(values)
    for rows in chain([added], candidate_states(values)):
        for first, reloads in product(range(MAX_PEELED + 1) if len(rows) >= MIN_STORELESS_STEPS else (), (False, True)):
            try:
                loop, before, after, _ = _match_loop([[v] for v in rows], first, reloads, stores)
                if loop.carried:
                    return _with_producer(loop, before, (), after)
            except IterationsDiffer:
                continue
    return None


def _match_loop(
    rows: Sequence[Sequence[Value]], first: int, reloads: bool, others: Iterable[Store]
) -> tuple[Loop, tuple[Store, ...], tuple[Store, ...], LoopMatching]:
    """Return the loop over `rows` from `first` on, which keeps as little as it can, the stores that do not need it, and
    those that do, and how it was found. Raises IterationsDiffer."""
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
    """Return stores that do not need the loop, and those that do."""
    dependences = [(matching.depends(s.value), s) for s in stores]
    return tuple(s for needs, s in dependences if not needs), tuple(s for needs, s in dependences if needs)


def _orders(several: Sequence[Sequence[Store]]) -> Iterator[Sequence[Sequence[Store]]]:
    """Yield the orders in which stores into several tensors may follow: as they need more, or against that for some. Of
    many, those that need the same in every iteration go one way or the other."""
    if len(several) <= MAX_ORDERED_TENSORS:
        for ways in product((1, -1), repeat=len(several)):
            yield [stores[::way] for stores, way in zip(several, ways, strict=True)]
        return
    level = [_cost(stores[1].value) == _cost(stores[-2].value) for stores in several]
    yield several
    if any(level):
        yield [stores[:: -1 if same else 1] for stores, same in zip(several, level, strict=True)]


def _cost(value: Value) -> int:
    """Return how many values a value is computed from: more from iteration to iteration, where one takes what another
    left."""
    return sum(1 for _ in values_of([value]))


def _loop_of_stores(rows: Sequence[Sequence[Store]], others: Iterable[Store], first: int, reloads: bool) -> LoopKernel:
    """Return the loop over `rows` from `first` on, beside other stores. Raises IterationsDiffer."""
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
    """Return the loop with the producer of what its iterations take. Raises IterationsDiffer."""
    used = [s.value for s in (*before, *body, *after)]
    used += [v for c in loop.carried for v in (c.start, c.following)]
    return LoopKernel(loop, before, body, after, _producer_loop(loop, used) if loop.inputs else None)


def _producer_loop(loop: Loop, used: Sequence[Value]) -> ProducerLoop:
    """Return the loop that makes what `loop` takes in each iteration. `used` is what is needed besides. Raises
    IterationsDiffer."""
    columns = [k.values for k in loop.inputs]
    backwards = sum(_cost(c[0]) for c in columns) > sum(_cost(c[-1]) for c in columns)
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
    """Return columns with one more value each, which is made as those before it and needed, too; [] where there is
    none."""
    column_values = list(values_of(v for c in columns for v in c))
    candidates = list(values_of(used, map(id, column_values)))
    kind = value_kinds((*column_values, *candidates), KIND_DEPTH)
    extended: list[tuple[Value, ...]] = []
    for column in columns:
        for value in candidates:
            if kind.get(id(value)) == kind.get(id(column[-1])) and _continues_column(column, value):
                extended.append((*column, value))
                break
        else:
            return []
    return extended


def _continues_column(column: tuple[Value, ...], value: Value) -> bool:
    rows = [(v,) for v in (*column, value)]
    for first in range(min(MAX_PEELED, len(rows) - 3) + 1):
        try:
            LoopMatching(rows, first).loop([])
        except IterationsDiffer:
            continue
        return True
    return False


MIN_STORELESS_STEPS = 6
"""From how many steps on there is a loop that stores nothing itself, but adds up what they make, or leaves a state."""

KIND_DEPTH = 3
"""How far one looks into what values are made of to tell the states of long steps from what else these make."""

MAX_ALIKE = 4
"""How many values that are made in the same way may lie between the states of two steps."""

MAX_VISITED = 256
"""How many values are looked at between the states of two steps."""

MAX_CANDIDATES = 24
"""How many rows of states there may be, by how far one looks."""


def longest_sum(values: Sequence[Value]) -> list[Value]:
    """Return the terms of the longest sum, in order."""
    terms: dict[int, list[Value]] = {}
    for value in values:
        if isinstance(value, Compute) and value.op is ADD:
            left, right = value.args
            terms[id(value)] = [*terms.get(id(left), [left]), right]
    return max(terms.values(), key=len, default=[])


def value_kinds(values: Sequence[Value], deep: int) -> dict[int, int]:
    """Return numbers of values that are computed, by what they are made of, and that, and so on, `deep` times."""
    numbers: dict[Any, int] = {}
    kind: dict[int, int] = {}
    for value in values:
        key: Any = (value.op, value.dtype, value.axes) if isinstance(value, Compute) else type(value)
        key = value.buffer.name if isinstance(value, Load) else key
        kind[id(value)] = numbers.setdefault(key, len(numbers))
    for _ in range(deep):
        made_of = {id(v): (kind[id(v)], *(kind[id(i)] for i in v.inputs)) for v in values}
        kind = {i: numbers.setdefault(key, len(numbers)) for i, key in made_of.items()}
    return {id(v): kind[id(v)] for v in values if isinstance(v, Compute)}


def candidate_states(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Yield values that may be what each step leaves for the next one: all made alike, each in the same way of the one
    before it. Those that are made last come first."""
    seen: set[tuple[int, int, int]] = set()
    for deep in (0, KIND_DEPTH):
        tried = 0
        for states in _states_of_a_kind(values, value_kinds(values, deep)):
            ends = id(states[0]), id(states[-1]), len(states)
            if ends not in seen:
                seen.add(ends)
                tried += 1
                yield states
            if tried == MAX_CANDIDATES:
                break


def _states_of_a_kind(values: Sequence[Value], number: Mapping[int, int]) -> Iterator[list[Value]]:
    alike: dict[int, list[Value]] = {}
    for value in values:
        if id(value) in number:
            alike.setdefault(number[id(value)], []).append(value)
    many = {key: same_kind for key, same_kind in alike.items() if len(same_kind) >= MIN_STORELESS_STEPS}
    kind = {id(v): key for key, same_kind in many.items() for v in same_kind}
    lasts = {id(v) for same_kind in many.values() for v in same_kind[-MAX_ALIKE:]}
    for last in [v for v in reversed(values) if id(v) in lasts]:
        for way in _paths(last, kind):
            states = [last]
            while (before := _follow(states[-1], way)) is not None and kind.get(id(before)) == kind[id(last)]:
                states.append(before)
            if len(states) >= MIN_STORELESS_STEPS:
                yield states[::-1]


def _paths(value: Value, kind: Mapping[int, Any]) -> Iterator[tuple[int, ...]]:
    """Yield the paths of inputs that lead from a value to others of its kind, to the nearest first."""
    seen, nearest = {id(value)}, deque[tuple[Value, tuple[int, ...]]]([(value, ())])
    reached = 0
    while nearest and reached < MAX_ALIKE and len(seen) < MAX_VISITED:
        current, way = nearest.popleft()
        for number, each in enumerate(current.inputs):
            if id(each) not in seen:
                seen.add(id(each))
                nearest.append((each, (*way, number)))
                if kind.get(id(each)) == kind[id(value)]:
                    reached += 1
                    yield nearest[-1][1]


def _follow(value: Value, way: Iterable[int]) -> Value | None:
    """Return the value at the end of a path of inputs, or None."""
    for number in way:
        if number >= len(value.inputs):
            return None
        value = value.inputs[number]
    return value
