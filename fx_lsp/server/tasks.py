"""Run work in the background, besides the requests of a client."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

QUIET_SECONDS = 60.0
"""Seconds without a message from the client after which garbage is collected."""
MAX_COLLECTIONS = 1000
"""The most collections of younger objects between two of all objects, for a client that is never quiet."""


class QuietCollector:
    """Collect cyclic garbage among all objects only while the client is quiet.

    Such a collection stops every thread, for a time that grows with the number of objects: 0.3 s with a few large
    graphs.
    """

    def __init__(self) -> None:
        young, middle, self._usual = gc.get_threshold()
        gc.set_threshold(young, middle, MAX_COLLECTIONS)
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def heard(self) -> None:
        """Record that a message has come."""
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(QUIET_SECONDS, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._heard + QUIET_SECONDS:
            self._timer = loop.call_at(self._heard + QUIET_SECONDS, self._look)
            return
        self._timer = None
        if gc.get_count()[2] > self._usual:
            gc.collect()


class Tasks:
    """Hold coroutines in the background. An exception in one is reported as an internal error, with its purpose."""

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, purpose: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run `work` in the background, and return its task."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self._report(purpose, error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self, seconds: float) -> None:
        """Cancel all coroutines, and wait for at most that long until they end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # a benchmark ends its processes elsewhere
            await asyncio.wait(self._tasks, timeout=seconds)
