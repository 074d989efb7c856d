"""The process that answers one request and ends: redirect output, set limits, run the job, send the reply.

It is a fork of the zygote, or (where there is no fork) a fresh process that `bootstrap.py once` started.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fx_lsp.errors import ProtocolError
from fx_lsp.model import TraceReply, TraceRequest
from fx_lsp.sandbox import confinement
from fx_lsp.sandbox.limits import die_with_parent, memory_limit
from fx_lsp.sandbox.system_calls import prctl
from fx_lsp.tracer.process import compilers
from fx_lsp.tracer.process.preload import Unusable, import_packages, import_torch, read_states, settle
from fx_lsp.tracer.program.reads import state_of
from fx_lsp.wire import frame, from_json, outcome_to_json, read_frame, to_json

Job = Callable[[TraceRequest], "TraceReply | Iterator[TraceReply]"]
"""Gives one reply, or several, of which each says more than the one before."""
GC_THRESHOLDS = 50_000, 20, 20
"""The process ends before most of its garbage is worth collecting."""
PRIVATE_FD = 100
"""The protocol's descriptors are moved here or above, away from those that user code likes to close."""


@dataclass(frozen=True)
class Channel:
    """The stream that the request comes from and the reply goes to: `read(n)` may return less, `write` sends all."""

    read: Callable[[int], bytes]
    write: Callable[[bytes], object]

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame."""
        self.write(frame(header, body))


def find_job(job: str) -> Job:
    """Return the function `module:function`; also ready what decodes requests, so that forks inherit both."""
    with suppress(ProtocolError):
        from_json(TraceRequest, {})
    module, _, name = job.partition(":")
    return getattr(importlib.import_module(module), name)


def answer(channel: Channel, job: str, watch: bool = False) -> NoReturn:
    """Answer the one request that arrives on `channel`, and end the process without running anything else.

    Frames of `{"preload": names}` may come before the request. Exceptions that escape the job are sent as an
    `error` frame with their traceback. With `watch` a thread ends the process when the server closes the channel, and
    a `stale` frame is the answer if a package has changed since this process imported it.
    """
    status = 1
    try:
        states = read_states() if watch else {}
        message = read_frame(channel.read)
        while message is not None and "preload" in message[0]:
            import_packages(message[0]["preload"])
            states = {**read_states(), **states}
            message = read_frame(channel.read)
        if message is not None and any(state_of(file) != state for file, state in states.items()):
            channel.send({"stale": True})
        elif message is not None:
            if watch:
                _watch(channel.read)
            _answer(channel, message[0], job)
        status = 0
    except BaseException:
        with suppress(BaseException):
            channel.send({"error": traceback.format_exc(limit=-50)})
    finally:
        os._exit(status)


def become_child(parent: int, wait: Callable[[], tuple[int, int]], job: str) -> NoReturn:
    """In a fork of `parent`: answer the request whose channel and output pipe `wait()` gives, and end."""
    try:
        begin_child(parent)
        channel_fd, output = wait()
        redirect_output(output)
        channel = socket.socket(fileno=_private(channel_fd, close=True))
        os.close(output)
        answer(Channel(channel.recv, channel.sendall), job)
    finally:
        os._exit(1)


def begin_child(parent: int) -> None:
    """Make a fork of `parent` a process of its own, in a group of its own, that ends with it."""
    os.setpgid(0, 0)
    die_with_parent()
    adopt_orphans()
    if os.getppid() != parent:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def main(job: str, warm: bool) -> NoReturn:
    """Serve one request over this process's standard input and output (no fork: Windows)."""
    reader = os.fdopen(_private(0), "rb", 0)
    writer = os.fdopen(_private(1), "wb")
    channel = Channel(reader.read, lambda data: (writer.write(data), writer.flush()))
    redirect_output(2)
    try:
        torch = import_torch() if warm else None
        find_job(job)
        if warm:
            settle()
    except Unusable as problem:
        channel.send({"failed": problem.kind, "message": str(problem)})
        os._exit(1)
    channel.send({"ready": True, "torch": torch})
    die_with_parent()
    answer(channel, job, watch=True)


def redirect_output(fd: int) -> None:
    """Point standard output and error at `fd` and standard input at nothing.

    A crash then prints its Python stack there, and so does SIGUSR1 (POSIX), by which the server asks where it is.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for target, source in ((1, fd), (2, fd), (0, null)):
        if source != target:
            os.dup2(source, target)
    os.close(null)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = open(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    faulthandler.enable(2, all_threads=False)
    if sys.platform != "win32":
        faulthandler.register(signal.SIGUSR1, 2, all_threads=False)


def adopt_orphans() -> None:
    """Have processes below this one whose parents end become children of it (Linux): a daemon does not get away."""
    _ask_kernel(PR_SET_CHILD_SUBREAPER, 1)


def name_process(name: str) -> None:
    """Give this process a name in the system's lists of processes (Linux)."""
    _ask_kernel(PR_SET_NAME, name.encode())


PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def _ask_kernel(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            prctl(option, value)


def _answer(channel: Channel, header: dict[str, Any], job: str) -> None:
    request = from_json(TraceRequest, header["request"])
    run = find_job(job)
    if request.work:
        compilers.prepare()
    confinement.enter(request.roots, request.file)
    confinement.leave_no_processes()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(*GC_THRESHOLDS)
    sent: dict[str, bytes] = {}
    with memory_limit(header.get("memory_bytes")):
        replies: Any = run(request)
        for reply in replies if isinstance(replies, Iterator) else (replies,):
            if not isinstance(reply, TraceReply):
                raise ProtocolError(f"the job {job} returned {type(reply).__name__}, not a TraceReply")
            _send(channel, reply, sent)


def _send(channel: Channel, reply: TraceReply, sent: dict[str, bytes]) -> None:
    """Send a reply without the stages that were `sent` before."""
    _close_output()
    channel.send(
        {
            "reply": outcome_to_json(reply.outcome),
            "dependencies": to_json(reply.dependencies),
            "packages": to_json(reply.packages),
        }
    )
    for name, body in reply.stages.items():
        if sent.get(name) is not body:
            channel.send({"stage": name}, body)
    sent.update(reply.stages)
    channel.send({"done": reply.final})


def _close_output() -> None:
    """End the captured output, so that the server knows to have all of it when it reads the reply."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


def _private(fd: int, close: bool = False) -> int:
    """Return a descriptor of the protocol's, in place of `fd` where that is to `close`."""
    if sys.platform == "win32":
        return os.dup(fd)
    import fcntl

    private = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FD)
    if close:
        os.close(fd)
    return private


def _watch(read: Callable[[int], bytes]) -> None:
    """End this process when the server closes the channel, even while the job runs."""

    def wait() -> None:
        try:
            while read(1):
                pass
        except OSError:
            return  # the job closed the descriptor, not the server
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def children_of(pid: int) -> set[int]:
    """Return the processes whose parent is `pid`, as far as the kernel says (Linux)."""
    children: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            children.update(map(int, task.read_text().split()))
    return children


def group_of(pid: int) -> int:
    """Return the group of a process; 0 if there is none."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def kill_group(pid: int) -> None:
    """End the processes of a group at once, where there are any."""
    if sys.platform != "win32":
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
