"""The server's end of a zygote: a warm process that forks one child per request (POSIX)."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fx_lsp.model import TraceRequest
from fx_lsp.sandbox.readable import of_project
from fx_lsp.tracing.workers.channels import BUFFER, OutputTail
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.fork_server import ForkServer, ProcessChannels, log
from fx_lsp.tracing.workers.launch import Launch, remove_scratch, scratch_folder, until_ready, worker_environment
from fx_lsp.tracing.workers.processes import Process, start_process

END_SECONDS = 0.5
"""Seconds that a zygote may take to end by itself: one that is importing something is killed."""


class Zygote(ForkServer):
    """A started zygote."""

    def __init__(self, process: Process, channels: ProcessChannels, scratch: str, memory_bytes: int) -> None:
        super().__init__(process, channels, "the tracer's parent process")
        self._memory_bytes = memory_bytes
        self._counts: set[asyncio.Task[None]] = set()
        self._scratch = scratch
        self.preloading: list[str] = []
        self.preloaded: list[str] = []
        self._started = process
        self._asking: asyncio.Task[None] | None = None

    async def take(self, request: TraceRequest) -> Child:
        """Fork a new child and return it. Raises WorkerDied when the zygote dies or does not answer."""
        return await self.fork({"reads": _reads(request)})

    async def fork(self, header: dict[str, Any] | None = None) -> Child:
        """Fork a new child as a header says, which is ended with all that it starts if that uses too much."""
        child = await super().fork(header)
        count = asyncio.create_task(child.keep_within(self._memory_bytes, str(Path(self._scratch, str(child.pid)))))
        self._counts.add(count)
        count.add_done_callback(self._counts.discard)
        return child

    def preload(self, packages: Sequence[str]) -> None:
        """Have installed packages imported when no fork is waiting."""
        loaded = {*self.preloading, *self.preloaded}
        new = [p for p in packages if p not in loaded]
        if new:
            self.preloading += new
            self._asking = asyncio.create_task(self._ask_to_preload(new))

    async def _ask_to_preload(self, packages: Sequence[str]) -> None:
        with suppress(OSError):
            await self.send({"preload": packages}, ())

    async def rehearse(self, graph: bytes, request: TraceRequest) -> None:
        """Have the next child know the operations of a graph, an encoded stage that answers a request, beforehand.

        That child only serves requests whose code reads the same project.
        """
        with suppress(OSError), tempfile.TemporaryFile() as file:
            file.write(graph)
            file.seek(0)
            await self.send({"rehearse": _reads(request)}, [file.fileno()])

    async def end(self) -> None:
        """End the zygote, its children and what they have started, and wait until they are gone."""
        self.kill_forks()
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)  # it kills what traces have started, which may be in other groups
        await asyncio.wait({self.process.exited}, timeout=END_SECONDS)
        await self._started.end()
        await asyncio.wait({self.listener}, timeout=5)
        self.listener.cancel()
        for count in self._counts:
            count.cancel()
        self.output.stop()
        self.control.close()
        self.writer.close()
        await asyncio.to_thread(remove_scratch, self._scratch)

    def hear(self, header: dict[str, Any]) -> None:
        """Take note of a package that was imported, and of what was read."""
        super().hear(header)
        if "preloaded" in header:
            self.preloading.remove(header["preloaded"])
            self.preloaded.append(header["preloaded"])
            log.info("preloaded %s; the zygote has %s threads", header["preloaded"], header["threads"])


def _reads(request: TraceRequest) -> list[str]:
    """Return the paths of the project that the code of a request reads."""
    return of_project(request.roots, (request.file,), os.environ.get("HOME", ""))


async def start_zygote(launch: Launch) -> Zygote:
    """Start a zygote and wait until torch is warm in it. Raises WorkerStartError."""
    ours, theirs = socket.socketpair()
    scratch = scratch_folder()
    with theirs:
        try:
            process = await start_process(
                launch.command(scratch, "zygote", f"--control={theirs.fileno()}"),
                env=worker_environment(os.environ, scratch),
                pass_fds=[theirs.fileno()],
                merge=True,
            )
        except BaseException:
            ours.close()
            remove_scratch(scratch)
            raise
    output = OutputTail(process.stdout)
    control = ours.dup()
    reader, writer = await asyncio.open_connection(sock=ours, limit=BUFFER)
    try:
        await until_ready(launch.python, process, reader, output)
    except BaseException:
        control.close()
        writer.close()
        await process.end()
        output.stop()
        remove_scratch(scratch)
        raise
    return Zygote(process, ProcessChannels(control, reader, writer, output), scratch, launch.limits.memory_bytes)
