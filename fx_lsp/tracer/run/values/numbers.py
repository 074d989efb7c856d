"""Represent unknown floating-point values of tensors by numbers, which can be shown, compared and added.

They are not sizes, and enter no operation: a graph would contain a made-up number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

from fx_lsp.tracer.run.values.decisions import Decisions, current_decisions, needed

NUMBER = 0.5 + 2**-11
"""The placeholder for an unknown value. Every NumPy dtype can represent it, and hardly any code contains it."""


class NumberOfData(float):
    """A number that depends on data. `place` is where it was assumed, `decisions` determine its comparisons."""

    place: TracebackType | None
    decisions: Decisions

    def _no_count(self, *args: Any) -> Any:
        raise needed(self.place)

    __int__ = __trunc__ = __floor__ = __ceil__ = _no_count

    def __round__(self, digits: Any = None) -> Any:
        return self._no_count() if digits is None else self

    def __bool__(self) -> bool:
        return _decided(self, True)

    def __deepcopy__(self, memo: Any) -> NumberOfData:
        return self

    def __reduce__(self) -> Any:
        return float, (float(self),)

    __hash__ = float.__hash__


def number_of_data(value: float, decisions: Decisions, place: TracebackType | None) -> NumberOfData:
    """Return a number in place of a tensor's value."""
    number = NumberOfData(value)
    number.decisions, number.place = decisions, place
    return number


def refuse_numbers(arguments: Iterable[Any]) -> None:
    """Raise the error of reading an unknown value if an operation receives made-up numbers."""
    decisions = current_decisions()
    if decisions is None or decisions.is_rehearsal:
        return
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            refuse_numbers(argument)
        elif isinstance(argument, float) and (isinstance(argument, NumberOfData) or argument == NUMBER):
            raise needed(getattr(argument, "place", None) or decisions.place)


def _computed(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def compute(self: NumberOfData, *others: Any) -> Any:
        result = plain(self, *others)
        return number_of_data(result, self.decisions, self.place) if isinstance(result, float) else result

    return compute


def _compared(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def compare(self: NumberOfData, other: Any) -> Any:
        result = plain(self, other)
        return result if result is NotImplemented else _decided(self, result)

    return compare


def _decided(number: NumberOfData, otherwise: bool) -> bool:
    outcome = number.decisions.outcome(sys._getframe(1))
    return otherwise if outcome is None else outcome


NumberOfData.__name__ = float.__name__  # its name in errors
for _operation in ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv"):
    for _name in (f"__{_operation}__", f"__r{_operation}__"):
        setattr(NumberOfData, _name, _computed(_name))
for _name in ("__neg__", "__abs__", "__pos__"):
    setattr(NumberOfData, _name, _computed(_name))
for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(NumberOfData, _name, _compared(_name))
