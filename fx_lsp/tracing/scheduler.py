"""Schedule traces: the most urgent first, a limited number at once, and none that is not needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

Urgency = tuple[int, ...]
"""A sort key; smaller is sooner."""


@dataclass(frozen=True)
class Job:
    """Describe work named by `key`; jobs of one `lane` share a limit; `title` is its name in the status."""

    key: str
    lane: Hashable
    title: str
    run: Callable[[], Coroutine[Any, Any, None]]


class Scheduler:
    """Run jobs, at most `limit` of each lane at once.

    `urgency(key)` is called whenever a slot is free, so that jobs overtake each other as the user moves. None means
    that the job is not needed any more: it is dropped, or cancelled if it runs. `on_change` is called after every start
    and end.
    """

    def __init__(self, limit: int, urgency: Callable[[str], Urgency | None], on_change: Callable[[], None]) -> None:
        self._limit = max(limit, 1)
        self._urgency = urgency
        self._on_change = on_change
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self._cancelled: set[str] = set()
        self._stopped: set[str] = set()
        self._done = 0
        self._closed = False

    def __contains__(self, key: str) -> bool:
        return key in self._waiting or key in self._running

    @property
    def idle(self) -> bool:
        """Return True if no job runs or waits."""
        return not self._waiting and not self._running

    @property
    def message(self) -> str:
        """Return `tracing Block (3 of 12)`, or "" when idle. Counts restart after each idle moment."""
        if not self._running:
            return ""
        total = self._done + len(self._running) + len(self._waiting)
        title = next(iter(self._running.values()))[0].title
        return f"tracing {title} ({self._done + 1} of {total})"

    def add(self, job: Job) -> None:
        """Queue a job, unless one with its key is queued or running."""
        if job.key not in self and not self._closed:
            self._waiting[job.key] = job
            self.refresh()

    def refresh(self) -> None:
        """Drop and cancel unneeded jobs, and start others in the free slots."""
        urgencies = {key: self._urgency(key) for key in (*self._waiting, *self._running)}
        for key, urgency in urgencies.items():
            if urgency is None:
                self._waiting.pop(key, None)
                self._cancel(key)
        load: dict[Hashable, int] = {}
        for job, _ in self._running.values():
            load[job.lane] = load.get(job.lane, 0) + 1
        for key in sorted(self._waiting, key=lambda key: urgencies[key] or ()):
            job = self._waiting[key]
            if load.get(job.lane, 0) < self._limit:
                load[job.lane] = load.get(job.lane, 0) + 1
                del self._waiting[key]
                task = asyncio.get_running_loop().create_task(job.run())
                self._running[key] = job, task
                task.add_done_callback(lambda task, key=key: self._ended(key, task))
        if self.idle:
            self._done = 0
        self._on_change()

    def stop(self) -> None:
        """Drop and cancel everything."""
        self._waiting.clear()
        for key in self._running:
            self._cancel(key)
        self._stopped.update(self._running)
        self._on_change()

    async def cancel(self) -> None:
        """Drop and cancel everything, and wait until all jobs have ended."""
        self.stop()
        while self._running:
            await asyncio.wait([task for _, task in self._running.values()])
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Cancel everything, and accept no more jobs."""
        self._closed = True
        await self.cancel()

    def _cancel(self, key: str) -> None:
        """Cancel a running job once: a second time would interrupt its clean-up."""
        if key in self._running and key not in self._cancelled:
            self._cancelled.add(key)
            self._running[key][1].cancel()

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        job, _ = self._running.pop(key)
        self._cancelled.discard(key)
        if task.cancelled():
            if key not in self._stopped and not self._closed:
                self._waiting[key] = job  # it may be needed again by now; if not, refresh drops it
        else:
            self._done += 1
        self._stopped.discard(key)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a trace failed inside fx-lsp", exc_info=error)
        self.refresh()
