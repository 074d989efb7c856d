"""Report where Python reads the values of a tensor: for a condition, a number, a list, printing."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

import torch

Hear = Callable[[FrameType, str], None]
"""Called with the frame that reads a tensor's values, and with the name of the method."""

_hearer: ContextVar[Hear | None] = ContextVar("who hears of values that are read", default=None)

_method: ContextVar[str] = ContextVar("the method that reads values", default="")


def reads_whole_numbers() -> bool:
    """Return True while `int` reads a tensor's value."""
    return _method.get() == "__int__"


@contextmanager
def reads_heard(hear: Hear) -> Generator[None, None, None]:
    """Call `hear` inside whenever a tensor's values are read."""
    token = _hearer.set(hear)
    try:
        yield
    finally:
        _hearer.reset(token)


def reading(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tensor method called `name` that reads values, wrapped to report it."""

    @functools.wraps(method)
    def read(self: torch.Tensor, *args: Any, **options: Any) -> Any:
        if (hear := _hearer.get()) is not None:
            hear(sys._getframe(1), name)
        token = _method.set(_method.get() or name)
        try:
            return method(self, *args, **options)
        finally:
            _method.reset(token)

    return read
