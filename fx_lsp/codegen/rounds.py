"""Kernels that do the same again and again, as a loop: over time, where a step takes what the step before it left.

What a kernel stores tells the rounds apart: the stores into one tensor, each as far from the one before it. Their
values are gone through side by side. They make one body if they differ only in where they load, by as much from round
to round, and in what a round takes from the one before it, which is carried. The first rounds may be others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import sympy

from fx_lsp.codegen.index import Index
from fx_lsp.codegen.values import Addition, Compute, Constant, Given, Load, Store, Value, values_of

LEAST = 4
"""From how many rounds on there is a loop."""

AHEAD = 2
"""How many rounds may come before the loop because they are others."""

MOST_CARRIED = 8
"""How many values a loop may carry."""


@dataclass(frozen=True)
class Carried:
    """What a round leaves for the next one: `start` for the first, `following` for each other.

    `given` stands for it in the body, `last` is the value that it is behind the loop, if that is needed.
    """

    given: Given
    start: Value
    following: Value
    last: Value | None


@dataclass(frozen=True)
class Rounds:
    """A loop in which `step` goes from `first` to `end`, exclusive, with what is stored before, in, and behind it."""

    step: sympy.Symbol
    first: int
    end: int
    before: tuple[Store, ...]
    body: tuple[Store, ...]
    after: tuple[Store, ...]
    carried: tuple[Carried, ...]
    inside: frozenset[int]

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores, in order."""
        return (*self.before, *self.body, *self.after)


class _Different(Exception):
    """The rounds do not all do the same."""


def rounds_of(stores: Sequence[Store]) -> Rounds | None:
    """The loop that stores amount to, or None."""
    by_buffer: dict[str, list[Store]] = {}
    if any(isinstance(s, Addition) for s in stores):
        return None
    for store in stores:
        by_buffer.setdefault(store.buffer.name, []).append(store)
    number = max((len(s) for s in by_buffer.values()), default=0)
    if number < LEAST or any(len(s) not in (1, number - 1, number) for s in by_buffer.values()):
        return None
    several = [sorted(s, key=_needs) for s in by_buffer.values() if len(s) > 1]
    single = [s for s in stores if len(by_buffer[s.buffer.name]) == 1]
    rows = [[s[k] for s in several if k < len(s)] for k in range(number)]
    for end in (number, number - 1):
        loop, behind = rows[:end], [s for row in rows[end:] for s in row]
        if any(len(row) != len(rows[0]) for row in loop):
            continue
        for first in range(min(AHEAD, end - LEAST + 1) + 1):
            try:
                return _Matching(loop, [*single, *behind], first).rounds()
            except _Different:
                continue
    return None


def _needs(store: Store) -> int:
    """How much has to be computed for a store: more from round to round, where one takes what another left."""
    return sum(1 for _ in values_of([store.value]))


