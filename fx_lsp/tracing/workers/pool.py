"""Processes in the user's interpreter that trace: one per request, limited in time and memory, killed on cancel."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol, TypeVar

from fx_lsp.errors import WorkerDied, WorkerTimeout
from fx_lsp.model import TraceReply, TraceRequest
from fx_lsp.tracing.workers.channels import EarlyReply
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.spare import preload, start_spare
from fx_lsp.tracing.workers.zygote import Zygote, start_zygote

__all__ = ["Limits", "Mode", "Workers"]

Mode = Literal["fork", "spawn"]
T = TypeVar("T")


class Workers:
    """Traces requests in processes of one interpreter.

    `mode` is "fork" where the platform has it (a warm zygote forks a child per request), else "spawn". `run` may be
    called concurrently; the caller bounds how often. `job`, `paths` and `warm` replace what the processes run.
    """

    def __init__(
        self,
        python: str,
        limits: Limits,
        mode: Mode | None = None,
        *,
        job: str = Launch.job,
        paths: Sequence[str] = (),
        warm: bool = True,
    ) -> None:
        self._limits = limits
        self._source = _source(mode, Launch(python, job, tuple(paths), warm))
        self._running: set[Child] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Return the process that waits for requests: the zygote, or the spare. None while there is none."""
        return self._source.pid

    @property
    def ready(self) -> bool:
        """Return whether a request would be answered without importing torch first."""
        return self._source.pid is not None

    async def start(self) -> None:
        """Start the waiting process and wait until torch is warm in it. Raises WorkerStartError."""
        await self._source.start()

    async def run(
        self, request: TraceRequest, seconds: float | None = None, early: EarlyReply | None = None
    ) -> TraceReply:
        """Trace in a process of its own. Cancelling kills that process's whole group before it returns.

        `seconds` (default: the limit's) count from when the process is there; `early` is given replies that are not
        final, the last of which stands where the time is over. Raises WorkerStartError, WorkerDied (with the exit
        status) or WorkerTimeout; the next call starts what is missing.
        """
        limit = self._limits.seconds if seconds is None else seconds
        if self._closed:
            raise _shut_down()
        child = await self._source.child()
        self._running.add(child)
        earlier: list[TraceReply] = []

        def note(reply: TraceReply) -> None:
            earlier.append(reply)
            if early is not None:
                early(reply)

        try:
            reply = await asyncio.wait_for(child.answer(request, self._limits.memory_bytes, note), limit)
        except asyncio.TimeoutError:
            if earlier:
                await self._end(child)
                return replace(earlier[-1], final=True)
            try:
                await child.print_stack()
            finally:
                await self._end(child)
            raise WorkerTimeout(f"no answer within {limit:g} s", child.output.text()) from None
        except BaseException:
            await self._end(child)
            raise
        self._end_soon(child)
        return reply

    def preload(self, packages: Sequence[str]) -> None:
        """Have installed third-party packages imported beforehand, in this waiting process and its successors."""
        self._source.preload(packages)

    async def rehearse(self, graph: bytes) -> None:
        """Have the next process know the operations of a graph, an encoded stage, before its request comes."""
        await self._source.rehearse(graph)

    async def close(self) -> None:
        """Kill every process and wait until they are gone; pending `run`s raise WorkerDied."""
        self._closed = True
        for child in list(self._running):
            self._end_soon(child)
        if self._ending:
            await asyncio.wait(set(self._ending))
        await self._source.close()

    async def _end(self, child: Child) -> None:
        await asyncio.shield(self._end_soon(child))

    def _end_soon(self, child: Child) -> asyncio.Task[None]:
        self._running.discard(child)
        task = asyncio.create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


class _Source(Protocol):
    """Where the processes for requests come from."""

    @property
    def pid(self) -> int | None: ...
    async def start(self) -> None: ...
    async def child(self) -> Child: ...
    def preload(self, packages: Sequence[str]) -> None: ...
    async def rehearse(self, graph: bytes) -> None: ...
    async def close(self) -> None: ...


