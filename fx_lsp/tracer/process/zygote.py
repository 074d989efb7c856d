"""The warm process that does nothing but fork: torch is imported once, every request gets a copy of it.

Control channel (a Unix socket, frames of `fx_lsp.wire`), from the server: `{"fork": id}` together with two descriptors
(the request channel and the pipe for printed output), with the paths that the request's code `"reads"`, or with
`"world": true` for a process that serves forks itself, by `world_server.py`, `{"preload": names}`, and
`{"rehearse": paths}` with a descriptor of an encoded stage, the graph that was traced last, and the paths that its code
has read; to the server, once:
`{"ready": true, "torch"}` or `{"failed": kind, "message"}`, then `{"forked": id, "pid"}` or
`{"unforked": id, "message"}`, `{"exited": pid, "status"}` (negative: a signal), `{"preloaded": name, "threads"}` and
`{"read": states}`, the files that it has read and answers depend on, with their times and sizes then.
When the channel closes, every child is killed and the process ends. No user code ever runs here. What a trace has
started becomes a child of this process when the trace ends, and is killed then.

One child is forked ahead of its request: this spare rehearses a trace, after which the memory that tracing writes to
is its own, and the operations of the last graph, which torch then knows, and waits. A trace in it takes about as long
as in a warm interpreter. The graph comes from a process with code of a workspace: the spare that reads it is confined
as that one was, and serves only requests whose code reads the same.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from fx_lsp.errors import ProtocolError
from fx_lsp.sandbox import confinement
from fx_lsp.sandbox.limits import die_with_parent
from fx_lsp.tracer.process import compilers
from fx_lsp.tracer.process.child import (
    PRIVATE_FD,
    adopt_orphans,
    become_child,
    begin_child,
    children_of,
    find_job,
    group_of,
    kill_group,
    redirect_output,
)
from fx_lsp.tracer.process.preload import (
    Unusable,
    count_threads,
    import_packages,
    import_torch,
    read_states,
    settle,
)
from fx_lsp.wire import frame, read_frame


def main(control_fd: int, job: str, warm: bool) -> None:
    """Serve forks on `control_fd` until the server closes it."""
    control = socket.socket(fileno=control_fd)
    die_with_parent()
    adopt_orphans()
    try:
        torch = import_torch() if warm else None
        find_job(job)
    except Unusable as problem:
        control.sendall(frame({"failed": problem.kind, "message": str(problem)}))
        return
    gc.freeze()
    control.sendall(frame({"ready": True, "torch": torch}))
    control.sendall(frame({"read": read_states()}))
    zygote = _Zygote(control, job, _rehearsal() if warm else None)
    with suppress(OSError, ProtocolError):
        zygote.serve()
    zygote.kill_children()
    os._exit(0)


MAX_COMPILERS = 4
"""The most compilers at a time for one process that the zygote has started, and its forks; a trace needs one."""
SPARE_DELAY = 0.2
"""Seconds after the start, a request or a preload until the next spare is forked: it must not compete with a trace that
runs, or with the first request, for which the server has waited.
"""


READY = b"r"
"""The byte by which a spare says that it has rehearsed."""


def _rehearsal() -> Callable[[bytes], None]:
    from fx_lsp.tracer.process.warmup import rehearse

    return rehearse


@dataclass(frozen=True)
class _Spare:
    pid: int
    hand_over: socket.socket
    reads: list[str] | None = None
    """The paths that it is confined to; None while it has read nothing of a workspace."""


class _Zygote:
    """`rehearse` is what a spare does before its request comes; without it there are no spares."""

    def __init__(self, control: socket.socket, job: str, rehearse: Callable[[bytes], None] | None) -> None:
        self._control = control
        self._job = job
        self._rehearse = rehearse
        self._spare: _Spare | None = None
        self._spare_due = time.monotonic() + SPARE_DELAY
        self._settled = rehearse is None
        self._pid = os.getpid()
        self._children: set[int] = set()
        self._asking: dict[int, socket.socket] = {}
        self._compilers: dict[int, int] = {}
        self._helpers = children_of(self._pid)
        self._received: list[int] = []
        self._preloads: list[str] = []
        self._graph, self._reads = b"", list[str]()
        self._wake, self._waker = os.pipe()
        for fd in (self._wake, self._waker):
            os.set_blocking(fd, False)
        self._listen_for_children()

    def serve(self) -> None:
        while True:
            waited = [self._control, self._wake, *self._asking.values()]
            ready, _, _ = select.select(waited, [], [], self._patience())
            if self._wake in ready:
                os.read(self._wake, 4096)
            self._reap()
            for pid, asking in list(self._asking.items()):
                if asking in ready:
                    self._fork_compiler(pid, asking)
            if self._control in ready:
                message = read_frame(self._read)
                if message is None:
                    return
                self._handle(message[0])
            elif self._preloads:
                self._preload(self._preloads.pop(0))
            elif self._wants_spare() and time.monotonic() >= self._spare_due:
                self._settle()
                self._fork_spare()

    def kill_children(self) -> None:
        self._drop_spare()
        for pid in self._children:
            kill_group(pid)
            with suppress(OSError):
                os.waitpid(pid, 0)
        self._children.clear()
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill what traces that have ended have started, and what that has started."""
        ours = {*self._children, *self._helpers, self._spare.pid if self._spare is not None else 0}
        while orphans := children_of(self._pid) - ours:
            for pid in orphans:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(OSError):
                    os.waitpid(pid, 0)

    def _patience(self) -> float | None:
        """Return for how many seconds nothing has to be done unasked; None without end: what ends wakes it up."""
        if self._preloads:
            return 0
        return max(self._spare_due - time.monotonic(), 0) if self._wants_spare() else None

    def _wants_spare(self) -> bool:
        return self._rehearse is not None and self._spare is None

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
        if "rehearse" in header:
            self._take_graph(self._received.pop(0), header["rehearse"])
            return
        channel, output = self._received[:2]
        del self._received[:2]
        self._spare_due = time.monotonic() + SPARE_DELAY
        is_world = bool(header.get("world"))
        pid = 0 if is_world else self._use_spare(channel, output, header["reads"])
        if pid == 0:
            try:
                pid = self._fork(lambda: (channel, output), is_world)
            except OSError as error:
                pid = -1
                self._send({"unforked": header["fork"], "message": str(error)})
        os.close(channel)
        os.close(output)
        if pid > 0:
            with suppress(OSError):
                os.setpgid(pid, pid)
            self._children.add(pid)
            self._send({"forked": header["fork"], "pid": pid})

    def _take_graph(self, descriptor: int, reads: list[str]) -> None:
        """Take the graph that the next spare rehearses, and what that reads; one that waits has rehearsed another."""
        with open(descriptor, "rb") as stream:
            graph = stream.read()
        if (graph, reads) != (self._graph, self._reads):
            self._graph, self._reads = graph, reads
            self._drop_spare()
            self._spare_due = time.monotonic() + SPARE_DELAY / 2

    def _fork(self, wait: Callable[[], tuple[int, int]], is_world: bool = False) -> int:
        """Fork a process that answers the request whose channel and output pipe `wait()` gives, or is a world that the
        server speaks to over that channel. It asks for compilers over a socket of its own. Raises OSError.
        """
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            try:
                ours.close()
                compilers.requests.use(theirs, PRIVATE_FD)
                if is_world:
                    self._become_world(*wait())
                become_child(self._pid, partial(self._alone, wait), self._job)
            finally:
                os._exit(1)
        theirs.close()
        self._asking[pid] = ours
        return pid

    def _become_world(self, control: int, output: int) -> NoReturn:
        """In a fork: be a world that the server speaks to over the descriptor `control`, and end with that."""
        try:
            begin_child(self._pid)
            self._alone(lambda: (control, output))
            redirect_output(output)
            os.close(output)
            from fx_lsp.tracer.process.world_server import serve

            serve(socket.socket(fileno=control), self._job)
        finally:
            os._exit(1)

    def _fork_compiler(self, asker: int, asking: socket.socket) -> None:
        """Fork a process that compiles kernels for one that has asked for it; listen no more to one that has sent
        anything else.
        """
        end = compilers.accept(asking)
        if end is None:
            self._asking.pop(asker).close()
            return
        with end, suppress(OSError):
            if list(self._compilers.values()).count(asker) >= MAX_COMPILERS:
                return
            pid = os.fork()
            if pid == 0:
                begin_child(self._pid)
                self._alone(lambda: (0, 0))
                redirect_output(2)
                compilers.compile_kernels(end)
            self._children.add(pid)
            self._compilers[pid] = asker

    def _alone(self, wait: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Close the descriptors of the zygote in a fork, then return those that `wait` returns."""
        self._control.close()
        for asking in self._asking.values():
            asking.close()
        if self._spare is not None:
            self._spare.hand_over.close()
        os.close(self._wake)
        os.close(self._waker)
        return wait()

    def _fork_spare(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            pid = self._fork(lambda: self._wait_as_spare(ours, theirs))
        except OSError:
            self._spare_due = time.monotonic() + 10 * SPARE_DELAY
            ours.close()
        else:
            self._spare = _Spare(pid, ours, self._reads if self._graph else None)
        theirs.close()

    def _wait_as_spare(self, ours: socket.socket, hand_over: socket.socket) -> tuple[int, int]:
        assert self._rehearse is not None
        ours.close()
        if self._graph:
            confinement.enter(self._reads)
            confinement.leave_no_processes()
        self._rehearse(self._graph)
        with suppress(OSError):
            hand_over.send(READY)
        data, descriptors, _, _ = socket.recv_fds(hand_over, 1, 2)
        if not data:
            os._exit(0)
        hand_over.close()
        for fd in descriptors:
            os.set_inheritable(fd, False)
        return descriptors[0], descriptors[1]

    def _use_spare(self, channel: int, output: int, reads: list[str]) -> int:
        """Hand a request to the spare; return its pid, or 0 where none is ready.

        One that still rehearses is ended: the graph is another trace's, and nothing waits for it. So is one that is
        confined to other paths than the request `reads`.
        """
        if self._spare is None:
            return 0
        if self._spare.reads not in (None, reads):
            self._drop_spare()
            return 0
        if not select.select([self._spare.hand_over], [], [], 0)[0] or self._spare.hand_over.recv(1) != READY:
            self._drop_spare()
            return 0
        spare, self._spare = self._spare, None
        try:
            socket.send_fds(spare.hand_over, [b"x"], [channel, output])
        except OSError:
            self._children.add(spare.pid)
            return 0
        finally:
            spare.hand_over.close()
        return spare.pid

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare.hand_over.close()
            kill_group(self._spare.pid)
            with suppress(OSError):
                os.kill(self._spare.pid, signal.SIGKILL)
            os.waitpid(self._spare.pid, 0)
            self._end_compilers(self._spare.pid)
            confinement.remove_scratch_of(self._spare.pid)
            self._spare = None

    def _end_compilers(self, asker: int) -> None:
        """Listen no more to a process that has ended, and end the compilers that it asked for."""
        if asker in self._asking:
            self._asking.pop(asker).close()
        for pid in [compiler for compiler, for_whom in self._compilers.items() if for_whom == asker]:
            kill_group(pid)

    def _reap(self) -> None:
        if self._spare is not None and os.waitpid(self._spare.pid, os.WNOHANG)[0]:
            self._spare.hand_over.close()
            self._end_compilers(self._spare.pid)
            confinement.remove_scratch_of(self._spare.pid)
            self._spare, self._graph = None, b""  # the graph may be what has ended it
            self._spare_due = time.monotonic() + SPARE_DELAY
        for pid in list(self._children):
            # The pid stays ours until waitpid, so its group (grandchildren too) can be killed without hitting another.
            if hasattr(os, "waitid") and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                continue
            if hasattr(os, "waitid"):
                kill_group(pid)
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                kill_group(pid)
                self._children.discard(pid)
                self._compilers.pop(pid, None)
                self._end_compilers(pid)
                self._kill_orphans()
                confinement.remove_scratch_of(pid)
                self._send({"exited": pid, "status": os.waitstatus_to_exitcode(status)})

    def _preload(self, name: str) -> None:
        self._drop_spare()
        self._spare_due = time.monotonic() + SPARE_DELAY
        import_packages([name])
        gc.freeze()
        self._imported()
        self._send({"preloaded": name, "threads": count_threads()})

    def _settle(self) -> None:
        """Do what the first request did not wait for."""
        if not self._settled:
            settle()
            self._settled = True
            self._imported()

    def _imported(self) -> None:
        """Take note of what imports have changed and started, and tell the server what they have read.

        What a trace has left meanwhile is in another group.
        """
        self._listen_for_children()
        group = os.getpgrp()
        self._helpers = {pid for pid in children_of(self._pid) - self._children if group_of(pid) == group}
        self._send({"read": read_states()})


def _wake_up(signum: int, frame: object) -> None:
    """SIGCHLD only has to write to the wake-up descriptor, which Python does for any handler."""
