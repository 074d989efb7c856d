"""One process that answers one request, whichever way it was started."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from fx_lsp.errors import ProtocolError, WorkerDied, WorkerExceeded
from fx_lsp.model import Failure, TraceReply, TraceRequest
from fx_lsp.sandbox.usage import SCRATCH_BYTES, memory_together, processes_below, resident_bytes, scratch_bytes
from fx_lsp.tracing.workers.channels import EarlyReply, OutputTail, ask
from fx_lsp.tracing.workers.processes import describe_status, started_at
from fx_lsp.tracing.workers.stack import ends_with_stack

FAILURE_OUTPUT_BYTES = 4 << 10
_MOMENT = 1.0
_REPORT = 40.0  # longer than any preload, during which a zygote reports no exits
_KILLED = -9
COUNT_SECONDS, QUIET_SECONDS = 0.25, 1.0
"""Seconds between two counts of what a process uses; while that does not change, up to the second number of them."""
_STACK = 0.2, 10  # how long it is waited for a stack to be printed, and how often on a busy machine


@dataclass(frozen=True, eq=False)
class Child:
    """A process that waits for its one request.

    `started` is when it did, by `started_at`. `exited` gives its exit status (negative: a signal), or raises WorkerDied
    when the zygote above it is gone. `kill` ends its whole process group, `close` frees the channel; both may be called
    twice.
    """

    pid: int
    started: int | None
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    output: OutputTail
    exited: asyncio.Future[int]
    kill: Callable[[], None]
    close: Callable[[], None]

    async def answer(self, request: TraceRequest, memory_bytes: int, early: EarlyReply | None = None) -> TraceReply:
        """Send the request and wait for the final reply, without a time limit. Raises WorkerDied."""
        asked = asyncio.create_task(ask(self.reader, self.writer, request, memory_bytes, early))
        try:
            await asyncio.wait({asked, self.exited}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                # It has exited: what it wrote before is in the channel already, read that.
                await asyncio.wait({asked}, timeout=_MOMENT)
            reply = asked.result() if asked.done() else None
        except ProtocolError as error:
            raise WorkerDied(f"the tracer sent an invalid reply: {error}", 1, self.output.text()) from error
        finally:
            asked.cancel()
        if reply is None:
            raise await self._death()
        if isinstance(reply.outcome, Failure):
            await self.output.ended(0.2)
            if printed := self.output.text(FAILURE_OUTPUT_BYTES):
                return replace(reply, outcome=replace(reply.outcome, output=printed))
        return reply

    async def keep_within(self, memory_bytes: int, scratch: str) -> None:
        """End the process once it, and all that it has started, have so much more memory than it has now, or too many
        files in a folder for temporary ones. Returns when it has ended.
        """
        limit = memory_bytes + resident_bytes(self.pid)
        pause, before = COUNT_SECONDS, (0, 0)
        while not self.exited.done():
            await asyncio.wait({self.exited}, timeout=pause)
            started = time.monotonic()
            memory, files = used = await asyncio.to_thread(_used, self.pid, limit, scratch)
            if self.exited.done() or started_at(self.pid) != self.started:
                return
            if memory > limit or files > SCRATCH_BYTES:
                self.kill()
                over = ("memory", memory_bytes) if memory > limit else ("files", SCRATCH_BYTES)
                self.exited.set_exception(WorkerExceeded(*over, self.output.text()))
            pause = COUNT_SECONDS if used != before else min(2 * pause, QUIET_SECONDS)
            pause, before = max(pause, 10 * (time.monotonic() - started)), used

    async def print_stack(self) -> None:
        """Have the process print its Python stack, so that `output` ends with it (POSIX; elsewhere nothing)."""
        if sys.platform != "win32" and not self.exited.done() and started_at(self.pid) == self.started:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGUSR1)
            seconds, times = _STACK
            for _ in range(times):
                await self.output.ended(seconds)
                if ends_with_stack(self.output.text()):
                    break

    async def end(self) -> None:
        """Kill what is left of the process group, wait until it is gone, free the channel."""
        self.kill()
        await asyncio.wait({self.exited}, timeout=5)
        self.output.stop()
        self.close()

    async def _death(self) -> WorkerDied:
        await asyncio.wait({self.exited}, timeout=_MOMENT)
        killed = not self.exited.done()
        if killed:
            # It may be dead and not reported yet: then the signal has no effect, and its own status arrives.
            self.kill()
            await asyncio.wait({self.exited}, timeout=_REPORT)
        status = self.exited.result() if self.exited.done() else _KILLED
        await self.output.ended(_MOMENT)
        if killed and status == _KILLED:
            return WorkerDied("the tracer closed its channel without an answer", status, self.output.text())
        return WorkerDied(f"the tracer {describe_status(status)}", status, self.output.text())


def _used(pid: int, memory_limit: int, scratch: str) -> tuple[int, int]:
    """Return the bytes of memory and of temporary files that a process and all that it has started use."""
    pids = processes_below(pid)
    return memory_together(pids, memory_limit), scratch_bytes(scratch, pids, SCRATCH_BYTES)