class _Forks:
    """Children of one zygote, which is started again when it has died."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._packages: list[str] = []
        self._closed = False
        self._zygote: Zygote | None = None
        self._starting: asyncio.Task[Zygote] | None = None

    @property
    def pid(self) -> int | None:
        return self._zygote.pid if self._zygote and self._zygote.alive else None

    async def start(self) -> None:
        await self._live()

    async def child(self) -> Child:
        zygote = await self._live()
        try:
            return await zygote.fork()
        except WorkerDied:
            if zygote.alive or self._closed:
                raise
        # It died before the fork, so nothing of the request has run: a new one may.
        return await (await self._live()).fork()

    def preload(self, packages: Sequence[str]) -> None:
        loaded = set(self._packages)
        self._packages += [p for p in packages if p not in loaded]
        if self._zygote:
            self._zygote.preload(packages)

    async def rehearse(self, graph: bytes) -> None:
        if self._zygote and self._zygote.alive:
            await self._zygote.rehearse(graph)

    async def close(self) -> None:
        self._closed = True
        if self._starting:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._zygote:
            await self._zygote.end()

    async def _live(self) -> Zygote:
        if self._zygote and self._zygote.alive:
            return self._zygote
        if self._closed:
            raise _shut_down()
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return await _shared(self._starting)

    async def _start(self) -> Zygote:
        if self._zygote:
            # What it was importing when it died may be what ended it.
            self._packages = [p for p in self._packages if p not in self._zygote.preloading]
            await self._zygote.end()
            self._zygote = None
        zygote = self._zygote = await start_zygote(self._launch)
        zygote.preload(self._packages)
        return zygote

    def _started(self, task: asyncio.Task[Zygote]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()


class _Spares:
    """Fresh processes; the next one is started when one is taken."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._packages: list[str] = []
        self._closed = False
        self._spare: asyncio.Task[Child] | None = None

    @property
    def pid(self) -> int | None:
        child = self._ready()
        return child.pid if child and not child.exited.done() else None

    async def start(self) -> None:
        await _shared(self._next())

    async def child(self) -> Child:
        while True:
            task = self._next()
            child = await _shared(task)
            if self._spare is not task:
                continue  # another request took it
            self._spare = None
            if not child.exited.done():
                self._next()
                return child
            await child.end()

    def preload(self, packages: Sequence[str]) -> None:
        loaded = set(self._packages)
        new = [p for p in packages if p not in loaded]
        self._packages += new
        if child := self._ready():
            preload(child, new)

    async def rehearse(self, graph: bytes) -> None:
        """A fresh process has no time for it: it is warm later than it is asked for."""

    async def close(self) -> None:
        self._closed = True
        if self._spare:
            self._spare.cancel()
            await asyncio.wait({self._spare})
            if child := self._ready():
                await child.end()

    def _ready(self) -> Child | None:
        done = self._spare if self._spare and self._spare.done() and not self._spare.cancelled() else None
        return done.result() if done and not done.exception() else None

    def _next(self) -> asyncio.Task[Child]:
        if self._closed:
            raise _shut_down()
        failed = self._spare and self._spare.done() and (self._spare.cancelled() or self._spare.exception())
        if self._spare is None or failed:
            self._spare = asyncio.create_task(start_spare(self._launch, self._packages))
        return self._spare


async def _shared(task: asyncio.Task[T]) -> T:
    """Return the result of a task that others wait for too: cancelling one who waits does not cancel it."""
    await asyncio.wait({task})
    if task.cancelled():
        raise _shut_down()
    return task.result()


def _shut_down() -> WorkerDied:
    return WorkerDied("the tracer has been shut down", 0)


def _source(mode: Mode | None, launch: Launch) -> _Source:
    chosen = mode or ("fork" if hasattr(os, "fork") else "spawn")
    return _Forks(launch) if chosen == "fork" else _Spares(launch)
