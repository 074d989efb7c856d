"""A loop in a kernel: loop-carried states, what is saved for its iterations, the stores before, in and behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import sympy

from fx_lsp.codegen.ir.values import Load, Store, Value, Variable, values_of


@dataclass(frozen=True)
class CarriedState:
    """A loop-carried state: `start` for the first iteration, `following` for each other.

    `variable` stands for it in the body, `last` is the value that it is behind the loop, if that is needed.
    """

    variable: Variable
    start: Value
    following: Value
    last: Value | None


@dataclass(frozen=True)
class IterationInput:
    """Values that are known before the loop, one for each iteration; `variable` stands for it in the body."""

    variable: Variable
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Loop:
    """A loop in which `step` goes from `first` to `end`, exclusive, and makes `body`. `inside` are ids of values."""

    step: sympy.Symbol
    first: int
    end: int
    body: tuple[Value, ...]
    carried: tuple[CarriedState, ...]
    inputs: tuple[IterationInput, ...]
    inside: frozenset[int]


Column: TypeAlias = "tuple[Value, ...]"
"""A value of each iteration, of the first iteration of the loop first."""


@dataclass(frozen=True)
class ProducerLoop:
    """The loop that makes what another one takes, which goes through it in the same order or `backwards`.

    `values` has, for each value of the body, what it is in all iterations, those before the loop included.
    """

    loop: Loop
    values: tuple[tuple[Value, ...], ...]
    backwards: bool


@dataclass(frozen=True)
class LoopKernel:
    """A loop that stores, with what is stored before, in, and behind it, and how what it takes was made."""

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
        """The number of values of each element that are live at once, where some are saved for the iterations."""
        if self.producer is None:
            return 0
        return sum(map(len, self.producer.values)) + len(self.loads) * (self.loop.end - self.loop.first)
