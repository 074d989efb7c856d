"""The server's end of a zygote: a warm process that forks one child per request (POSIX)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fx_lsp.errors import ProtocolError, WorkerDied
from fx_lsp.tracing.workers.channels import BUFFER, OutputTail, receive
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.launch import Launch, until_ready, worker_environment
from fx_lsp.tracing.workers.processes import Process, describe_status, kill_group, start_process
from fx_lsp.wire import frame

FORK_SECONDS = 60.0
"""How long a fork may take: longer than any preload that may be under way."""

STOPPED_SECONDS = 1.0
"""How long it is waited for a fork until it is looked whether the zygote is stopped."""
END_SECONDS = 0.5
"""How long a zygote may take to end by itself: one that is importing something is killed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Fork:
    pid: asyncio.Future[int]
    exited: asyncio.Future[int]


class Zygote:
    """A started zygote. When it dies, `alive` turns false and everything that waits for it raises WorkerDied."""

    def __init__(
        self,
        process: Process,
        control: socket.socket,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        output: OutputTail,
    ) -> None:
        self.pid = process.pid
        self.preloading: list[str] = []
        self.preloaded: list[str] = []
        self._process = process
        self._control = control
        self._output = output
        self._forks: dict[int, _Fork] = {}
        self._count = 0
        reader, self._writer = streams
        self._listener = asyncio.create_task(self._listen(reader))

    @property
    def alive(self) -> bool:
        """Return whether it can still fork."""
        return not self._listener.done() and not self._process.exited.done()

    async def take(self) -> Child:
        """Fork a new child and return it. Raises WorkerDied when the zygote dies or does not answer."""
        if self._listener.done():
            raise WorkerDied("the tracer's parent process is gone", -9, self._output.text())
        loop = asyncio.get_running_loop()
        self._count += 1
        number, fork = self._count, _Fork(loop.create_future(), loop.create_future())
        for future in (fork.pid, fork.exited):
            future.add_done_callback(_retrieve)
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        self._forks[number] = fork
        try:
            await self._send({"fork": number}, [theirs.fileno(), write_end])
        except OSError:
            self._process.kill()
        finally:
            theirs.close()
            os.close(write_end)
        output, pipe = await _open_pipe(read_end)
        reader, writer = await asyncio.open_connection(sock=ours, limit=BUFFER)

        def close() -> None:
            writer.close()
            pipe.close()
            self._forks.pop(number, None)

        try:
            pid = await self._forked(fork)
        except BaseException as error:
            # A child that is forked later finds its channel closed and ends by itself.
            output.stop()
            close()
            if isinstance(error, asyncio.TimeoutError):
                self._process.kill()
                raise WorkerDied("the tracer's parent process does not answer", -9, self._output.text()) from None
            raise

        def kill() -> None:
            if not fork.exited.done():
                kill_group(pid)

        return Child(pid, reader, writer, output, fork.exited, kill, close)

    async def _forked(self, fork: _Fork) -> int:
        """Return the child's process; a zygote that somebody has stopped goes on. Raises asyncio.TimeoutError."""
        for _ in range(int(FORK_SECONDS / STOPPED_SECONDS)):
            await asyncio.wait({fork.pid}, timeout=STOPPED_SECONDS)
            if fork.pid.done():
                return fork.pid.result()
            if self._process.resume():
                _log.warning("the tracer's parent process was stopped by somebody, and goes on")
        raise asyncio.TimeoutError

    def preload(self, packages: Sequence[str]) -> None:
        """Have installed packages imported when no fork is waiting."""
        loaded = {*self.preloading, *self.preloaded}
        new = [p for p in packages if p not in loaded]
        if new:
            self.preloading += new
            with suppress(OSError):
                self._control.send(frame({"preload": new}))

    async def rehearse(self, graph: bytes) -> None:
        """Have the next child know the operations of a graph, an encoded stage, before its request comes."""
        with suppress(OSError), tempfile.TemporaryFile() as file:
            file.write(graph)
            file.seek(0)
            await self._send({"rehearse": True}, [file.fileno()])

    async def end(self) -> None:
        """End the zygote, its children and what they have started, and wait until they are gone."""
        for fork in self._forks.values():
            if fork.pid.done() and not fork.pid.exception() and not fork.exited.done():
                kill_group(fork.pid.result())
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)  # it kills what traces have started, which may be in other groups
        await asyncio.wait({self._process.exited}, timeout=END_SECONDS)
        await self._process.end()
        await asyncio.wait({self._listener}, timeout=5)
        self._listener.cancel()
        self._output.stop()
        self._control.close()
        self._writer.close()

    async def _send(self, header: dict[str, Any], descriptors: list[int]) -> None:
        while True:
            try:
                socket.send_fds(self._control, [frame(header)], descriptors)
                return
            except BlockingIOError:
                await asyncio.sleep(0.01)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await receive(reader)) is not None:
                self._hear(message[0])
        except ProtocolError:
            _log.exception("the zygote's control channel is broken")
        finally:
            await self._mourn()

    def _hear(self, header: dict[str, Any]) -> None:
        if "forked" in header:
            if fork := self._forks.get(header["forked"]):
                fork.pid.set_result(header["pid"])
        elif "unforked" in header:
            if fork := self._forks.get(header["unforked"]):
                fork.pid.set_exception(WorkerDied(f"the tracer cannot fork: {header['message']}", 1))
        elif "exited" in header:
            for fork in self._forks.values():
                if fork.pid.done() and not fork.pid.exception() and fork.pid.result() == header["exited"]:
                    fork.exited.set_result(header["status"])
        elif "preloaded" in header:
            self.preloading.remove(header["preloaded"])
            self.preloaded.append(header["preloaded"])
            _log.info("preloaded %s; the zygote has %s threads", header["preloaded"], header["threads"])

    async def _mourn(self) -> None:
        await asyncio.wait({self._process.exited}, timeout=1)
        self._process.kill()
        status = await self._process.exited
        message = f"the tracer's parent process {describe_status(status)}"
        for fork in list(self._forks.values()):
            error = WorkerDied(message, status, self._output.text())
            if not fork.pid.done():
                fork.pid.set_exception(error)
            elif not fork.pid.exception() and not fork.exited.done():
                kill_group(fork.pid.result())
            if not fork.exited.done():
                fork.exited.set_exception(error)


async def start_zygote(launch: Launch) -> Zygote:
    """Start a zygote and wait until torch is warm in it. Raises WorkerStartError."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = await start_process(
                launch.command("zygote", f"--control={theirs.fileno()}"),
                env=worker_environment(os.environ),
                pass_fds=[theirs.fileno()],
                merge=True,
            )
        except BaseException:
            ours.close()
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
        raise
    return Zygote(process, control, (reader, writer), output)


async def _open_pipe(fd: int) -> tuple[OutputTail, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=BUFFER)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0)
    )
    return OutputTail(reader), transport


def _retrieve(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()
