"""Values of which there is one in every round, as one value in the body of a loop.

They are gone through side by side, those of one round next to those of the others. They make one body if they differ
only in where they load, by as much from round to round, in what a round takes from the one before it, which is carried,
and in what was known before the loop, which is kept for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import networkx
import sympy

from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.loop import Carried, Column, Kept, Loop
from fx_lsp.codegen.ir.values import Compute, Constant, Given, Load, Reduction, Value, values_of

MOST_CARRIED = 16
"""How many values a loop may carry."""

MOST_DELAYED = 4
"""From how many rounds before it a round may take something."""


@dataclass
class _Found:
    """What is known of a loop: columns with what stands for them in its body, by their first values; `carried` ones by
    their second. `inside` are ids of values."""

    known: dict[int, tuple[Column, Value]] = field(default_factory=dict[int, "tuple[Column, Value]"])
    carried: dict[int, tuple[Column, Given]] = field(default_factory=dict[int, "tuple[Column, Given]"])
    kept: list[Kept] = field(default_factory=list[Kept])
    remade: list[tuple[Column, Value]] = field(default_factory=list["tuple[Column, Value]"])
    inside: set[int] = field(default_factory=set[int])

    def copy(self) -> _Found:
        """The same, to go back to."""
        return _Found(dict(self.known), dict(self.carried), list(self.kept), list(self.remade), set(self.inside))


class Different(Exception):
    """The rounds do not all do the same."""


@dataclass
class Matching:
    """The attempt to have the rounds from `first` on as one body. `rows` are the values that each round is for.

    Something may be kept only where `keeps` is set; with `reloads`, what was loaded before the loop is loaded again.
    `again` are ids of what is not kept for the first round either, but made again.
    """

    rows: Sequence[Sequence[Value]]
    first: int
    keeps: bool = False
    reloads: bool = False
    again: frozenset[int] = frozenset()
    found: _Found = field(default_factory=_Found)

    def __post_init__(self) -> None:
        self.step = sympy.Symbol("step", integer=True, nonnegative=True)
        self.end = len(self.rows)
        self.round: dict[int, int] = {}
        for number, row in enumerate(self.rows):
            self.round.update({id(value): number for value in values_of(row, self.round)})
        mergers = list(self._mergers())
        typical = {t for number, t, _ in mergers if number == self.end // 2}
        for number, template, cone in mergers:
            if template in typical:
                self.round.update(dict.fromkeys(cone, number - 1))

    def _mergers(self) -> Iterator[tuple[int, str, frozenset[int]]]:
        """What rounds make of values of the one before, where that is all they take of them, and where there is less to
        carry if it is made there: the round, how it makes the last of it, and all of it."""
        values = list(values_of(v for row in self.rows for v in row))
        users: dict[int, list[Value]] = {}
        for value in values:
            for number in {id(i) for i in value.inputs}:
                users.setdefault(number, []).append(value)
        lasting = {i for i, by in users.items() if max(self.round[id(u)] for u in by) > self.round[i] + 1}
        taken: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        for value in values:
            number, before, cone = self.round[id(value)], set[int](), {id(value)}
            for each in value.inputs:
                if id(each) in taken and self.round[id(each)] == number:
                    before |= taken[id(each)][0]
                    cone |= taken[id(each)][1]
                elif self.round[id(each)] == number - 1 and id(each) not in lasting:
                    before.add(id(each))
                elif self.round[id(each)] == number and not isinstance(each, Constant):
                    break
            else:
                taking = {i: [u for u in users.get(i, ()) if self.round[id(u)] == number] for i in before | cone}
                outside = {i for i, by in taking.items() if any(id(u) not in cone for u in by)}
                if not outside & before and len(outside | {id(value)}) < len(before) and isinstance(value, Compute):
                    yield number, value.template, frozenset(cone)
                elif before:
                    taken[id(value)] = frozenset(before), frozenset(cone)

    def loop(self, after: Sequence[Value], at_hand: Sequence[Value] = ()) -> Loop:
        """The loop, with what is needed behind it for `after`, where `at_hand` is known. Raises Different."""
        body = tuple(self.value(column) for column in zip(*self.rows[self.first :], strict=True))
        ready = {id(v) for v in at_hand}
        for value in values_of(after):
            inputs = [i for i in value.inputs if id(i) not in ready and not isinstance(i, Constant)]
            self.round.setdefault(id(value), max((self.round.get(id(i), -1) for i in inputs), default=-1))
        for column, last in self._sums(after):
            self._try_to_carry(column, last)
        following: dict[int, Value] = {}
        while len(following) < len(self.found.carried):
            for first, (column, _) in list(self.found.carried.items()):
                if first not in following:
                    following[first] = self.value(column[1:])
            if len(self.found.carried) > MOST_CARRIED:
                raise Different
        last = self._last(after)
        carried = tuple(
            Carried(given, column[0], following[first], last.get(first))
            for first, (column, given) in self.found.carried.items()
        )
        self._leave_nothing(after, [*at_hand, *last.values()])
        if any(len(kept.values) < self.end - self.first for kept in self.found.kept):
            raise Different
        kept, inside = tuple(self.found.kept), frozenset(self.found.inside)
        return Loop(self.step, self.first, self.end, body, carried, kept, inside)

    def moving(self, indices: Sequence[Index]) -> Index:
        """An index that moves on by as much in every round."""
        distances = {sympy.expand(b - a) for a, b in pairwise(indices)}
        if len(distances) != 1:
            raise Different
        return sympy.expand(indices[0] + (self.step - self.first) * distances.pop())

    def value(self, column: Column) -> Value:
        """The value in the body that stands for one of each round, the first of the loop first."""
        first = column[0]
        if all(v is first for v in column):
            return first
        if id(first) in self.found.known:
            seen, made = self.found.known[id(first)]
            if any(a is not b for a, b in zip(seen, column, strict=False)):
                return self._keep(column)
            return made
        numbers = [self.round.get(id(v)) for v in column]
        expected = list(range(self.first, self.end))[: len(column)]
        if self._is_delayed(numbers, expected):
            return self._carry(column)
        if numbers != expected and any(n != -1 for n in numbers):
            return self._keep(column)
        made = self._made(column)
        self.found.inside.add(id(made))
        self.found.known[id(first)] = column, made
        return made

    def _is_delayed(self, numbers: list[int | None], expected: list[int]) -> bool:
        """Whether values are those of the round before, or of an earlier one, each as much earlier."""
        if numbers[1:] == expected[:-1]:
            return True
        delays = range(2, min(MOST_DELAYED, len(numbers) - 1) + 1)
        early = [n is not None and n < self.first for n in numbers]
        return any(numbers[k:] == expected[:-k] and all(early[:k]) for k in delays)

    def _keep(self, column: Column) -> Value:
        """What stands for values that are all known before the loop: what is kept of them, or is made of that alone.

        A column may lack what the last round takes.
        """
        first = column[0]
        made_of = {letters for v in column if (letters := _from_one(v)) is not None}
        alike = len(made_of) == 1 and all(_from_one(v) is not None for v in column)
        if alike or id(first) in self.again or (self.reloads and isinstance(first, Load)):
            for seen, made in self.found.remade:
                if all(a is b for a, b in zip(seen, column, strict=False)):
                    return made
            made = self._made(column)
            self.found.inside.add(id(made))
            self.found.remade.append((column, made))
            return made
        known = all(self.round.get(id(v), self.end) <= self.first for v in column)
        if not self.keeps or not known or len({(v.dtype, v.axes) for v in column}) != 1:
            raise Different
        for number, kept in enumerate(self.found.kept):
            if all(a is b for a, b in zip(kept.values, column, strict=False)):
                self.found.kept[number] = replace(kept, values=max(kept.values, column, key=len))
                return kept.given
        self.found.kept.append(Kept(Given(first.dtype, first.node, first.axes, ""), column))
        self.found.inside.add(id(self.found.kept[-1].given))
        return self.found.kept[-1].given

    def _carry(self, column: Column) -> Given:
        second = column[1]
        if id(second) in self.found.carried:
            seen, given = self.found.carried[id(second)]
            if any(a is not b for a, b in zip(seen, column, strict=False)):
                raise Different
            return given
        if len({(v.dtype, v.axes) for v in column[1:]}) != 1 or not column[0].axes <= second.axes:
            raise Different
        if column[0].dtype != second.dtype:
            raise Different
        given = Given(second.dtype, second.node, second.axes, "")
        self.found.inside.add(id(given))
        self.found.carried[id(second)] = column, given
        return given

    def _sums(self, after: Iterable[Value]) -> list[tuple[Column, Value]]:
        """What builds up in the loop for what is behind it: sums to which every round adds something of its own, and
        what they are behind the loop."""
        found: list[tuple[Column, Value]] = []
        for value in values_of(after):
            chain: list[Value] = []
            earlier: Value | None = value if self.round[id(value)] == self.end - 1 else None
            while earlier is not None:
                chain.append(earlier)
                earlier = self._earlier(earlier) if self.round[id(earlier)] >= self.first else None
            if len(chain) == self.end - self.first + 1:
                found.append((tuple(reversed(chain[1:])), value))
        return found

    def _earlier(self, value: Value) -> Value | None:
        """What a value is before its round has added anything to it, or None."""
        number, sums = self.round[id(value)], [value]
        while sums:
            added = sums.pop()
            if isinstance(added, Compute) and added.template == "a + b":
                for each in added.args:
                    if self.round.get(id(each), -1) == number - 1:
                        return each
                sums += [a for a in reversed(added.args) if self.round.get(id(a), -1) == number]
        return None

    def _try_to_carry(self, column: Column, last: Value) -> None:
        """Have the loop carry values, if every round makes them in the same way."""
        before = self.found.copy()
        try:
            self._carry(column)
            self.value((*column[1:], last))
        except Different:
            self.found = before

    def _made(self, column: Column) -> Value:
        first = column[0]
        if isinstance(first, Load):
            loads = [v for v in column if isinstance(v, Load)]
            same = all(v.buffer is first.buffer and v.guard == first.guard and v.dtype == first.dtype for v in loads)
            if len(loads) < len(column) or not same or any(v.indirect for v in loads):
                raise Different
            return replace(first, index=self.moving([v.index for v in loads]))
        if not isinstance(first, (Compute, Reduction)) or not made_alike(column):
            raise Different
        arguments = zip(*(v.inputs for v in column), strict=True)
        return replace(first, args=tuple(self.value(each) for each in arguments))

    # behind the loop

    def depends(self, value: Value) -> bool:
        """Whether a value needs what the loop computes."""
        return any(self.round.get(id(v), -1) >= self.first for v in values_of([value]))

    def _last(self, after: Iterable[Value]) -> dict[int, Value]:
        """For what is carried, the value that it has behind the loop, among those that are needed there."""
        found: dict[int, Value] = {}
        candidates = list(values_of(after))
        for first, (column, _) in self.found.carried.items():
            for value in candidates:
                late = self.end - MOST_DELAYED <= self.round[id(value)] < self.end
                if late and self._follows((*column[1:], value)):
                    found[first] = value
        return found

    def _follows(self, column: Column) -> bool:
        """Whether the last of the values is made in its round as the others are in theirs."""
        before, self.found = self.found, replace(self.found.copy(), known={})
        try:
            self.value(column)
        except Different:
            self.found = before
            return False
        before.kept = self.found.kept[: len(before.kept)]
        self.found = before
        return True

    def _leave_nothing(self, after: Iterable[Value], last: Iterable[Value]) -> None:
        """Raises Different where something behind the loop needs what is only in it."""
        known = {id(v) for v in last}
        stack = list(after)
        while stack:
            value = stack.pop()
            if id(value) in known or not value.inputs:
                continue
            known.add(id(value))
            if self.first <= self.round.get(id(value), -1) < self.end - 1:
                raise Different
            stack.extend(value.inputs)


def made_alike(column: Column) -> bool:
    """Whether the values of all rounds are made of others in the same way."""
    return len({_operation(v) for v in column}) == 1


def _operation(value: Value) -> Any:
    """What a value makes of its inputs."""
    if isinstance(value, Compute):
        return value.dtype, value.template
    return (value.dtype, value.kind, value.over, value.part) if isinstance(value, Reduction) else value


def _from_one(value: Value) -> tuple[str, tuple[int, ...]] | None:
    """How a value is made of only one other, and of numbers: its template, and where in it that other one stands."""
    if not isinstance(value, Compute):
        return None
    others = [k for k, a in enumerate(value.args) if not isinstance(a, Constant)]
    return (value.template, tuple(others)) if len({id(value.args[k]) for k in others}) == 1 else None


MOST_LOOKED_AT = 400
"""How many values of a round are looked at, with what they are made of."""


def made_again(kept: Iterable[Column]) -> frozenset[int]:
    """Of values that are kept for the rounds of a loop, and of what these are made of, those that the rounds make
    themselves where as few as possible are kept: the ids of what there is for the first round. Empty where as many
    have to be kept as are kept."""
    taken = {id(column[0]): column for column in kept}
    graph = networkx.DiGraph()
    looked_at, waiting = dict(taken), deque(taken.values())
    for key in taken:
        graph.add_edge("rounds", (key, "in"))
    while waiting:
        column = waiting.popleft()
        key = id(column[0])
        graph.add_edge((key, "in"), (key, "out"), capacity=1)
        inputs = _inputs(column)
        if inputs is None or len(looked_at) > MOST_LOOKED_AT:
            graph.add_edge((key, "out"), "before")
            continue
        for each in inputs:
            graph.add_edge((key, "out"), (id(each[0]), "in"))
            if id(each[0]) not in looked_at:
                looked_at[id(each[0])] = each
                waiting.append(each)
    number, (near, _) = networkx.minimum_cut(graph, "rounds", "before")
    if number >= len(taken):
        return frozenset()
    return frozenset(key for key in looked_at if (key, "out") in near)


def _inputs(column: Column) -> list[Column] | None:
    """What the values of a column are made of, but for what is the same in all rounds; None where they are not made
    alike."""
    if not isinstance(column[0], Compute) or not made_alike(column):
        return None
    inputs = zip(*(v.inputs for v in column), strict=True)
    return [each for each in inputs if any(v is not each[0] for v in each)]
