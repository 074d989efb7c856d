"""Kernels that do the same again and again, as a loop: over time, where a step takes what the step before it left.

What a kernel stores tells the rounds apart: the stores into one tensor, each as far from the one before it; or what it
adds up; or the states that lead to what it stores in the end. The first and the last rounds may be others. What a round
takes of what was computed before all of them, as backward does of the steps that it computes again, is made in a loop
of its own, which keeps it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any

from fx_lsp.codegen.ir.loop import Loop, Making, Rounds
from fx_lsp.codegen.ir.values import Addition, Compute, Load, Store, Value, values_of
from fx_lsp.codegen.schedule.loop_body import Different, Matching, made_again

LEAST = 4
"""From how many rounds on there is a loop."""

AHEAD = 3
"""How many rounds may come before the loop because they are others."""

MOST_ORDERED = 3
"""For how many tensors it is tried whether what is stored into them comes the other way round."""

MOST_KEPT = 32
"""Of how many rounds something may be kept."""


def rounds_of(stores: Sequence[Store]) -> Rounds | None:
    """The loop that stores amount to, or None."""
    by_buffer: dict[str, list[Store]] = {}
    if any(isinstance(s, Addition) for s in stores):
        return None
    for store in stores:
        by_buffer.setdefault(store.buffer.name, []).append(store)
    number = max((len(s) for s in by_buffer.values()), default=0)
    if number == 1:
        return _storeless(stores)
    if number < LEAST or any(1 < len(s) < max(number - AHEAD, LEAST - 1) for s in by_buffer.values()):
        return None
    several = [_in_order(s) for s in by_buffer.values() if len(s) > 1]
    single = [s for s in stores if len(by_buffer[s.buffer.name]) == 1]
    for rows in chain.from_iterable(_rows(ordered, number) for ordered in _orders(several)):
        whole = [k for k, row in enumerate(rows) if len(row) == len(several)]
        for end in range(number, max(number - AHEAD, LEAST) - 1, -1):
            behind = [s for row in rows[end:] for s in row]
            firsts = range(whole[0], min(AHEAD, end - LEAST + 1) + 1) if end <= whole[-1] + 1 else ()
            for first, reloads in product(firsts, (False, True)):
                try:
                    return _rounds(rows[:end], [*single, *behind], first, reloads)
                except Different:
                    continue
    return None


def _in_order(stores: Sequence[Store]) -> list[Store]:
    """Stores into one tensor as they follow one another in it; what needs the most comes last."""
    found = sorted(stores, key=lambda store: store.index.subs(dict.fromkeys(store.index.free_symbols, 1 << 10)))
    return found if _needs(found[0].value) <= _needs(found[-1].value) else found[::-1]


def _rows(several: Sequence[Sequence[Store]], number: int) -> Iterator[list[list[Store]]]:
    """What may be stored in each round, of stores into several tensors. Some may lack the first or the last rounds:
    those that need about as much as others are of the same round."""
    middle = number // 2
    needed = _needs(next(s for s in several if len(s) == number)[middle].value)
    nearest = [
        min(range(number - len(s) + 1), key=lambda late, s=s: abs(_needs(s[middle - late].value) - needed))
        for s in several
    ]
    for late in (nearest, [0] * len(several)) if any(nearest) else (nearest,):
        rows: list[list[Store]] = [[] for _ in range(number)]
        for stores, by in zip(several, late, strict=True):
            for k, store in enumerate(stores, by):
                rows[k].append(store)
        yield rows


def _storeless(stores: Sequence[Store]) -> Rounds | None:
    """The loop of steps that store nothing themselves, or None."""
    values = list(values_of(v for s in stores for v in s.values))
    added = longest_sum(values)
    for rows in chain([added], states_of(values)):
        for first, reloads in product(range(AHEAD + 1) if len(rows) >= STORELESS else (), (False, True)):
            try:
                loop, before, after, _ = _matched([[v] for v in rows], first, reloads, stores)
                if loop.carried:
                    return _made(loop, before, (), after)
            except Different:
                continue
    return None


def _matched(
    rows: Sequence[Sequence[Value]], first: int, reloads: bool, others: Iterable[Store]
) -> tuple[Loop, tuple[Store, ...], tuple[Store, ...], Matching]:
    """The loop over `rows` from `first` on, which keeps as little as it can, the stores that do not need it, and those
    that do, and how it was found. Raises Different."""
    keeps = len(rows) - first <= MOST_KEPT
    matching = Matching(rows, first, keeps, reloads)
    before, after = _apart(others, matching)
    loop = matching.loop([s.value for s in after])
    again = made_again([k.values for k in loop.kept]) if loop.kept else None
    if again:
        matching = Matching(rows, first, keeps, reloads, again)
        loop = matching.loop([s.value for s in after])
    return loop, before, after, matching


def _apart(stores: Iterable[Store], matching: Matching) -> tuple[tuple[Store, ...], tuple[Store, ...]]:
    """Stores that do not need the loop, and those that do."""
    found = [(matching.depends(s.value), s) for s in stores]
    return tuple(s for needs, s in found if not needs), tuple(s for needs, s in found if needs)


def _orders(several: Sequence[Sequence[Store]]) -> Iterator[Sequence[Sequence[Store]]]:
    """The orders in which stores into several tensors may follow: as they need more, or against that for some. Of many,
    those that need the same in every round go one way or the other."""
    if len(several) <= MOST_ORDERED:
        for ways in product((1, -1), repeat=len(several)):
            yield [stores[::way] for stores, way in zip(several, ways, strict=True)]
        return
    level = [_needs(stores[1].value) == _needs(stores[-2].value) for stores in several]
    yield several
    if any(level):
        yield [stores[:: -1 if same else 1] for stores, same in zip(several, level, strict=True)]


def _needs(value: Value) -> int:
    """How much has to be computed for a value: more from round to round, where one takes what another left."""
    return sum(1 for _ in values_of([value]))


def _rounds(rows: Sequence[Sequence[Store]], others: Iterable[Store], first: int, reloads: bool) -> Rounds:
    """The loop over `rows` from `first` on, beside other stores. Raises Different."""
    loop, before, after, matching = _matched([[s.value for s in row] for row in rows], first, reloads, others)
    columns = zip(*rows[first:], strict=True)
    body = [
        replace(column[0], index=matching.moving([s.index for s in column]), value=value)
        for column, value in zip(columns, loop.body, strict=True)
    ]
    return _made(loop, (*before, *(s for row in rows[:first] for s in row)), tuple(body), after)


def _made(loop: Loop, before: tuple[Store, ...], body: tuple[Store, ...], after: tuple[Store, ...]) -> Rounds:
    """Rounds, and how what they take is made. Raises Different."""
    taken = [s.value for s in (*before, *body, *after)]
    taken += [v for c in loop.carried for v in (c.start, c.following)]
    return Rounds(loop, before, body, after, _making(loop, taken) if loop.kept else None)


def _making(loop: Loop, taken: Sequence[Value]) -> Making:
    """The loop that makes what `loop` takes in each round. `taken` is what is needed besides. Raises Different."""
    columns = [k.values for k in loop.kept]
    backwards = sum(_needs(c[0]) for c in columns) > sum(_needs(c[-1]) for c in columns)
    if backwards:
        columns = [tuple(reversed(c)) for c in columns]
    lasts = [c.last for c in loop.carried if c.last is not None]
    longer = _one_more(columns, taken)
    for made in (longer, columns) if longer else (columns,):
        rows = list(zip(*made, strict=True))
        for first in range(min(AHEAD, len(rows) - 3) + 1):
            try:
                found = Matching(rows, first).loop(taken, [*lasts, *(v for row in rows for v in row)])
            except Different:
                continue
            return Making(found, tuple(made), backwards)
    raise Different


def _one_more(columns: Sequence[tuple[Value, ...]], taken: Sequence[Value]) -> list[tuple[Value, ...]]:
    """Columns with one more value each, which is made as those before it and needed, too; [] where there is none."""
    known = list(values_of(v for c in columns for v in c))
    candidates = list(values_of(taken, map(id, known)))
    kind = kinds((*known, *candidates), DEEP)
    found: list[tuple[Value, ...]] = []
    for column in columns:
        for value in candidates:
            if kind.get(id(value)) == kind.get(id(column[-1])) and _is_next(column, value):
                found.append((*column, value))
                break
        else:
            return []
    return found


def _is_next(column: tuple[Value, ...], value: Value) -> bool:
    rows = [(v,) for v in (*column, value)]
    for first in range(min(AHEAD, len(rows) - 3) + 1):
        try:
            Matching(rows, first).loop([])
        except Different:
            continue
        return True
    return False


STORELESS = 6
"""From how many steps on there is a loop that stores nothing itself, but adds up what they make, or leaves a state."""

DEEP = 3
"""How far one looks into what values are made of to tell the states of long steps from what else these make."""

MOST_ALIKE = 4
"""How many values that are made in the same way may lie between the states of two steps."""

MOST_PASSED = 256
"""How many values are looked at between the states of two steps."""

MOST_TRIED = 24
"""How many rows of states there may be, by how far one looks."""


def longest_sum(values: Sequence[Value]) -> list[Value]:
    """What the longest sum adds up, in order."""
    terms: dict[int, list[Value]] = {}
    for value in values:
        if isinstance(value, Compute) and value.template == "a + b":
            left, right = value.args
            terms[id(value)] = [*terms.get(id(left), [left]), right]
    return max(terms.values(), key=len, default=[])


def kinds(values: Sequence[Value], deep: int) -> dict[int, int]:
    """Numbers of values that are computed, by what they are made of, and that, and so on, `deep` times."""
    numbers: dict[Any, int] = {}
    kind: dict[int, int] = {}
    for value in values:
        made: Any = (value.template, value.dtype, value.axes) if isinstance(value, Compute) else type(value)
        made = value.buffer.name if isinstance(value, Load) else made
        kind[id(value)] = numbers.setdefault(made, len(numbers))
    for _ in range(deep):
        made_of = {id(v): (kind[id(v)], *(kind[id(i)] for i in v.inputs)) for v in values}
        kind = {i: numbers.setdefault(made, len(numbers)) for i, made in made_of.items()}
    return {id(v): kind[id(v)] for v in values if isinstance(v, Compute)}


def states_of(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Values that may be what each step leaves for the next one: all made alike, each in the same way of the one before
    it. Those that are made last come first."""
    seen: set[tuple[int, int, int]] = set()
    for deep in (0, DEEP):
        found = 0
        for states in _alike(values, kinds(values, deep)):
            ends = id(states[0]), id(states[-1]), len(states)
            if ends not in seen:
                seen.add(ends)
                found += 1
                yield states
            if found == MOST_TRIED:
                break


