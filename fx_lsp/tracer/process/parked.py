"""A process that waits in the state that a target needs, and gives forks of itself to requests."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from fx_lsp.model import ProgramFile
from fx_lsp.sandbox.limits import memory_limit
from fx_lsp.tracer.inputs.evidence.watch import BEST_RANK, FirstCall, WatchedTarget
from fx_lsp.tracer.process.child import become_child, kill_group
from fx_lsp.tracer.process.links import Link
from fx_lsp.tracer.program.effects import effects_allowed
from fx_lsp.tracer.world.world import GpuWanted, World

MAX_PARKED = 120
"""The most processes that a world parks; targets that programs call after that count as not called."""
MEMORY = 4 << 30
"""Bytes of memory that a program may use beyond what its world has."""


class Children:
    """The forks of a process; it reports over `link` when one begins or ends."""

    def __init__(self, link: Link, job: str) -> None:
        self._link, self._job, self._pid = link, job, os.getpid()
        self._pids: set[int] = set()
        self.wake, self._waker = os.pipe()
        for descriptor in (self.wake, self._waker):
            os.set_blocking(descriptor, False)
        self.listen()

    @property
    def pids(self) -> frozenset[int]:
        """Return the processes that have not ended."""
        return frozenset(self._pids)

    def listen(self) -> None:
        """Have `wake` readable when a fork ends. Imported packages may listen themselves."""
        signal.signal(signal.SIGCHLD, lambda number, stack: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def fork(self, number: int, descriptors: Sequence[int], begin: Callable[[], None]) -> None:
        """Give a fork that answers a request, whose channel and output are the `descriptors`, after `begin`."""
        channel, output = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            self._link.send({"unforked": number, "message": str(error)})
            return
        if pid == 0:

            def alone() -> tuple[int, int]:
                self.close()
                begin()
                return channel, output

            become_child(self._pid, alone, self._job)
        self._pids.add(pid)
        with suppress(OSError):
            os.setpgid(pid, pid)
        self._link.send({"forked": number, "pid": pid})

    def close(self) -> None:
        """Close what belongs to the process above, in a fork of it."""
        self._link.close()
        os.close(self.wake)
        os.close(self._waker)

    def reap(self) -> bool:
        """Tell the ends of forks; return whether there were any."""
        with suppress(OSError):
            os.read(self.wake, 4096)
        ended = [pid for pid in self._pids if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)]
        for pid in ended:
            kill_group(pid)
            _, status = os.waitpid(pid, 0)
            self._pids.discard(pid)
            self._link.send({"exited": pid, "status": os.waitstatus_to_exitcode(status)})
        return bool(ended)

    def kill(self) -> None:
        """End all forks at once."""
        for pid in self._pids:
            kill_group(pid)


def give_forks(world: World, link: Link, job: str, is_usable: bool = True) -> NoReturn:
    """Give forks of this process to requests for targets of `world` until the link is closed.

    A request is refused whose names are not in the target's module, and each one if it is not `is_usable`.
    """
    try:
        world.instrument.restore()
        gc.freeze()
        children = Children(link, job)
        while True:
            ready: list[Any] = select.select([link, children.wake], [], [])[0]
            children.reap()
            message = link.receive() if link in ready else ({}, [])
            if message is None:
                children.kill()
                break
            header, descriptors = message
            if header:
                is_fit = is_usable and world.has(header["file"], header["names"])
                if not is_fit or not world.stands(header["edits"]):
                    link.send({"refused": header["fork"], "stale": is_fit})
                else:
                    begin = partial(_enter, world, header)
                    children.fork(header["fork"], descriptors, begin)
            for descriptor in descriptors:
                os.close(descriptor)
    finally:
        os._exit(0)


def _enter(world: World, header: Mapping[str, Any]) -> None:
    """Begin a fork of a parked process that answers a request, whose `header` has later texts of some files.

    Functions of the target's file that it names have run in programs that did not call the target.
    """
    world.ran.update(header["ran"])
    world.stopped |= dict.fromkeys(header["stopped"])
    world.later = [(text, line) for text, line in header["calls"]]
    world.edit(header["edits"])
    world.enter()


class _Leave(BaseException):
    """Unwinds a program in a process that is parked at a call. No `except Exception` stops it."""


class _Parking:
    """Parks forks of a process that runs a program, and sends the link of each to the world server over `link`.

    A fork at a call that a later one may tell more than is sent once the program has ended, unless such a one follows.
    In a fork, `parked` is the link that it serves.
    """

    def __init__(self, world: World, link: Link) -> None:
        self.parked: Link | None = None
        self._world, self._link = world, link
        self._count = 0
        self._held: dict[WatchedTarget, tuple[int, socket.socket, bool]] = {}

    def at(self, call: FirstCall) -> None:
        """Park a fork at the first call of a target, which raises _Leave there."""
        if self.parked is not None:
            os._exit(1)  # the program caught what was to unwind it
        self._count += 1
        if self._count > MAX_PARKED:
            return
        try:
            ours, theirs = socket.socketpair()
            with effects_allowed():
                pid = os.fork()
        except OSError:
            return
        if pid:
            theirs.close()
            self._drop(call.target)
            if call.rank == BEST_RANK:
                self._tell(call.target.file, call.target.name, pid, ours)
            else:
                self._held[call.target] = pid, ours, call.is_complete
            return
        ours.close()
        for _, other, _ in self._held.values():
            other.close()
        self._link.close()
        with suppress(OSError):
            os.setpgid(0, 0)
        self._world.call, self.parked = call, Link(theirs)
        raise _Leave

    def at_end(self, program: ProgramFile) -> Link:
        """Park this process, in which a program has come to its end; return the link that it serves.

        One that ran something else than the program of its file as that is ends.
        """
        ran = {each.file: [*self._world.functions_run(each.file)] for each in self._world.request.files}
        self._link.send({"ended": ran, "calls": self._world.later_calls(), "stopped": [*self._world.stopped]})
        for target, (pid, end, is_complete) in self._held.items():
            self._tell(target.file, target.name, pid, end, is_complete)
        if program.entry or program.source:
            os._exit(0)
        ours, theirs = socket.socketpair()
        self._tell(program.file, "", os.getpid(), ours)
        self._link.close()
        return Link(theirs)

    def _tell(self, file: str, target: str, pid: int, ours: socket.socket, is_complete: bool = True) -> None:
        read = self._world.read()
        header = {"parked": target, "file": file, "pid": pid, "read": read, "complete": is_complete}
        with suppress(OSError):  # the program may have closed the link
            self._link.send(header, [ours.fileno()])
        ours.close()

    def _drop(self, target: WatchedTarget) -> None:
        """End the fork at an earlier call of a target, if there is one."""
        if target in self._held:
            self._held.pop(target)[1].close()  # which ends it


def run_program(world: World, program: ProgramFile, link: Link, job: str) -> NoReturn:
    """Run a program in this process, and park a fork of it at the first call of each target, and at its end."""
    parking, is_over = _Parking(world, link), True
    try:
        with memory_limit(MEMORY):
            world.follow(program, parking.at)
    except _Leave:
        is_over = False
    except GpuWanted:
        link.send({"again": program.file})
        os._exit(0)
    except BaseException:  # whatever ends a program, what it has called is parked
        pass
    try:
        if is_over and parking.parked is not None:
            os._exit(1)  # the program caught what was to unwind it
        give_forks(world, parking.parked or parking.at_end(program), job)
    finally:
        os._exit(0)
