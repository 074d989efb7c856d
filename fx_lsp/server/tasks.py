"""Run coroutines in the background, besides the requests of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """Hold coroutines in the background. An exception in one is reported as an internal error, with its purpose."""

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, purpose: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` in the background."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self._report(purpose, error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def cancel(self, seconds: float) -> None:
        """Cancel all coroutines, and wait for at most that long until they end."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # a benchmark ends its processes elsewhere
            await asyncio.wait(self._tasks, timeout=seconds)
