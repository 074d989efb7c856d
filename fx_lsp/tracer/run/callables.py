"""Callables: the function that finally runs below decorators, and the final result of one that is a coroutine, or a
generator, which runs without an event loop.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Coroutine, Generator
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from torch._library.custom_ops import CustomOpDef

MAX_STEPS = 1000
"""The most values that a generator may yield, and the most suspensions of a coroutine."""


def is_operator(function: Any) -> bool:
    """Return True for the result of `torch.library.custom_op`."""
    return isinstance(function, CustomOpDef)


def innermost(function: Any) -> Any:
    """Return the function that finally runs, under bound methods, `functools.partial` and decorators that use
    `functools.wraps`.
    """
    while True:
        if is_operator(function):
            under = function._init_fn
        else:
            under = function.func if isinstance(function, partial) else getattr(function, "__func__", function)
        under = inspect.unwrap(under)
        if under is function:
            return function
        function = under


class Unfinished(Exception):
    """The code does not end on its own: it waits for something outside of it, or yields forever."""


def finished(result: Any) -> Any:
    """Return the final result of a call: the result of a coroutine, and for a generator the tuple of its items.

    Raises Unfinished inside of code that does not end, at its current place.
    """
    if isinstance(result, CoroutineType):
        result = _awaited(result)
    if isinstance(result, GeneratorType):
        return _yielded(result)
    return _yielded_in_time(result) if isinstance(result, AsyncGeneratorType) else result


def _yielded(generator: Generator[Any, None, Any]) -> tuple[Any, ...]:
    items: list[Any] = []
    for item in generator:
        items.append(item)
        if len(items) > MAX_STEPS:
            generator.throw(Unfinished(f"it has yielded {MAX_STEPS} values here and does not end"))
    return tuple(items)


def _yielded_in_time(generator: AsyncGenerator[Any, None]) -> tuple[Any, ...]:
    items: list[Any] = []
    while len(items) <= MAX_STEPS:
        try:
            items.append(_awaited(generator.__anext__()))
        except StopAsyncIteration:
            return tuple(items)
    _awaited(generator.athrow(Unfinished(f"it has yielded {MAX_STEPS} values here and does not end")))
    return tuple(items)


def _awaited(coroutine: Coroutine[Any, None, Any]) -> Any:
    """Return the result of a coroutine. A bare `yield` in its awaitables only yields to other coroutines, of which
    there are none.
    """
    try:
        for _ in range(MAX_STEPS):
            if coroutine.send(None) is not None:
                break
        coroutine.throw(Unfinished("it awaits something external here, and a trace has no event loop"))
    except StopIteration as end:
        return end.value
    except RuntimeError as error:
        if "event loop" not in str(error):
            raise
        unfinished = Unfinished("it needs a running event loop here, and a trace has none")
        raise unfinished.with_traceback(error.__traceback__) from None
    coroutine.close()
    raise Unfinished("it keeps awaiting something external, and a trace has no event loop")
