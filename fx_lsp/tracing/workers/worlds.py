"""Worlds: processes that have imported a project, where programs run once for all targets that they call (POSIX)."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_lsp.errors import WorkerDied
from fx_lsp.model import TraceRequest, WorldRequest
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.fork_server import ForkServer
from fx_lsp.tracing.workers.zygote import Zygote
from fx_lsp.wire import to_json

MAX_WORLDS = 4
"""How many worlds there are at once."""
IDLE_SECONDS = 600.0
"""After how many seconds without a request a world is ended."""
WAIT_SECONDS = 120.0
"""How long a world may take for a fork: it may have to import a project and run programs first."""
_WHOLE = frozenset({"function", "method", "module"})
"""Targets that are taken from a module as it is once that has run."""


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
        return False


class WorldProcess(ForkServer):
    """A started world: `files` are those of the project that it has read, with what they were then."""

    def __init__(self, child: Child, request: WorldRequest) -> None:
        control = child.writer.get_extra_info("socket").dup()
        super().__init__(
            _Process(child), control, (child.reader, child.writer), child.output, "the world of a file", WAIT_SECONDS
        )
        self.request = request
        self._used = time.monotonic()
        self._child = child
        self._read: dict[str, int | None] = {}

    async def take(self, request: TraceRequest) -> Child:
        """Return a process for a request. Raises WorkerDied."""
        self._used = time.monotonic()
        return await self.fork(
            {
                "file": request.file,
                "target": request.name,
                "names": to_json(request.bound),
                "programs": to_json(request.programs),
                "whole": request.kind in _WHOLE,
            }
        )

    @property
    def seconds_idle(self) -> float:
        """Return for how long nothing was asked of it."""
        return time.monotonic() - self._used

    def is_fresh(self) -> bool:
        """Return whether the files that it has read are as they were."""
        return self.alive and all(_modified(file) == before for file, before in self._read.items())

    def hear(self, header: dict[str, Any]) -> None:
        """Take note of files that were read."""
        for file in header.get("read", ()):
            if file not in self._read:
                self._read[file] = _modified(file)

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
        self._fatal: set[str] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def take(self, zygote: Zygote, request: TraceRequest, wanted: WorldRequest) -> Child | None:
        """Return a process for a request from a world that knows as much; None for a file that ends its world."""
        if request.file in self._fatal:
            return None
        world: WorldProcess | None = None
        try:
            world = await self._world(zygote, wanted)
            return await world.take(request)
        except WorkerDied:
            if world is None or not zygote.alive:
                raise
            self._fatal.add(request.file)
            self._end(world)
            return None

    async def close(self) -> None:
        """End all worlds, and wait until they are gone."""
        for _, task in self._starting:
            task.cancel()
        for world in list(self._worlds):
            self._end(world)
        if self._ending:
            await asyncio.wait(set(self._ending))

    async def _world(self, zygote: Zygote, wanted: WorldRequest) -> WorldProcess:
        """Return a world that knows as much; one that has grown old is ended."""
        for world in self._worlds:
            if world.is_idle and not (world.is_fresh() and world.seconds_idle < IDLE_SECONDS):
                self._end(world)
        world = next((w for w in self._worlds if w.request == wanted and w.is_fresh()), None)
        if world is None:
            world = await asyncio.shield(self._start(zygote, wanted))
        if world in self._worlds:
            self._worlds.remove(world)
        self._worlds.append(world)
        for old in self._worlds[:-MAX_WORLDS]:
            if old.is_idle:
                self._end(old)
        return world

    def _start(self, zygote: Zygote, wanted: WorldRequest) -> asyncio.Task[WorldProcess]:
        for request, task in self._starting:
            if request == wanted:
                return task
        task = asyncio.ensure_future(_started(zygote, wanted))
        self._starting.append((wanted, task))
        task.add_done_callback(lambda _: self._starting.remove((wanted, task)))
        return task

    def _end(self, world: WorldProcess) -> None:
        if world in self._worlds:
            self._worlds.remove(world)
        task = asyncio.ensure_future(world.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _started(zygote: Zygote, wanted: WorldRequest) -> WorldProcess:
    world = WorldProcess(await zygote.fork({"world": True}), wanted)
    with suppress(OSError):
        await world.send({"world": to_json(wanted)}, ())
    return world


def _modified(file: str) -> int | None:
    """Return when a file was modified; None where there is none."""
    try:
        return Path(file).stat().st_mtime_ns
    except OSError:
        return None