@dataclass
class _Matching:
    """The attempt to have the rounds from `first` on as one body. `rows` are the stores of rounds, `single` others."""

    rows: Sequence[Sequence[Store]]
    single: Sequence[Store]
    first: int
    known: dict[int, tuple[tuple[Value, ...], Value]] = field(
        default_factory=dict[int, "tuple[tuple[Value, ...], Value]"]
    )
    carried: dict[int, tuple[tuple[Value, ...], Given]] = field(
        default_factory=dict[int, "tuple[tuple[Value, ...], Given]"]
    )
    inside: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.step = sympy.Symbol("step", integer=True, nonnegative=True)
        self.end = len(self.rows)
        self.round: dict[int, int] = {}
        for number, row in enumerate(self.rows):
            for value in values_of(s.value for s in row):
                self.round.setdefault(id(value), number)
        self._carry_less()

    def _carry_less(self) -> None:
        """Have a round compute what the next one alone makes of several of its values."""
        values = list(values_of(s.value for row in self.rows for s in row))
        users: dict[int, list[Value]] = {}
        for value in values:
            for number in {id(i) for i in value.inputs}:
                users.setdefault(number, []).append(value)
        lasting = {i for i, by in users.items() if max(self.round[id(u)] for u in by) > self.round[i] + 1}
        for value in values:
            number = self.round[id(value)]
            made_of = [i for i in value.inputs if id(i) not in lasting and not isinstance(i, Constant)]
            before = {id(i) for i in made_of if self.round[id(i)] == number - 1}
            if len(before) < 2 or any(self.round[id(i)] == number for i in made_of):
                continue
            if all(u is value for i in before for u in users[i] if self.round[id(u)] == number):
                self.round[id(value)] = number - 1

    def rounds(self) -> Rounds:
        """The loop. Raises _Different."""
        rows = self.rows[self.first :]
        body = [self._store([row[k] for row in rows]) for k in range(len(rows[0]))]
        before = [s for s in self.single if not self._depends(s.value)]
        after = [s for s in self.single if self._depends(s.value)]
        for value in values_of(s.value for s in after):
            latest = max((self.round.get(id(i), -1) for i in value.inputs), default=-1)
            self.round.setdefault(id(value), latest)
        for column in self._sums(after):
            self._try_to_carry(column)
        following: dict[int, Value] = {}
        while len(following) < len(self.carried):
            for first, (column, _) in list(self.carried.items()):
                if first not in following:
                    following[first] = self._value(column[1:])
            if len(self.carried) > MOST_CARRIED:
                raise _Different
        last = self._last(after)
        carried = tuple(
            Carried(given, column[0], following[first], last.get(first))
            for first, (column, given) in self.carried.items()
        )
        self._leave_nothing(after, [c.last for c in carried])
        ahead = [s for row in self.rows[: self.first] for s in row]
        inside = frozenset(self.inside)
        return Rounds(self.step, self.first, self.end, (*before, *ahead), tuple(body), tuple(after), carried, inside)

    def _store(self, column: Sequence[Store]) -> Store:
        value = self._value(tuple(s.value for s in column))
        return replace(column[0], index=self._moving([s.index for s in column]), value=value)

    def _moving(self, indices: Sequence[Index]) -> Index:
        """An index that moves on by as much in every round."""
        distances = {sympy.expand(b - a) for a, b in pairwise(indices)}
        if len(distances) != 1:
            raise _Different
        distance = distances.pop()
        if not distance.is_Integer:
            raise _Different
        return sympy.expand(indices[0] + (self.step - self.first) * distance)

    def _value(self, column: tuple[Value, ...]) -> Value:
        """The value in the body that stands for one of each round, the first of the loop first."""
        first = column[0]
        if all(v is first for v in column):
            return first
        if id(first) in self.known:
            seen, made = self.known[id(first)]
            if any(a is not b for a, b in zip(seen, column, strict=False)):
                raise _Different
            return made
        if all(self.round.get(id(v)) == self.first + k for k, v in enumerate(column[1:])):
            return self._carry(column)
        if any(self.round.get(id(v)) != self.first + k for k, v in enumerate(column)):
            raise _Different
        made = self._made(column)
        self.inside.add(id(made))
        self.known[id(first)] = column, made
        return made

    def _carry(self, column: tuple[Value, ...]) -> Given:
        second = column[1]
        if id(second) in self.carried:
            seen, given = self.carried[id(second)]
            if any(a is not b for a, b in zip(seen, column, strict=False)):
                raise _Different
            return given
        if len({(v.dtype, v.axes) for v in column[1:]}) != 1 or not column[0].axes <= second.axes:
            raise _Different
        if column[0].dtype != second.dtype:
            raise _Different
        given = Given(second.dtype, second.node, second.axes, "")
        self.inside.add(id(given))
        self.carried[id(second)] = column, given
        return given

    def _sums(self, after: Iterable[Store]) -> list[tuple[Value, ...]]:
        """What builds up in the loop for what is behind it: sums to which every round adds something of its own."""
        found: list[tuple[Value, ...]] = []
        for value in values_of(s.value for s in after):
            chain = [value] if self.round[id(value)] == self.end - 1 else []
            while chain and isinstance(chain[-1], Compute) and chain[-1].template == "a + b":
                number = self.round[id(chain[-1])]
                earlier = [a for a in chain[-1].args if self.round.get(id(a), -1) == number - 1]
                if len(earlier) != 1 or number < self.first:
                    break
                chain.append(earlier[0])
            if len(chain) == self.end - self.first + 1:
                found.append(tuple(reversed(chain[1:])))
        return found

    def _try_to_carry(self, column: tuple[Value, ...]) -> None:
        """Have the loop carry values, if every round makes them in the same way."""
        kept = dict(self.known), dict(self.carried), set(self.inside)
        try:
            self._carry(column)
            self._value(column[1:])
        except _Different:
            self.known, self.carried, self.inside = kept

    def _made(self, column: tuple[Value, ...]) -> Value:
        first = column[0]
        if isinstance(first, Load):
            loads = [v for v in column if isinstance(v, Load)]
            same = all(v.buffer is first.buffer and v.guard == first.guard and v.dtype == first.dtype for v in loads)
            if len(loads) < len(column) or not same or any(v.indirect for v in loads):
                raise _Different
            return replace(first, index=self._moving([v.index for v in loads]))
        if isinstance(first, Compute):
            computed = [v for v in column if isinstance(v, Compute)]
            same = all(v.template == first.template and v.dtype == first.dtype for v in computed)
            if len(computed) < len(column) or not same:
                raise _Different
            columns = zip(*(v.args for v in computed), strict=True)
            return replace(first, args=tuple(self._value(arguments) for arguments in columns))
        raise _Different

    # behind the loop

    def _depends(self, value: Value) -> bool:
        """Whether a value needs what the loop computes."""
        return any(self.round.get(id(v), -1) >= self.first for v in values_of([value]))

    def _last(self, after: Iterable[Store]) -> dict[int, Value]:
        """For what is carried, the value that it has behind the loop, among those that are stored there."""
        found: dict[int, Value] = {}
        candidates = list(values_of(s.value for s in after))
        for first, (column, _) in self.carried.items():
            for value in candidates:
                if self.round[id(value)] == self.end - 1 and self._follows((*column[1:], value)):
                    found[first] = value
        return found

    def _follows(self, column: tuple[Value, ...]) -> bool:
        """Whether the last of the values is made in its round as the others are in theirs."""
        kept = dict(self.known), dict(self.carried), set(self.inside)
        self.known = {}
        try:
            self._value(column)
        except _Different:
            return False
        finally:
            self.known, self.carried, self.inside = kept
        return True

    def _leave_nothing(self, after: Iterable[Store], last: Iterable[Value | None]) -> None:
        """Raises _Different where something behind the loop needs what is only in it."""
        known = {id(v) for v in last if v is not None}
        stack = [s.value for s in after]
        while stack:
            value = stack.pop()
            if id(value) in known or not value.inputs:
                continue
            if self.first <= self.round.get(id(value), -1) < self.end - 1:
                raise _Different
            stack.extend(value.inputs)
