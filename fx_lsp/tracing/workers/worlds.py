"""Worlds: processes that have imported a project, where programs run once for all targets that they call (POSIX)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from fx_lsp.errors import WorkerDied, WorldStale
from fx_lsp.model import TraceRequest, WorldRequest
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.fork_server import ForkServer, ProcessChannels
from fx_lsp.tracing.workers.processes import is_below, resume_stopped
from fx_lsp.tracing.workers.zygote import Zygote
from fx_lsp.wire import to_json

MAX_WORLDS = 4
"""The most worlds at the same time."""
MAX_STALE = 5
"""The worlds in a row that may say of themselves that they are not what the texts say."""
WAIT_SECONDS = 120.0
"""Seconds that a world may take for a fork: it may import a project and run programs first."""


@dataclass(frozen=True)
class _Process:
    """The process of a world, as a fork server knows it."""

    child: Child

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def exited(self) -> asyncio.Future[int]:
        return self.child.exited

    def kill(self) -> None:
        self.child.kill()

    def resume(self) -> bool:
        return resume_stopped(self.pid)


class WorldProcess(ForkServer):
    """A started world, which ends once a file that it has read changes."""

    def __init__(self, child: Child, request: WorldRequest) -> None:
        control = child.writer.get_extra_info("socket").dup()
        channels = ProcessChannels(control, child.reader, child.writer, child.output)
        super().__init__(_Process(child), channels, "the world of a file", WAIT_SECONDS)
        self.request = request
        self._used = time.monotonic()
        self._child = child

    def edits(self, wanted: WorldRequest) -> dict[str, str] | None:
        """Return the texts that are other ones in what is wanted; None where more differs than texts of files."""
        before, after = ({file.file: file for file in each.files} for each in (self.request, wanted))
        if before.keys() != after.keys():
            return None
        texts = {name: file.source for name, file in after.items() if file.source != before[name].source}
        as_before = tuple(replace(file, source=before[name].source) for name, file in after.items())
        return texts if replace(wanted, files=as_before) == self.request else None

    async def take(self, request: TraceRequest, edits: Mapping[str, str]) -> Child:
        """Return a process for a request, with later texts of some files. Raises WorkerDied, or WorldStale."""
        self._used = time.monotonic()
        return await self.fork(
            {
                "file": request.file,
                "target": request.name,
                "names": to_json(request.bound),
                "programs": to_json(request.programs),
                "whole": request.is_of_module,
                "edits": dict(edits),
                "calls": request.compares_calls,
            }
        )

    def has_started(self, pid: int) -> bool:
        """Return True if a process is below this one. It has code of a workspace, and may name any."""
        return is_below(pid, self.pid)

    @property
    def error(self) -> BaseException | None:
        """Return why it was ended; None if it lives, or ended by itself."""
        exited = self.process.exited
        return exited.exception() if exited.done() and not exited.cancelled() else None

    @property
    def seconds_idle(self) -> float:
        """Return for how long nothing was asked of it."""
        return time.monotonic() - self._used

    async def end(self) -> None:
        """End the world and all that it has started, and wait until it is gone."""
        self.kill_forks()
        await self._child.end()
        self.listener.cancel()
        self.control.close()


class Worlds:
    """The worlds of an interpreter; the one that was used last comes last."""

    def __init__(self) -> None:
        self._worlds: list[WorldProcess] = []
        self._starting: list[tuple[WorldRequest, asyncio.Task[WorldProcess]]] = []
        self._fatal: dict[str, str] = {}
        self._stale: list[WorldProcess] = []
        self._ending: set[asyncio.Task[None]] = set()

    async def take(self, zygote: Zygote, request: TraceRequest, wanted: WorldRequest) -> Child | None:
        """Return a process for a request from a world that knows as much; None for a file that ends its world."""
        if self._fatal.get(request.file) == request.source:
            return None
        world: WorldProcess | None = None
        try:
            for _ in range(MAX_STALE):
                world, edits = await self._world(zygote, wanted)
                try:
                    return await world.take(request, edits)
                except WorldStale:
                    self._stale.append(world)
            raise WorkerDied("each world of a file has grown old at once", 1)
        except WorkerDied:
            if world is None or not zygote.alive:
                raise
            self._fatal[request.file] = request.source
            self._end(world)
            return None

    def ended_by(self, error: WorkerDied, request: TraceRequest) -> bool:
        """Return True if an error is that of a world and not of a request in it, which gets no world from now on."""
        ended = [world for world in self._worlds if world.error is error]
        for world in ended:
            self._fatal[request.file] = request.source
            self._end(world)
        return bool(ended)

    async def close(self) -> None:
        """End all worlds, and wait until they are gone."""
        starting = [task for _, task in self._starting]
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        for world in list(self._worlds):
            self._end(world)
        if self._ending:
            await asyncio.wait(set(self._ending))

    async def _world(self, zygote: Zygote, wanted: WorldRequest) -> tuple[WorldProcess, Mapping[str, str]]:
        """Return a world that knows as much, and which texts it is to take; one that has grown old is ended."""
        worlds = self._worlds[:]
        fresh = await asyncio.to_thread(lambda: [world for world in worlds if world.is_fresh()])
        self._end_old(fresh)
        usable = [world for world in self._worlds if world in fresh and world not in self._stale]
        pairs = [(world, edits) for world in usable if (edits := world.edits(wanted)) is not None]
        if pairs:
            world, edits = min(pairs, key=lambda pair: len(pair[1]))
        else:
            world, edits = await asyncio.shield(self._start(zygote, wanted)), dict[str, str]()
        if world in self._worlds:
            self._worlds.remove(world)
        self._worlds.append(world)
        for old in self._worlds[:-MAX_WORLDS]:
            if old.is_idle:
                self._end(old)
        return world, edits

    def end_idle(self, seconds: float) -> float | None:
        """End the worlds that nobody has asked for so many seconds; return when the next one is due, None without."""
        self._end_old([world for world in self._worlds if world.seconds_idle < seconds])
        return min((seconds - world.seconds_idle for world in self._worlds), default=None)

    def _end_old(self, usable: Collection[WorldProcess]) -> None:
        """End the idle worlds that are not `usable`, or not what a text says."""
        for world in list(self._worlds):
            is_usable = world in usable and world not in self._stale
            if world.is_idle and not is_usable:
                self._end(world)

    def _start(self, zygote: Zygote, wanted: WorldRequest) -> asyncio.Task[WorldProcess]:
        for request, task in self._starting:
            if request == wanted:
                return task
        task = asyncio.ensure_future(self._started(zygote, wanted))
        self._starting.append((wanted, task))
        task.add_done_callback(lambda _: self._starting.remove((wanted, task)))
        return task

    async def _started(self, zygote: Zygote, wanted: WorldRequest) -> WorldProcess:
        """Return a new world. It is one of the worlds even if the request that needs it was cancelled meanwhile."""
        world = WorldProcess(await zygote.fork({"world": True}), wanted)
        try:
            with suppress(OSError):
                await world.send({"world": to_json(wanted)}, ())
        finally:
            self._worlds.append(world)
        return world

    def _end(self, world: WorldProcess) -> None:
        for worlds in (self._worlds, self._stale):
            if world in worlds:
                worlds.remove(world)
        task = asyncio.ensure_future(world.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
