"""The warm process that does nothing but fork: torch is imported once, every request gets a copy of it.

Control channel (a Unix socket, frames of `fx_lsp.wire`), from the server: `{"fork": id}` together with two descriptors
(the request channel and the pipe for printed output) and `{"preload": names}`; to the server, once:
`{"ready": true, "torch"}` or `{"failed": kind, "message"}`, then `{"forked": id, "pid"}` or
`{"unforked": id, "message"}`, `{"exited": pid, "status"}` (negative: a signal) and `{"preloaded": name, "threads"}`.
When the channel closes, every child is killed and the process ends. No user code ever runs here.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from fx_lsp.errors import ProtocolError
from fx_lsp.tracer.child import PRIVATE_FD, Channel, answer, die_with_parent, find_job, redirect_output
from fx_lsp.tracer.imports import Unusable, count_threads, import_packages, import_torch
from fx_lsp.wire import frame, read_frame


def main(control_fd: int, job: str, warm: bool) -> None:
    """Serve forks on `control_fd` until the server closes it."""
    control = socket.socket(fileno=control_fd)
    die_with_parent()
    try:
        torch = import_torch() if warm else None
        find_job(job)
    except Unusable as problem:
        control.sendall(frame({"failed": problem.kind, "message": str(problem)}))
        return
    gc.collect()
    gc.freeze()
    control.sendall(frame({"ready": True, "torch": torch}))
    zygote = _Zygote(control, job)
    with suppress(OSError, ProtocolError):
        zygote.serve()
    zygote.kill_children()
    os._exit(0)


class _Zygote:
    def __init__(self, control: socket.socket, job: str) -> None:
        self._control = control
        self._job = job
        self._pid = os.getpid()
        self._children: set[int] = set()
        self._received: list[int] = []
        self._preloads: list[str] = []
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)
        self._listen_for_children()

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._control, self._wake], [], [], 0 if self._preloads else 1)
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._reap()
            if self._control in ready:
                message = read_frame(self._read)
                if message is None:
                    return
                self._handle(message[0])
            elif self._preloads:
                self._preload(self._preloads.pop(0))

    def kill_children(self) -> None:
        for pid in self._children:
            _kill_group(pid)

    def _listen_for_children(self) -> None:
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def _read(self, size: int) -> bytes:
        data, descriptors, _, _ = socket.recv_fds(self._control, size, 8)
        for fd in descriptors:
            os.set_inheritable(fd, False)
        self._received += descriptors
        return data

    def _send(self, header: dict[str, Any]) -> None:
        self._control.sendall(frame(header))

    def _handle(self, header: dict[str, Any]) -> None:
        if "preload" in header:
            self._preloads += header["preload"]
            return
        channel, output = self._received[:2]
        del self._received[:2]
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            self._send({"unforked": header["fork"], "message": str(error)})
        if pid == 0:
            self._become_child(channel, output)
        os.close(channel)
        os.close(output)
        if pid > 0:
            with suppress(OSError):
                os.setpgid(pid, pid)
            self._children.add(pid)
            self._send({"forked": header["fork"], "pid": pid})

    def _become_child(self, channel_fd: int, output: int) -> None:
        try:
            os.setpgid(0, 0)
            die_with_parent()
            if os.getppid() != self._pid:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            redirect_output(output)
            channel = socket.socket(fileno=_move_up(channel_fd))
            self._control.close()
            for fd in (output, self._wake, self._waker, *self._received):
                os.close(fd)
            answer(Channel(channel.recv, channel.sendall), self._job)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        for pid in list(self._children):
            # The pid stays ours until waitpid, so its group (grandchildren too) can be killed without hitting another.
            if hasattr(os, "waitid") and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                continue
            if hasattr(os, "waitid"):
                _kill_group(pid)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                _kill_group(pid)
                self._children.discard(pid)
                self._send({"exited": pid, "status": os.waitstatus_to_exitcode(status)})

    def _preload(self, name: str) -> None:
        import_packages([name])
        gc.freeze()
        self._listen_for_children()
        self._send({"preloaded": name, "threads": count_threads()})


def _wake_up(signum: int, frame: object) -> None:
    """SIGCHLD only has to write to the wake-up descriptor, which Python does for any handler."""


def _move_up(fd: int) -> int:
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FD)
    os.close(fd)
    return moved


def _kill_group(pid: int) -> None:
    if sys.platform != "win32":
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
