"""Processes in the user's interpreter that trace: one per request, limited in time and memory, killed on cancel."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from fx_lsp.errors import WorkerDied, WorkerExceeded, WorkerTimeout, WorldStale
from fx_lsp.model import TraceReply, TraceRequest, WorldRequest
from fx_lsp.tracing.workers.channels import EarlyReply
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.processes import describe_status, starved_seconds
from fx_lsp.tracing.workers.spare import start_spare
from fx_lsp.tracing.workers.worlds import Worlds
from fx_lsp.tracing.workers.zygote import Zygote, start_zygote

__all__ = ["Limits", "Mode", "Workers"]

Mode = Literal["fork", "spawn"]
MAX_STARVED = 3
"""The factor of its limit that a process may also wait for a processor."""
MAX_STALE = 5
"""The processes in a row that may say that what they have imported has changed."""
MAX_PACKAGES, MAX_NAME = 10_000, 200
"""The most modules that are imported beforehand, and the length of a name: processes with code of a workspace name
them.
"""
RESTARTS = 3
RESTART_SECONDS = 60.0
"""At most so many times in so many seconds, a process that died is replaced before a request needs it."""

log = logging.getLogger(__name__)


class Warm(Protocol):
    """A process with torch imported, which gives processes for requests: a zygote, or a spare that becomes one itself.

    It gives none any more once it is not `alive`; those that it gave go on. It should give none once it is not
    `is_fresh`, because a package that it has imported was upgraded. `preloading` are the packages that it is importing
    now.
    """

    pid: int
    preloading: list[str]

    @property
    def alive(self) -> bool: ...
    def is_fresh(self) -> bool: ...
    async def take(self, request: TraceRequest) -> Child | None: ...
    def preload(self, packages: Sequence[str]) -> None: ...
    async def rehearse(self, graph: bytes, request: TraceRequest) -> None: ...
    async def end(self) -> None: ...


def default_mode() -> Mode:
    """Return "fork" where that is safe. On macOS, libraries that torch loads may crash in a fork."""
    return "fork" if hasattr(os, "fork") and sys.platform != "darwin" else "spawn"


class Workers:
    """Traces requests in processes of one interpreter, and keeps one warm for the next.

    With the `mode` "fork", a warm zygote forks a child for each request; with "spawn", each request has a new process;
    None is the default of the platform. `run` may be called concurrently; the caller bounds how often. `launch`
    describes the processes.

    A waiting process that somebody ends is replaced at once. All processes end when nobody has used them for the
    limit's `idle_seconds`; the next request or `touch` starts them again.
    """

    def __init__(self, launch: Launch, mode: Mode | None = None) -> None:
        self._limits, self._launch = launch.limits, launch
        self._mode = mode or default_mode()
        self._packages: dict[str, None] = {}
        self._warm: Warm | None = None
        self._starting: asyncio.Task[Warm] | None = None
        self._running: set[Child] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._worlds = Worlds()
        self._deaths: deque[float] = deque(maxlen=RESTARTS)
        self._asked = 0
        self._used = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self.resting = False

    @property
    def pid(self) -> int | None:
        """Return the process that waits for requests: the zygote, or the spare. None while there is none."""
        return self._warm.pid if self._warm is not None and self._warm.alive else None

    @property
    def ready(self) -> bool:
        """Return whether a request would be answered without importing torch first."""
        return self.pid is not None

    async def start(self) -> None:
        """Start the waiting process and wait until torch is warm in it. Raises WorkerStartError."""
        await self._live()

    def touch(self) -> None:
        """Record that the editor was used; start what has ended because it was not."""
        self._used = time.monotonic()
        if self.resting and not self._closed:
            self.resting = False
            self._start_next()

    async def run(
        self,
        request: TraceRequest,
        seconds: float | None = None,
        early: EarlyReply | None = None,
        world: WorldRequest | None = None,
        stale: int = 0,
    ) -> TraceReply:
        """Trace in a process of its own. Cancelling kills that process's whole group before it returns.

        With a `world`, that is a fork of the one that has what it says; without fork it becomes that world itself.

        `stale` processes before have said that a package has changed.

        `seconds` (default: the limit's) count from when the process is there, without those in which it waits for a
        processor; `early` is given replies that are not final, the last of which is the answer if the time is over.
        Raises WorkerStartError, WorkerDied (with the exit status) or WorkerTimeout; the next call starts what is
        missing.
        """
        limit = self._limits.seconds if seconds is None else seconds
        if self._closed:
            raise _shut_down()
        self._asked += 1
        try:
            child = await self._child(request, world)
        finally:
            self._asked -= 1
            self._used = time.monotonic()
        self._running.add(child)
        earlier: list[TraceReply] = []

        def note(reply: TraceReply) -> None:
            earlier.append(reply)
            if early is not None:
                early(reply)

        try:
            alone = replace(request, world=world) if self._mode == "spawn" else request
            reply = await _within(limit, child, child.answer(alone, self._limits.memory_bytes, note))
            reply = replace(reply, starved=starved_seconds(child.pid))
        except asyncio.TimeoutError:
            if earlier:
                await self._end(child)
                return replace(earlier[-1], final=True)
            try:
                await child.print_stack()
            finally:
                await self._end(child)
            raise WorkerTimeout(f"no answer within {limit:g} s", child.output.text()) from None
        except WorldStale:
            await self._end(child)
            if stale == MAX_STALE:
                raise WorkerDied("the packages of the tracer change all the time", 1, child.output.text()) from None
            return await self.run(request, seconds, early, world, stale + 1)
        except WorkerExceeded as error:
            await self._end(child)
            if not self._worlds.ended_by(error, request):
                raise
            return await self.run(request, seconds, early, None, stale)
        except BaseException:
            await self._end(child)
            raise
        self._end_soon(child)
        return reply

    def preload(self, packages: Sequence[str]) -> None:
        """Have installed third-party packages imported beforehand, in this waiting process and its successors."""
        names = [name for name in packages if len(name) <= MAX_NAME and name.replace(".", "_").isidentifier()]
        names = names[: MAX_PACKAGES - len(self._packages)]
        self._packages |= dict.fromkeys(names)
        if self._warm is not None:
            self._warm.preload(names)

    async def rehearse(self, graph: bytes, request: TraceRequest) -> None:
        """Have the next process know the operations of a graph, an encoded stage that answers a request, beforehand."""
        if self._warm is not None and self._warm.alive:
            await self._warm.rehearse(graph, request)

    async def close(self) -> None:
        """Kill every process and wait until they are gone; pending `run`s raise WorkerDied."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for child in list(self._running):
            self._end_soon(child)
        if self._ending:
            await asyncio.wait(set(self._ending))
        await self._worlds.close()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._warm is not None:
            await self._warm.end()

    async def _end(self, child: Child) -> None:
        await asyncio.shield(self._end_soon(child))

    def _end_soon(self, child: Child) -> asyncio.Task[None]:
        self._running.discard(child)
        task = asyncio.create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _child(self, request: TraceRequest, world: WorldRequest | None) -> Child:
        """Return a process for one request; start the next warm one where that used this one up."""
        again = True
        while True:
            warm = await self._live()
            try:
                child = None
                if world is not None and isinstance(warm, Zygote):
                    child = await self._worlds.take(warm, request, world)
                child = child or await warm.take(request)
            except WorkerDied:
                if warm.alive or self._closed or not again:
                    raise
                again = False  # it died before the fork, so nothing of the request has run: another may do it
                continue
            if child is not None:
                if not warm.alive and not self._closed:
                    self._start_next()
                return child

    async def _live(self) -> Warm:
        """Return the warm process, a new one where there is none."""
        while (warm := self._warm) is not None:
            is_fresh = await asyncio.to_thread(warm.is_fresh)
            if warm is self._warm:
                if is_fresh:
                    return warm
                break
        task = self._start_next()
        await asyncio.wait({task})  # others wait for it too: cancelling one who waits does not cancel it
        if task.cancelled():
            raise _shut_down()
        return task.result()

    def _start_next(self) -> asyncio.Task[Warm]:
        if self._closed:
            raise _shut_down()
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return self._starting

    async def _start(self) -> Warm:
        old, self._warm = self._warm, None
        if old is not None and old.alive:
            worlds, self._worlds = self._worlds, Worlds()
            task = asyncio.create_task(_retire(old, worlds, [child.exited for child in self._running]))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        elif old is not None:
            for package in old.preloading:
                self._packages.pop(package, None)  # what it was importing when it died may be what ended it
            await old.end()
        self._warm = warm = await (start_zygote if self._mode == "fork" else start_spare)(self._launch)
        self._warm.preload(list(self._packages))
        self.resting = False
        if isinstance(warm, Zygote):
            warm.process.exited.add_done_callback(lambda exited: self._replace(warm, exited))
        if self._timer is None and self._limits.idle_seconds:
            self._look_later(self._limits.idle_seconds)
        return warm

    def _replace(self, dead: Zygote, exited: asyncio.Future[int]) -> None:
        """Start another zygote in place of one that somebody ended, unless that happens again and again."""
        now = time.monotonic()
        if self._closed or self._warm is not dead or self._starting is not None or exited.cancelled():
            return
        if len(self._deaths) == RESTARTS and now - self._deaths[0] < RESTART_SECONDS:
            return
        self._deaths.append(now)
        log.warning("the tracer's parent process %s; another one starts", describe_status(exited.result()))
        self._start_next()

    def _look_later(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(max(seconds, 0), self._look)

    def _look(self) -> None:
        """End what nobody has used for the limit's `idle_seconds`. Runs when something may be due, and never polls."""
        limit = self._limits.idle_seconds
        self._timer = None
        left = limit - (time.monotonic() - self._used)
        due = self._worlds.end_idle(limit)
        if self._running or self._asked or self._starting is not None:
            self._look_later(limit)
        elif left <= 0:
            self._rest()
        else:
            self._look_later(max(left if due is None else min(left, due), limit / 10))

    def _rest(self) -> None:
        """End all processes until somebody uses the editor."""
        warm, self._warm = self._warm, None
        if warm is None:
            return
        self.resting = True
        worlds, self._worlds = self._worlds, Worlds()
        task = asyncio.create_task(_retire(warm, worlds, ()))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _started(self, task: asyncio.Task[Warm]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()


async def _retire(warm: Warm, worlds: Worlds, traces: Sequence[asyncio.Future[int]]) -> None:
    """End a warm process and its worlds once the traces that run in them have ended."""
    if traces:
        await asyncio.wait(traces)
    await worlds.close()
    await warm.end()


async def _within(seconds: float, child: Child, answer: Coroutine[Any, Any, TraceReply]) -> TraceReply:
    """Return an answer. Raises TimeoutError after so many seconds, but for those in which the child was starved."""
    started, task = time.monotonic(), asyncio.create_task(answer)
    try:
        while not task.done():
            granted = seconds + min(starved_seconds(child.pid) or 0.0, MAX_STARVED * seconds)
            left = granted - (time.monotonic() - started)
            if left <= 0:
                raise asyncio.TimeoutError
            await asyncio.wait({task}, timeout=left)
        return task.result()
    finally:
        task.cancel()


def _shut_down() -> WorkerDied:
    return WorkerDied("the tracer has been shut down", 0)
