"""A loop in a kernel: loop-carried states, what is saved for its iterations, the stores before, in and behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import sympy

from fx_lsp.codegen.ir.values import Given, Load, Store, Value, values_of


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
class Kept:
    """What was known before the loop, another value for each round; `given` stands for it in the body."""

    given: Given
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Loop:
    """A loop in which `step` goes from `first` to `end`, exclusive, and makes `body`. `inside` are ids of values."""

    step: sympy.Symbol
    first: int
    end: int
    body: tuple[Value, ...]
    carried: tuple[Carried, ...]
    kept: tuple[Kept, ...]
    inside: frozenset[int]


Column: TypeAlias = "tuple[Value, ...]"
"""A value of each round, of the first round of the loop first."""


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
