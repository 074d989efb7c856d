"""Run tasks in the background: kept alive until they end, or until a newer one replaces them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Run coroutines. `on_end` is called after each; exceptions go to the loop's exception handler."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._tasks: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start `work`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def wait(self) -> None:
        """Wait until no coroutine runs any more."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "fx-lsp engine", "exception": error})
        self._on_end()


class Delayed:
    """Start the newest task after a delay, and cancel the previous one."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Return True if a task runs or is scheduled."""
        return self._timer is not None or (self._task is not None and not self._task.done())

    def start(self, seconds: float, start: Callable[[], asyncio.Task[None]]) -> None:
        """Call `start`, which returns a task, after some seconds."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start, start)

    def stop(self) -> None:
        """Cancel the running or scheduled task."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._timer = self._task = None

    def _start(self, start: Callable[[], asyncio.Task[None]]) -> None:
        self._timer, self._task = None, start()
