"""Kernels that do the same again and again, as a loop: over time, where a step takes what the step before it left.

What a kernel stores tells the rounds apart: the stores into one tensor, each as far from the one before it; or what it
adds up; or the states that lead to what it stores in the end. The first rounds may be others. What a round takes of
what was computed before all of them, as backward does of the steps that it computes again, is made in a loop of its
own, which keeps it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from fx_lsp.codegen.matching import Different, Loop, Matching
from fx_lsp.codegen.values import Addition, Axes, Compute, Load, Store, Value, values_of

LEAST = 4
"""From how many rounds on there is a loop."""

STORELESS = 6
"""From how many steps on there is a loop that stores nothing itself, but adds up what they make, or leaves a state."""

MOST_ALIKE = 4
"""How many values that are made by the same operation may lie between the states of two steps."""

MOST_PASSED = 256
"""How many values are looked at between the states of two steps."""

AHEAD = 2
"""How many rounds may come before the loop because they are others."""

MOST_ORDERED = 3
"""For how many tensors it is tried whether what is stored into them comes the other way round."""

MOST_KEPT = 32
"""Of how many rounds something may be kept."""


@dataclass(frozen=True)
class Making:
    """The loop that makes what another one takes, which goes through it in the same order or `backwards`.

    `made` has, for each value of the body, what it is in all rounds, those before the loop included.
    """

    loop: Loop
    made: tuple[tuple[Value, ...], ...]
    backwards: bool


@dataclass(frozen=True)
class Rounds:
    """A loop that stores, with what is stored before, in, and behind it, and how what it takes was made."""

    loop: Loop
    before: tuple[Store, ...]
    body: tuple[Store, ...]
    after: tuple[Store, ...]
    making: Making | None

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores, in order."""
        return (*self.before, *self.body, *self.after)

    @property
    def loads(self) -> tuple[Load, ...]:
        """What the rounds load."""
        values = values_of([*(s.value for s in self.body), *(c.following for c in self.loop.carried)])
        return tuple(v for v in values if isinstance(v, Load) and id(v) in self.loop.inside)

    @property
    def held(self) -> int:
        """How many values there are at once, of each element, where something is kept for the rounds."""
        if self.making is None:
            return 0
        return sum(map(len, self.making.made)) + len(self.loads) * (self.loop.end - self.loop.first)


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
    if number < LEAST or any(len(s) not in (1, number - 1, number) for s in by_buffer.values()):
        return None
    several = [sorted(s, key=lambda store: _needs(store.value)) for s in by_buffer.values() if len(s) > 1]
    single = [s for s in stores if len(by_buffer[s.buffer.name]) == 1]
    for ordered in _orders(several):
        rows = [[s[k] for s in ordered if k < len(s)] for k in range(number)]
        for end in (number, number - 1):
            loop, behind = rows[:end], [s for row in rows[end:] for s in row]
            if any(len(row) != len(rows[0]) for row in loop):
                continue
            for first, reloads in product(range(min(AHEAD, end - LEAST + 1) + 1), (False, True)):
                try:
                    return _rounds(loop, [*single, *behind], first, reloads)
                except Different:
                    continue
    return None


def _storeless(stores: Sequence[Store]) -> Rounds | None:
    """The loop of steps that store nothing themselves, or None."""
    values = list(values_of(v for s in stores for v in s.values))
    added = _added(values)
    for rows in (added, *_states(values)):
        for first, reloads in product(range(AHEAD + 1) if len(rows) >= STORELESS else (), (False, True)):
            matching = Matching([[v] for v in rows], first, len(rows) - first <= MOST_KEPT, reloads)
            before, after = _apart(stores, matching)
            try:
                loop = matching.loop([s.value for s in after])
                if loop.carried:
                    return _made(loop, before, (), after)
            except Different:
                continue
    return None


def _added(values: Sequence[Value]) -> list[Value]:
    """What the longest sum adds up, in order."""
    terms: dict[int, list[Value]] = {}
    for value in values:
        if isinstance(value, Compute) and value.template == "a + b":
            left, right = value.args
            terms[id(value)] = [*terms.get(id(left), [left]), right]
    return max(terms.values(), key=len, default=[])


def _states(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Values that may be what each step leaves for the next one: all made by the same operation, each in the same way
    of the one before it. Those that are made last come first."""
    alike: dict[tuple[str, torch.dtype, Axes], list[Value]] = {}
    for value in values:
        if isinstance(value, Compute):
            alike.setdefault((value.template, value.dtype, value.axes), []).append(value)
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
    matching = Matching([[s.value for s in row] for row in rows], first, len(rows) - first <= MOST_KEPT, reloads)
    before, after = _apart(others, matching)
    loop = matching.loop([s.value for s in after])
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
    known = {id(v) for v in values_of(v for c in columns for v in c)}
    candidates = [v for v in values_of(taken) if id(v) not in known]
    found: list[tuple[Value, ...]] = []
    for column in columns:
        for value in candidates:
            if _is_next(column, value):
                found.append((*column, value))
                break
        else:
            return []
    return found


def _is_next(column: tuple[Value, ...], value: Value) -> bool:
    last = column[-1]
    if type(value) is not type(last) or (value.dtype, value.axes) != (last.dtype, last.axes):
        return False
    rows = [(v,) for v in (*column, value)]
    for first in range(min(AHEAD, len(rows) - 3) + 1):
        try:
            Matching(rows, first).loop([])
        except Different:
            continue
        return True
    return False
