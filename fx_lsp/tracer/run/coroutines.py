"""Run a call to its end if it returns a coroutine, without an event loop, or a generator."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

MAX_STEPS = 1000
"""The most values that a generator may yield, and the most suspensions of a coroutine."""


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
