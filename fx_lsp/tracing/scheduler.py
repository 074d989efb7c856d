"""Schedule traces: the most urgent first, a limited number at once, and none that is not needed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Mapping, Set
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

log = logging.getLogger(__name__)

PREEMPT_SECONDS = 0.5
"""The time in seconds that a running job has before it can lose its slot: most traces end within it."""


class Priority(IntEnum):
    """Rank jobs by who looks at their results; smaller is sooner."""

    REQUESTED = 0
    AT_CURSOR = 1
    FOCUSED_FILE = 2
    ELSEWHERE = 3
    EXTRA = 4


class Urgency(NamedTuple):
    """Sort jobs: by priority, then the ones that were not slow, then by `order`; smaller is sooner."""

    priority: Priority
    slow: bool = False
    order: int = 0

    @property
    def is_watched(self) -> bool:
        """Return True if a person waits for the result."""
        return self.priority <= Priority.AT_CURSOR


@dataclass(frozen=True)
class Job:
    """Describe work named by `key`; jobs of one `lane` share a limit; `title` is its name in the status."""

    key: str
    lane: Hashable
    title: str
    run: Callable[[], Coroutine[Any, Any, None]]


@dataclass
class _RunningJob:
    """Hold a job that has run since `started`; `is_cancelled` once it was cancelled."""

    job: Job
    task: asyncio.Task[None]
    started: float
    is_cancelled: bool = False


class Scheduler:
    """Run jobs, at most `limit` of each lane at once.

    `urgency(key)` is called whenever a slot is free, so that jobs overtake each other as the user moves. None means
    that the job is not needed any more: it is dropped, or cancelled if it runs. `on_change` is called after every start
    and end.

    A job that a person waits for never waits for one that nobody waits for: if all slots are taken, the least urgent
    unwatched job that has run for `preempt_seconds` is cancelled and queued again. It starts from scratch later. No job
    is cancelled for ever: the most urgent unwatched job keeps its slot as long as the watched ones need fewer than all,
    and watched jobs become unwatched when they are answered or the cursor leaves them. A place beyond the limit would
    lose no work, but endless jobs would fill that one too, and memory bounds the number of processes.
    """

    def __init__(
        self,
        limit: int,
        urgency: Callable[[str], Urgency | None],
        on_change: Callable[[], None],
        preempt_seconds: float = PREEMPT_SECONDS,
    ) -> None:
        self._limit = max(limit, 1)
        self._urgency = urgency
        self._on_change = on_change
        self._preempt_seconds = preempt_seconds
        self._waiting: dict[str, Job] = {}
        self._running: dict[str, _RunningJob] = {}
        self._stopped: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._done = 0
        self._closed = False

    def __contains__(self, key: str) -> bool:
        return key in self._waiting or key in self._running

    @property
    def coming(self) -> Set[str]:
        """Return the keys of the jobs that will end with a result: queued, or running and not stopped."""
        return (self._waiting.keys() | self._running.keys()) - self._stopped

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
        title = next(iter(self._running.values())).job.title
        return f"tracing {title} ({self._done + 1} of {total})"

    def add(self, job: Job) -> None:
        """Queue a job, unless one with its key is queued or running."""
        if job.key not in self and not self._closed:
            self._waiting[job.key] = job
            self.refresh()

    def refresh(self) -> None:
        """Drop and cancel unneeded jobs, start others in the free slots, and free slots for the watched ones."""
        urgencies: dict[str, Urgency] = {}
        for key in (*self._waiting, *self._running):
            urgency = self._urgency(key)
            if urgency is not None:
                urgencies[key] = urgency
            else:
                self._waiting.pop(key, None)
                self._cancel(key)
        blocked: dict[Hashable, int] = {}
        for key in sorted(self._waiting, key=lambda key: urgencies[key]):
            job = self._waiting[key]
            if len(self._of_lane(job.lane)) < self._limit:
                self._start(self._waiting.pop(key))
            elif urgencies[key].is_watched:
                blocked[job.lane] = blocked.get(job.lane, 0) + 1
        self._preempt(blocked, urgencies)
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
            await asyncio.wait([running.task for running in self._running.values()])
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Cancel everything, and accept no more jobs."""
        self._closed = True
        await self.cancel()

    def _start(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(job.run())
        self._running[job.key] = _RunningJob(job, task, loop.time())
        task.add_done_callback(lambda task: self._ended(job.key, task))

    def _of_lane(self, lane: Hashable) -> list[_RunningJob]:
        return [running for running in self._running.values() if running.job.lane == lane]

    def _preempt(self, blocked: Mapping[Hashable, int], urgencies: Mapping[str, Urgency]) -> None:
        """Cancel an unwatched job for each of the `blocked` watched ones of a lane, once it has had its time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due: list[float] = []
        now = asyncio.get_running_loop().time()
        for lane, count in blocked.items():
            running = self._of_lane(lane)
            count -= sum(each.is_cancelled for each in running)
            unwatched = [
                (urgencies[each.job.key], each.started, each.job.key)
                for each in running
                if not each.is_cancelled and not urgencies[each.job.key].is_watched
            ]
            for _, started, key in sorted(unwatched, reverse=True)[: max(count, 0)]:
                if started + self._preempt_seconds <= now:
                    self._cancel(key)
                else:
                    due.append(started + self._preempt_seconds)
        if due:
            self._timer = asyncio.get_running_loop().call_at(min(due), self.refresh)

    def _cancel(self, key: str) -> None:
        """Cancel a running job once: a second time would interrupt its clean-up."""
        running = self._running.get(key)
        if running is not None and not running.is_cancelled:
            running.is_cancelled = True
            running.task.cancel()

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        job = self._running.pop(key).job
        if task.cancelled():
            if key not in self._stopped and not self._closed:
                self._waiting[key] = job  # preempted, or needed again by now; if not, refresh drops it
        else:
            self._done += 1
        self._stopped.discard(key)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a trace failed inside fx-lsp", exc_info=error)
        self.refresh()
