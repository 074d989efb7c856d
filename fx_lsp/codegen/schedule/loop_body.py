"""Match the values of all iterations as one value in the body of a loop.

The iterations are compared side by side. They make one body if they differ only in three respects: the address that
they load from, by a constant step; values of the iteration before, which are carried; and values computed before the
loop, which are saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import networkx
import sympy

from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.loop import CarriedState, Column, IterationInput, Loop
from fx_lsp.codegen.ir.ops import ADD, Op
from fx_lsp.codegen.ir.values import Compute, Constant, Load, Reduction, Value, Variable, values_of

MAX_CARRIED = 16
"""The largest number of values that a loop carries."""

MAX_DELAY = 4
"""The largest number of iterations back that an iteration may take a value from."""


@dataclass
class _MatchState:
    """The state of a match. `columns` maps the id of the first value of each column to the column and its body value.

    `carried` columns are keyed by their second value. `inside` holds ids of values.
    """

    columns: dict[int, tuple[Column, Value]] = field(default_factory=dict[int, "tuple[Column, Value]"])
    carried: dict[int, tuple[Column, Variable]] = field(default_factory=dict[int, "tuple[Column, Variable]"])
    inputs: list[IterationInput] = field(default_factory=list[IterationInput])
    rematerialized: list[tuple[Column, Value]] = field(default_factory=list["tuple[Column, Value]"])
    inside: set[int] = field(default_factory=set[int])

    def copy(self) -> _MatchState:
        """Return a copy, to restore the state after a failed attempt."""
        return _MatchState(
            dict(self.columns), dict(self.carried), list(self.inputs), list(self.rematerialized), set(self.inside)
        )


class IterationsDiffer(Exception):
    """The iterations do not all compute the same."""


@dataclass
class LoopMatching:
    """An attempt to match the iterations from `first` on as one body. `rows` are the results of each iteration.

    Values may be saved only if `takes_inputs` is set. With `reloads`, values that were loaded before the loop are
    loaded again. `rematerialized_ids` are ids of values that are recomputed instead of saved.
    """

    rows: Sequence[Sequence[Value]]
    first: int
    takes_inputs: bool = False
    reloads: bool = False
    rematerialized_ids: frozenset[int] = frozenset()
    state: _MatchState = field(default_factory=_MatchState)

    def __post_init__(self) -> None:
        self.step = sympy.Symbol("step", integer=True, nonnegative=True)
        self.end = len(self.rows)
        self.iteration: dict[int, int] = {}
        for number, row in enumerate(self.rows):
            self.iteration.update({id(value): number for value in values_of(row, self.iteration)})
        self.of_rows = frozenset(self.iteration)
        mergers = list(self._mergers())
        typical = {t for number, t, _ in mergers if number == self.end // 2}
        for number, op, cone in mergers:
            if op in typical:
                self.iteration.update(dict.fromkeys(cone, number - 1))

    def _mergers(self) -> Iterator[tuple[int, Op, frozenset[int]]]:
        """Find values that depend on the iteration before only, and that reduce the carried state if computed there.

        Yield the iteration, the operation of the last value, and the ids of all values.
        """
        values = list(values_of(v for row in self.rows for v in row))
        users = _users(values)
        lasting = {i for i, by in users.items() if max(self.iteration[id(u)] for u in by) > self.iteration[i] + 1}
        cones_by_value: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        for value in values:
            number, cone_of_value = self.iteration[id(value)], self._cone(value, cones_by_value, lasting)
            if cone_of_value is None:
                continue
            before, cone = cone_of_value
            taking = {i: [u for u in users.get(i, ()) if self.iteration[id(u)] == number] for i in before | cone}
            outside = {i for i, by in taking.items() if any(id(u) not in cone for u in by)}
            if not outside & before and len(outside | {id(value)}) < len(before) and isinstance(value, Compute):
                yield number, value.op, cone
            elif before:
                cones_by_value[id(value)] = before, cone

    def _cone(
        self, value: Value, cones: Mapping[int, tuple[frozenset[int], frozenset[int]]], lasting: Collection[int]
    ) -> tuple[frozenset[int], frozenset[int]] | None:
        """Return (the inputs from the iteration before, the values computed from them) of a value.

        Returns None if the value takes any other input, or one that is `lasting` longer.
        """
        number, before, cone = self.iteration[id(value)], frozenset[int](), frozenset((id(value),))
        for each in value.inputs:
            if id(each) in cones and self.iteration[id(each)] == number:
                before |= cones[id(each)][0]
                cone |= cones[id(each)][1]
            elif self.iteration[id(each)] == number - 1 and id(each) not in lasting:
                before |= {id(each)}
            elif self.iteration[id(each)] == number and not isinstance(each, Constant):
                return None
        return before, cone

    def loop(self, after: Sequence[Value], at_hand: Sequence[Value] = ()) -> Loop:
        """Return the loop, with the carried values that `after` needs behind it. `at_hand` are known there already.

        Raises IterationsDiffer.
        """
        body = tuple(self.value(column) for column in zip(*self.rows[self.first :], strict=True))
        ready = {id(v) for v in at_hand}
        for value in values_of(after):
            inputs = [i for i in value.inputs if id(i) not in ready and not isinstance(i, Constant)]
            self.iteration.setdefault(id(value), max((self.iteration.get(id(i), -1) for i in inputs), default=-1))
        for column, last in self._sums(after):
            self._try_to_carry(column, last)
        following: dict[int, Value] = {}
        while len(following) < len(self.state.carried):
            for first, (column, _) in list(self.state.carried.items()):
                if first not in following:
                    following[first] = self.value(column[1:])
            if len(self.state.carried) > MAX_CARRIED:
                raise IterationsDiffer
        last = self._last(after)
        carried = tuple(
            CarriedState(variable, column[0], following[first], last.get(first))
            for first, (column, variable) in self.state.carried.items()
        )
        self._leave_nothing(after, [*at_hand, *last.values()])
        if any(len(loop_input.values) < self.end - self.first for loop_input in self.state.inputs):
            raise IterationsDiffer
        inputs, inside = tuple(self.state.inputs), frozenset(self.state.inside)
        return Loop(self.step, self.first, self.end, body, carried, inputs, inside)

    def moving(self, indices: Sequence[Index]) -> Index:
        """Return an index that advances by a constant step. Raises IterationsDiffer if the indices do not."""
        distances = {sympy.expand(b - a) for a, b in pairwise(indices)}
        if len(distances) != 1:
            raise IterationsDiffer
        return sympy.expand(indices[0] + (self.step - self.first) * distances.pop())

    def value(self, column: Column) -> Value:
        """Return the body value of a column: one value of each iteration, in the order of the iterations."""
        first = column[0]
        if all(v is first for v in column):
            return first
        if id(first) in self.state.columns:
            seen, merged = self.state.columns[id(first)]
            if any(a is not b for a, b in zip(seen, column, strict=False)):
                return self._take_input(column)
            return merged
        numbers = [self.iteration.get(id(v)) for v in column]
        expected = list(range(self.first, self.end))[: len(column)]
        if self._is_delayed(numbers, expected):
            return self._carry(column)
        if numbers != expected and any(n != -1 for n in numbers):
            return self._take_input(column)
        merged = self._merge(column)
        self.state.inside.add(id(merged))
        self.state.columns[id(first)] = column, merged
        return merged

    def _is_delayed(self, numbers: list[int | None], expected: list[int]) -> bool:
        """Return True if values are those of a fixed number of iterations before."""
        if numbers[1:] == expected[:-1]:
            return True
        delays = range(2, min(MAX_DELAY, len(numbers) - 1) + 1)
        early = [n is not None and n < self.first for n in numbers]
        return any(numbers[k:] == expected[:-k] and all(early[:k]) for k in delays)

    def _take_input(self, column: Column) -> Value:
        """Return the body value of values that are known before the loop: an input, or a value computed from one.

        A column may lack the value of the last iteration.
        """
        first = column[0]
        made_of = {letters for v in column if (letters := _unary_form(v)) is not None}
        alike = len(made_of) == 1 and all(_unary_form(v) is not None for v in column)
        if alike or id(first) in self.rematerialized_ids or (self.reloads and isinstance(first, Load)):
            for seen, merged in self.state.rematerialized:
                if all(a is b for a, b in zip(seen, column, strict=False)):
                    return merged
            merged = self._merge(column)
            self.state.inside.add(id(merged))
            self.state.rematerialized.append((column, merged))
            return merged
        is_before = all(self.iteration.get(id(v), self.end) <= self.first for v in column)
        if not self.takes_inputs or not is_before or len({(v.dtype, v.axes) for v in column}) != 1:
            raise IterationsDiffer
        for number, loop_input in enumerate(self.state.inputs):
            if all(a is b for a, b in zip(loop_input.values, column, strict=False)):
                self.state.inputs[number] = replace(loop_input, values=max(loop_input.values, column, key=len))
                return loop_input.variable
        self.state.inputs.append(IterationInput(Variable(first.dtype, first.node, first.axes, ""), column))
        self.state.inside.add(id(self.state.inputs[-1].variable))
        return self.state.inputs[-1].variable

    def _carry(self, column: Column) -> Variable:
        second = column[1]
        if id(second) in self.state.carried:
            seen, variable = self.state.carried[id(second)]
            if any(a is not b for a, b in zip(seen, column, strict=False)):
                raise IterationsDiffer
            if len(column) > len(seen):  # values not seen yet are computed alike
                self.value(column[1:])
            return variable
        if len({(v.dtype, v.axes) for v in column[1:]}) != 1 or not column[0].axes <= second.axes:
            raise IterationsDiffer
        if column[0].dtype != second.dtype:
            raise IterationsDiffer
        variable = Variable(second.dtype, second.node, second.axes, "")
        self.state.inside.add(id(variable))
        self.state.carried[id(second)] = column, variable
        return variable

    def _sums(self, after: Iterable[Value]) -> list[tuple[Column, Value]]:
        """Find the sums that accumulate in the loop and that `after` needs: each with its column and its final
        value.
        """
        sums: list[tuple[Column, Value]] = []
        depths: dict[int, int] = {}
        for value in values_of(after):
            adds = isinstance(value, Compute) and value.op is ADD
            depths[id(value)] = 1 + max(depths[id(a)] for a in value.inputs) if adds else 0
            chain: list[Value] = []
            earlier: Value | None = value if self.iteration[id(value)] == self.end - 1 else None
            while earlier is not None:
                chain.append(earlier)
                is_inside = self.iteration[id(earlier)] >= self.first
                earlier = self._before_addition(earlier, depths) if is_inside else None
            if len(chain) == self.end - self.first + 1:
                sums.append((tuple(reversed(chain[1:])), value))
        return sums

    def _before_addition(self, value: Value, depths: Mapping[int, int]) -> Value | None:
        """Return the partial sum of the iteration before that a value adds to: the one of the most additions, by their
        `depths`, as terms may be of that iteration, too. Return None if there is none.
        """
        number, sums, earlier = self.iteration[id(value)], [value], list[Value]()
        while sums:
            added = sums.pop()
            if isinstance(added, Compute) and added.op is ADD:
                earlier += [a for a in added.args if self.iteration.get(id(a), -1) == number - 1]
                sums += [a for a in added.args if self.iteration.get(id(a), -1) == number]
        return max(earlier, key=lambda each: depths[id(each)], default=None)

    def _try_to_carry(self, column: Column, last: Value) -> None:
        """Carry the values of a column if every iteration computes them in the same way; otherwise leave the state as
        it is.
        """
        before = self.state.copy()
        try:
            self._carry(column)
            self.value((*column[1:], last))
        except IterationsDiffer:
            self.state = before

    def _merge(self, column: Column) -> Value:
        first = column[0]
        if isinstance(first, Load):
            loads = [v for v in column if isinstance(v, Load)]
            same = all(v.buffer is first.buffer and v.guard == first.guard and v.dtype == first.dtype for v in loads)
            if len(loads) < len(column) or not same or any(v.indirect for v in loads):
                raise IterationsDiffer
            return replace(first, index=self.moving([v.index for v in loads]))
        if not isinstance(first, (Compute, Reduction)) or not is_same_operation(column):
            raise IterationsDiffer
        arguments = zip(*(v.inputs for v in column), strict=True)
        return replace(first, args=tuple(self.value(each) for each in arguments))

    # behind the loop

    def depends(self, value: Value) -> bool:
        """Return True if a value depends on values of the loop."""
        return any(self.iteration.get(id(v), -1) >= self.first for v in values_of([value]))

    def _last(self, after: Iterable[Value]) -> dict[int, Value]:
        """Return the final values of carried states that `after` needs, by the id of their column."""
        last_values: dict[int, Value] = {}
        candidates = list(values_of(after))
        whole = [(first, c) for first, (c, _) in self.state.carried.items() if len(c) == self.end - self.first]
        for first, column in whole:
            for value in candidates:
                late = self.end - MAX_DELAY <= self.iteration[id(value)] < self.end
                if late and self._follows((*column[1:], value)):
                    last_values[first] = value
        return last_values

    def _follows(self, column: Column) -> bool:
        """Return True if the last value of a column is computed as the others are."""
        before, self.state = self.state, replace(self.state.copy(), columns={})
        try:
            self.value(column)
        except IterationsDiffer:
            self.state = before
            return False
        before.inputs = self.state.inputs[: len(before.inputs)]
        self.state = before
        return True

    def _leave_nothing(self, after: Iterable[Value], last: Iterable[Value]) -> None:
        """Raise IterationsDiffer if a value behind the loop needs a value inside it that is not carried out."""
        visited = {id(v) for v in last}
        stack = list(after)
        while stack:
            value = stack.pop()
            if id(value) in visited or not value.inputs:
                continue
            visited.add(id(value))
            if id(value) in self.of_rows and self.first <= self.iteration[id(value)] < self.end - 1:
                raise IterationsDiffer
            stack.extend(value.inputs)


def _users(values: Iterable[Value]) -> dict[int, list[Value]]:
    """Return the users of each value, by its id."""
    users: dict[int, list[Value]] = {}
    for value in values:
        for number in {id(i) for i in value.inputs}:
            users.setdefault(number, []).append(value)
    return users


def is_same_operation(column: Column) -> bool:
    """Return True if the values of all iterations apply the same operation."""
    return len({_operation(v) for v in column}) == 1


def _operation(value: Value) -> Any:
    """Return a key for the operation of a value, without its inputs."""
    if isinstance(value, Compute):
        return value.dtype, value.op
    return (value.dtype, value.kind, value.over, value.part) if isinstance(value, Reduction) else value


def _unary_form(value: Value) -> tuple[Op, tuple[int, ...]] | None:
    """Return (operation, positions of the input) if a value is computed from one other value and numbers, else None."""
    if not isinstance(value, Compute):
        return None
    others = [k for k, a in enumerate(value.args) if not isinstance(a, Constant)]
    return (value.op, tuple(others)) if len({id(value.args[k]) for k in others}) == 1 else None


MAX_COLUMNS = 400
"""The largest number of columns considered for rematerialization."""


def values_to_rematerialize(columns: Iterable[Column]) -> frozenset[int]:
    """Return the ids of values that iterations recompute, so that they save as few values as possible.

    The ids are those of the first iteration, for `columns` and their inputs. Empty if nothing is saved less.
    """
    saved_columns = {id(column[0]): column for column in columns}
    graph = networkx.DiGraph()
    looked_at, waiting = dict(saved_columns), deque(saved_columns.values())
    for key in saved_columns:
        graph.add_edge("rounds", (key, "in"))
    while waiting:
        column = waiting.popleft()
        key = id(column[0])
        graph.add_edge((key, "in"), (key, "out"), capacity=1)
        inputs = _input_columns(column)
        if inputs is None or len(looked_at) > MAX_COLUMNS:
            graph.add_edge((key, "out"), "before")
            continue
        for each in inputs:
            graph.add_edge((key, "out"), (id(each[0]), "in"))
            if id(each[0]) not in looked_at:
                looked_at[id(each[0])] = each
                waiting.append(each)
    number, (near, _) = networkx.minimum_cut(graph, "rounds", "before")
    if number >= len(saved_columns):
        return frozenset()
    return frozenset(key for key in looked_at if (key, "out") in near)


def _input_columns(column: Column) -> list[Column] | None:
    """Return the input columns of a column, without values that all iterations share.

    Returns None if the operations of the column differ.
    """
    if not isinstance(column[0], Compute) or not is_same_operation(column):
        return None
    inputs = zip(*(v.inputs for v in column), strict=True)
    return [each for each in inputs if any(v is not each[0] for v in each)]
