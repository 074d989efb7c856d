"""The server's end of a process that forks one child per request (POSIX)."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, Protocol

from fx_lsp import files
from fx_lsp.errors import ProtocolError, WorkerDied, WorkerExceeded, WorldStale
from fx_lsp.tracing.workers.channels import BUFFER, OutputTail, Quota, receive
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.processes import describe_status, kill_group, started_at
from fx_lsp.wire import frame, from_json

FORK_SECONDS = 60.0
"""Seconds that a fork may take: longer than any preload in progress."""
MAX_MESSAGES, MAX_BYTES = 10_000, 64 << 20
"""The messages of a process that forks, and their bytes, from one request for a fork to the next."""
MAX_READ = 200_000
"""The files that it may have read: each is looked at before a fork."""
STOPPED_SECONDS = 1.0
"""Seconds of waiting for a fork before a check that the process is not stopped."""

log = logging.getLogger(__name__)


class Forking(Protocol):
    """The state of a process that forks; `exited` gives its exit status (negative: a signal)."""

    @property
    def pid(self) -> int: ...
    @property
    def exited(self) -> asyncio.Future[int]: ...
    def kill(self) -> None: ...
    def resume(self) -> bool: ...


@dataclass(eq=False)
class _Fork:
    """Hold the process of a fork, when it `started`, and its exit status, once they are known."""

    pid: asyncio.Future[int]
    exited: asyncio.Future[int]
    started: int | None = None

    def kill(self) -> None:
        """End the process and its group, unless it has ended or the fork has failed."""
        is_there = self.pid.done() and not self.pid.exception() and not self.exited.done()
        if is_there and started_at(self.pid.result()) == self.started:
            kill_group(self.pid.result())


@dataclass(frozen=True)
class ProcessChannels:
    """Hold the ends of what connects the server with a process that forks: requests go to `control`, its answers come
    from `reader`, and `output` is what it prints.
    """

    control: socket.socket
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    output: OutputTail


class ForkServer:
    """A process that forks. When it dies, `alive` turns false and everything that waits for it raises WorkerDied.

    `called` is what messages call it; `seconds` is how long a fork may take.
    """

    def __init__(self, process: Forking, channels: ProcessChannels, called: str, seconds: float = FORK_SECONDS) -> None:
        self.pid = process.pid
        self.process = process
        self.control, self.writer, self.output = channels.control, channels.writer, channels.output
        self._called, self._seconds = called, seconds
        self._forks: dict[int, _Fork] = {}
        self._read: dict[str, list[int] | None] = {}
        self._count = 0
        self._quota = Quota(MAX_MESSAGES, MAX_BYTES)
        self._sending = asyncio.Lock()
        self.listener = asyncio.create_task(self._listen(channels.reader))

    @property
    def alive(self) -> bool:
        """Return whether it can still fork."""
        return not self.listener.done() and not self.process.exited.done()

    @property
    def is_idle(self) -> bool:
        """Return whether it has no forks, and none are waited for."""
        return not self._forks

    async def fork(self, header: dict[str, Any] | None = None) -> Child:
        """Fork a new child as a header says. Raises WorkerDied when the process dies or does not answer."""
        if self.listener.done():
            raise WorkerDied(f"{self._called} is gone", -9, self.output.text())
        loop = asyncio.get_running_loop()
        self._quota.messages, self._quota.bytes = MAX_MESSAGES, MAX_BYTES
        self._count += 1
        number, fork = self._count, _Fork(loop.create_future(), loop.create_future())
        for future in (fork.pid, fork.exited):
            future.add_done_callback(_retrieve)
        self._forks[number] = fork
        try:
            output, pipe, reader, writer = await self._opened({"fork": number, **(header or {})}, _channels())
        except BaseException:
            self._forks.pop(number, None)
            raise

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
                self.process.kill()
                raise WorkerDied(f"{self._called} does not answer", -9, self.output.text()) from None
            raise

        return Child(pid, fork.started, reader, writer, output, fork.exited, fork.kill, close)

    async def _opened(
        self, header: dict[str, Any], channels: tuple[socket.socket, socket.socket, int, int]
    ) -> tuple[OutputTail, asyncio.ReadTransport, asyncio.StreamReader, asyncio.StreamWriter]:
        """Ask for a fork, and return the server's end of its output and of its channel. Leaves nothing open if it
        raises.
        """
        ours, theirs, read_end, write_end = channels
        pipe = os.fdopen(read_end, "rb", 0)
        with ExitStack() as opened:
            opened.callback(ours.close)
            opened.callback(pipe.close)
            try:
                await self.send(header, [theirs.fileno(), write_end])
            except OSError:
                self.process.kill()
            finally:
                theirs.close()
                os.close(write_end)
            output, transport = await _open_pipe(pipe)
            opened.callback(transport.close)
            opened.callback(output.stop)
            streams = await asyncio.open_connection(sock=ours, limit=BUFFER)
            opened.pop_all()
        return output, transport, *streams

    async def _forked(self, fork: _Fork) -> int:
        """Return the child's process; a process that somebody has stopped goes on. Raises asyncio.TimeoutError."""
        for _ in range(int(self._seconds / STOPPED_SECONDS)):
            await asyncio.wait({fork.pid}, timeout=STOPPED_SECONDS)
            if fork.pid.done():
                return fork.pid.result()
            if self.process.resume():
                log.warning("%s was stopped by somebody, and goes on", self._called)
        raise asyncio.TimeoutError

    def kill_forks(self) -> None:
        """End the forks that have not ended."""
        for fork in self._forks.values():
            fork.kill()

    async def send(self, header: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Send a frame, and descriptors with it. Raises OSError where the process is gone."""
        data = frame({**header, "descriptors": len(descriptors)})
        async with self._sending:
            while data:
                try:
                    if descriptors:
                        data, descriptors = data[socket.send_fds(self.control, [data], list(descriptors)) :], ()
                    else:
                        data = data[self.control.send(data) :]
                except BlockingIOError:
                    await asyncio.sleep(0.01)

    def is_fresh(self) -> bool:
        """Return True if it can still fork, and the files that it has read are as they were."""
        return self.alive and all(state_of(file) == before for file, before in list(self._read.items()))

    def has_started(self, pid: int) -> bool:
        """Return True if a process is one of its forks, as far as that is not certain."""
        return True

    def hear(self, header: dict[str, Any]) -> None:
        """Take a message that is not about forks: files that were read, with their times and sizes then."""
        for file, state in from_json(dict[str, tuple[int, ...] | None], header.get("read", {})).items():
            self._read.setdefault(file, None if state is None else [*state])
        if len(self._read) > MAX_READ:
            raise ProtocolError(f"more than {MAX_READ:,} files that were read")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await receive(reader, self._quota)) is not None:
                self._hear(message[0])
        except ProtocolError as error:
            log.warning("%s is ended, because of what it has sent: %s", self._called, error)
        finally:
            await self._mourn()

    def _hear(self, header: dict[str, Any]) -> None:
        """Take a message, which code of a workspace may have forged. Raises ProtocolError."""
        match header:
            case {"forked": int(number), "pid": int(pid)}:
                fork = self._forks.get(number)
                if fork is not None and not fork.pid.done():
                    fork.started = started_at(pid)
                    if self.has_started(pid):
                        fork.pid.set_result(pid)
                    else:
                        fork.pid.set_exception(WorkerDied(f"{self._called} named a process that it did not start", 1))
            case {"unforked": int(number), "message": str(message)}:
                fork = self._forks.get(number)
                if fork is not None and not fork.pid.done():
                    is_stale, message = bool(header.get("stale")), f"the tracer cannot fork: {message}"
                    fork.pid.set_exception(WorldStale(message) if is_stale else WorkerDied(message, 1))
            case {"exited": int(pid), "status": int(status)}:
                for fork in self._forks.values():
                    is_pid = fork.pid.done() and not fork.pid.exception() and fork.pid.result() == pid
                    if is_pid and not fork.exited.done():
                        fork.exited.set_result(status)
            case {"forked": _} | {"unforked": _} | {"exited": _}:
                raise ProtocolError(f"not a message on a fork: {str(header)[:120]}")
            case _:
                self.hear(header)

    async def _mourn(self) -> None:
        await asyncio.wait({self.process.exited}, timeout=1)
        self.process.kill()
        used: WorkerExceeded | None = None
        try:
            status = await self.process.exited
        except WorkerDied as death:  # it was ended, or what has forked it died before
            status, used = death.status, death if isinstance(death, WorkerExceeded) else None
        message = f"{self._called} {describe_status(status)}"
        for fork in list(self._forks.values()):
            error = used or WorkerDied(message, status, self.output.text())
            if not fork.pid.done():
                fork.pid.set_exception(error)
            fork.kill()
            if not fork.exited.done():
                fork.exited.set_exception(error)


def _channels() -> tuple[socket.socket, socket.socket, int, int]:
    """Return both ends of a request channel, and those of a pipe for output. Raises WorkerDied."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise WorkerDied(f"the tracer cannot fork: {error.strerror}", 1) from None
    try:
        return ours, theirs, *os.pipe()
    except OSError as error:
        ours.close()
        theirs.close()
        raise WorkerDied(f"the tracer cannot fork: {error.strerror}", 1) from None


def state_of(file: str) -> list[int] | None:
    """Return the time and the size of a file or folder; None where there is none."""
    try:
        status = files.status_of(file) if file else None
    except OSError:
        return None
    return None if status is None else [status.st_mtime_ns, status.st_size]


async def _open_pipe(pipe: IO[bytes]) -> tuple[OutputTail, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=BUFFER)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return OutputTail(reader), transport


def _retrieve(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()
