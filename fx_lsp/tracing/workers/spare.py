"""Workers without fork: every request has a fresh process, and one warm spare waits for the next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from fx_lsp.model import TraceRequest
from fx_lsp.tracing.workers.channels import OutputTail
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.launch import Launch, remove_scratch, scratch_folder, until_ready, worker_environment
from fx_lsp.tracing.workers.processes import kill_group, start_process, started_at
from fx_lsp.wire import frame


class Spare:
    """A process that has imported torch and waits for its one request."""

    def __init__(self, child: Child, scratch: str, memory_bytes: int) -> None:
        self.pid = child.pid
        self.preloading: list[str] = []
        self._child: Child | None = child
        self._bounds = memory_bytes, scratch
        self._count: asyncio.Task[None] | None = None
        self._packages: set[str] = set()

    @property
    def alive(self) -> bool:
        """Return whether it still waits."""
        return self._child is not None and not self._child.exited.done()

    def is_fresh(self) -> bool:
        """Return True while it waits."""
        return self.alive

    async def take(self, request: TraceRequest) -> Child | None:
        """Return its process, whose end is the caller's from now on; None where another has it, or it has ended."""
        if not self.alive:
            return None
        child, self._child = self._child, None
        self._count = asyncio.create_task(child.keep_within(*self._bounds)) if child is not None else None
        return child

    def preload(self, packages: Sequence[str]) -> None:
        """Have it import installed packages."""
        new = [package for package in packages if package not in self._packages]
        self._packages.update(new)
        if new and self._child is not None:
            with suppress(OSError):
                self._child.writer.write(frame({"preload": new}))

    async def rehearse(self, graph: bytes, request: TraceRequest) -> None:
        """A fresh process has no time for it: it is warm later than it is asked for."""

    async def end(self) -> None:
        """End it, unless its process was taken."""
        if self._child is not None:
            await self._child.end()


async def start_spare(launch: Launch) -> Spare:
    """Start a process that imports torch and then waits for a request. Raises WorkerStartError."""
    scratch = scratch_folder()
    try:
        environment = worker_environment(os.environ, scratch)
        process = await start_process(launch.command(scratch, "once"), env=environment, stdin=True)
    except BaseException:
        remove_scratch(scratch)
        raise
    assert process.stdin is not None and process.stderr is not None
    output = OutputTail(process.stderr)

    def kill() -> None:
        process.kill()
        kill_group(process.pid)

    def close() -> None:
        process.transport.close()
        remove_scratch(scratch)

    started = started_at(process.pid)
    child = Child(process.pid, started, process.stdout, process.stdin, output, process.exited, kill, close)
    try:
        await until_ready(launch.python, process, process.stdout, output)
    except BaseException:
        await child.end()
        raise
    return Spare(child, scratch, launch.limits.memory_bytes)