def _alike(values: Sequence[Value], number: Mapping[int, int]) -> Iterator[list[Value]]:
    alike: dict[int, list[Value]] = {}
    for value in values:
        if id(value) in number:
            alike.setdefault(number[id(value)], []).append(value)
    many = {key: found for key, found in alike.items() if len(found) >= STORELESS}
    kind = {id(v): key for key, found in many.items() for v in found}
    lasts = {id(v) for found in many.values() for v in found[-MOST_ALIKE:]}
    for last in [v for v in reversed(values) if id(v) in lasts]:
        for way in _ways(last, kind):
            states = [last]
            while (before := _followed(states[-1], way)) is not None and kind.get(id(before)) == kind[id(last)]:
                states.append(before)
            if len(states) >= STORELESS:
                yield states[::-1]


def _ways(value: Value, kind: Mapping[int, Any]) -> Iterator[tuple[int, ...]]:
    """By which inputs one comes from a value to others of its kind, to the nearest first."""
    seen, nearest = {id(value)}, deque[tuple[Value, tuple[int, ...]]]([(value, ())])
    found = 0
    while nearest and found < MOST_ALIKE and len(seen) < MOST_PASSED:
        current, way = nearest.popleft()
        for number, each in enumerate(current.inputs):
            if id(each) not in seen:
                seen.add(id(each))
                nearest.append((each, (*way, number)))
                if kind.get(id(each)) == kind[id(value)]:
                    found += 1
                    yield nearest[-1][1]


def _followed(value: Value, way: Iterable[int]) -> Value | None:
    """What one comes to from a value by these inputs, or None."""
    for number in way:
        if number >= len(value.inputs):
            return None
        value = value.inputs[number]
    return value
