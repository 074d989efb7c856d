"""A loop in a kernel: carried states, saved inputs, and the stores before, in and behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import sympy

from fx_lsp.codegen.ir.values import Load, Store, Value, Variable, values_of


@dataclass(frozen=True)
class CarriedState:
    """A loop-carried state: `start` for the first iteration, `following` for each later one.

    `variable` is the state in the body. `last` is its value behind the loop, or None if that is not needed.
    """

    variable: Variable
    start: Value
    following: Value
    last: Value | None


@dataclass(frozen=True)
class IterationInput:
    """Values known before the loop, one for each iteration. `variable` is the value in the body."""

    variable: Variable
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Loop:
    """A loop of `step` from `first` to `end`, exclusive, that computes `body`. `inside` are ids of values."""

    step: sympy.Symbol
    first: int
    end: int
    body: tuple[Value, ...]
    carried: tuple[CarriedState, ...]
    inputs: tuple[IterationInput, ...]
    inside: frozenset[int]


Column: TypeAlias = "tuple[Value, ...]"
"""A value of each iteration, the first iteration of the loop first."""


@dataclass(frozen=True)
class ProducerLoop:
    """The loop that computes the inputs of another loop, which reads them in the same order or `backwards`.

    `values` has for each value of the body its values in all iterations, including those before the loop.
    """

    loop: Loop
    values: tuple[tuple[Value, ...], ...]
    backwards: bool


@dataclass(frozen=True)
class LoopKernel:
    """A loop with stores before, in and behind it, and the producer of its inputs, if any."""

    loop: Loop
    before: tuple[Store, ...]
    body: tuple[Store, ...]
    after: tuple[Store, ...]
    producer: ProducerLoop | None

    @property
    def stores(self) -> tuple[Store, ...]:
        """All stores, in order."""
        return (*self.before, *self.body, *self.after)

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads of the iterations."""
        values = values_of([*(s.value for s in self.body), *(c.following for c in self.loop.carried)])
        return tuple(v for v in values if isinstance(v, Load) and id(v) in self.loop.inside)

    @property
    def live_values(self) -> int:
        """The number of saved values of each element that are live at once, 0 if none are saved."""
        if self.producer is None:
            return 0
        return sum(map(len, self.producer.values)) + len(self.loads) * (self.loop.end - self.loop.first)
