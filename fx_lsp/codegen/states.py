"""What may be the states of a loop that stores nothing in its rounds: what it adds up, or leaves for the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fx_lsp.codegen.values import Compute, Load, Value

LEAST = 6
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
    many = {key: found for key, found in alike.items() if len(found) >= LEAST}
    kind = {id(v): key for key, found in many.items() for v in found}
    lasts = {id(v) for found in many.values() for v in found[-MOST_ALIKE:]}
    for last in [v for v in reversed(values) if id(v) in lasts]:
        for way in _ways(last, kind):
            states = [last]
            while (before := _followed(states[-1], way)) is not None and kind.get(id(before)) == kind[id(last)]:
                states.append(before)
            if len(states) >= LEAST:
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
