"""A process that has imported a project: each target gets a fork of it, or of a program that has called the target.

Control channel (a Unix socket, frames of `fx_lsp.wire`), from the server: first `{"world": request}`, then
`{"fork": id, "file", "target", "names", "programs", "whole", "edits", "calls"}` with two descriptors (the request
channel and the pipe for printed output); to the server `{"forked": id, "pid"}` or `{"unforked": id, "message"}`
(`"stale"` where it is not what it would be with the `edits`, later texts of files), `{"exited": pid, "status"}` and
`{"read": states}`, the files that it has read besides, with their times and sizes then. `names` are those that the
target's module has to have, `programs` those that may call it: they are run first, each once. With `calls`, the request
waits until these have ended, and gets the later calls that they make of its target.

A program runs in a fork. At the first call of each target that forks in turn: the parked process has the arguments and
the receiver as they are then, leaves the program, and gives forks to requests for that target.
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
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeAlias

from fx_lsp.errors import ProtocolError
from fx_lsp.model import ProgramFile, WorldRequest
from fx_lsp.sandbox import confinement
from fx_lsp.sandbox.usage import memory_of
from fx_lsp.tracer.process.child import begin_child, children_of, kill_group, name_process
from fx_lsp.tracer.process.links import Link
from fx_lsp.tracer.process.parked import MAX_PARKED, Children, give_forks, run_program
from fx_lsp.tracer.program.rewriting.edit import changed_functions, outermost_names
from fx_lsp.tracer.world.world import World
from fx_lsp.wire import from_json

NAME = "fx-lsp world"
"""The name of the process of a world, and of its forks, in the system (Linux)."""
PROGRAM_SECONDS = 60.0
"""Seconds by the clock after which a program that does not end is ended."""
CALLS_SECONDS = 0.5
"""Seconds that a program may compute on while a request whose target it has called waits for its end, and so for other
calls."""
PARKED_BYTES = 1 << 30
"""The memory that the parked processes of a world may have together; what they share counts once."""
MEMORY_SECONDS = 1.0
"""Seconds between two measurements of that memory."""
LINK_SECONDS = 10.0
"""Seconds for a message to or from a program or a parked process, which may stop in the middle of it."""
FORGED = (AttributeError, KeyError, OSError, ProtocolError, TypeError, ValueError)
"""The exceptions for messages that are not what they should be: code of a workspace can send any."""
FunctionsRun = dict[str, tuple[str, ...]]
"""The names of functions that have run, by file."""
Calls = dict[str, dict[str, tuple[tuple[str, int], ...]]]
"""The comment and the line of later calls, by file and target."""
ReadStates = dict[str, tuple[int, ...] | None]
"""The times and sizes of files that were read; None where there was none."""
Ran: TypeAlias = "ProgramFile | str"
"""A program that has run, or a file that was imported."""
Key = tuple[str, str]
"""A file and a target of it, by name; "" for the file as it is once it was imported or has run."""


@dataclass(eq=False)
class _Request:
    """A fork that the server waits for: of `number`, for the target `key`, whose module has to have some `names`.

    `programs` may call the target, `edits` are later texts of files. `is_whole` says that it is taken from a module as
    it is once that has run. With `wants_calls` it waits until these programs have ended. `refused` are parked processes
    that do not have what it needs.
    """

    number: int
    key: Key
    names: list[str]
    programs: list[ProgramFile]
    is_whole: bool
    edits: dict[str, str]
    wants_calls: bool
    descriptors: list[int]
    refused: set[int] = field(default_factory=set[int])


@dataclass(eq=False)
class _Parked:
    """A process that forks for requests: its link, the requests that wait for it, and its forks.

    It has run the file `ran`: a program, or the file of its targets. The program's process had computed for `since`
    seconds then. It `is_complete` unless some argument of the call is a placeholder for missing data.
    """

    pid: int
    link: Link
    ran: Ran
    is_complete: bool = True
    asked: dict[int, _Request] = field(default_factory=dict[int, _Request])
    children: set[int] = field(default_factory=set[int])
    since: float = 0.0


@dataclass(eq=False)
class _Running:
    """A program that has run in a process since `started`, which reports over a link."""

    program: ProgramFile
    pid: int
    link: Link
    started: float = field(default_factory=time.monotonic)


def _computed(running: _Running) -> float:
    """Return for how many seconds the process of a program has computed; by the clock where the system does not say."""
    try:
        with open(f"/proc/{running.pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return time.monotonic() - running.started


def serve(control: socket.socket, job: str) -> NoReturn:
    """Be a world: serve forks on `control` until the server closes it."""
    name_process(NAME)
    link = Link(control)
    message = link.receive()
    if message is not None:
        request = from_json(WorldRequest, message[0]["world"])
        confinement.enter(request.roots, *(watched.file for watched in request.files))
        _WorldServer(link, job, World.begin(request)).serve()
    os._exit(0)


class _WorldServer:
    """Gives each request the process that fits it best: parked at the call of its target, at the end of its file's own
    program, after the import of the file, or this one."""

    def __init__(self, control: Link, job: str, world: World) -> None:
        self._control, self._job, self._world = control, job, world
        self._children = Children(control, job)
        self._waiting: list[_Request] = []
        self._parked: dict[Key, _Parked] = {}
        self._running: _Running | None = None
        self._begun: set[Ran] = set()
        self._measured, self._has_grown = 0.0, False
        self._ran: dict[Ran, FunctionsRun] = {}
        self._calls: dict[Ran, Calls] = {}
        self._stopped: dict[Ran, tuple[str, ...]] = {}
        self._prepared: set[str] = set()

    def serve(self) -> None:
        """Serve until the control channel is closed, and end all that was started."""
        while True:
            links: list[Any] = [self._control, self._children.wake, *(p.link for p in self._parked.values())]
            links += [self._running.link] if self._running is not None else []
            is_idle = self._running is None and not self._waiting and not self._has_grown
            ready, _, _ = select.select(links, [], [], None if is_idle else CALLS_SECONDS / 2)
            if self._running is not None and self._running.link in ready:
                self._hear_program(self._running)
            for key, parked in list(self._parked.items()):
                if parked.link in ready:
                    self._hear_parked(key, parked)
            if self._children.reap():
                self._end_orphans()
                self._has_grown = True
            if self._control in ready:
                message = self._control.receive()
                if message is None:
                    break
                self._take(*message)
            self._stop_endless()
            self._waiting = [request for request in self._waiting if not self._place(request)]
            self._bound_memory()
        running = [self._running.pid] if self._running is not None else []
        for pid in (*running, *(parked.pid for parked in self._parked.values())):
            kill_group(pid)
        self._children.kill()

    def _take(self, header: dict[str, Any], descriptors: list[int]) -> None:
        programs = [ProgramFile(**program) for program in header["programs"]]
        key = (header["file"], header["target"])
        self._prepare(key[0])
        self._waiting.append(
            _Request(
                header["fork"],
                key,
                header["names"],
                programs,
                header["whole"],
                header["edits"],
                header["calls"],
                descriptors,
            )
        )

    def _prepare(self, file: str) -> None:
        """Import what a file needs, before the first fork for it."""
        watched = self._world.watched(file)
        if watched is not None and file not in self._prepared:
            self._prepared.add(file)
            self._world.import_needs(watched)
            self._children.listen()
            self._world.instrument.collect()
            gc.collect()
            gc.freeze()
            self._control.send({"read": self._world.read()})

    def _place(self, request: _Request) -> bool:
        """Give a request a process, if it can be given one by now; else see to what is missing."""
        file = request.key[0]
        if request.is_whole:
            if self._awaits_calls(request):
                return False
            parked = self._parked.get(request.key)
            if parked is not None and parked.is_complete and self._offer(request, request.key):
                return True
            if self._follows(request):
                return False
            if self._offer(request, request.key):
                return True
            if self._has_run(request):
                self._refuse(request)
                return True
            watched = self._world.watched(file)
            if watched is not None and not watched.is_program and file not in self._begun:
                self._fork_import(file)
            if self._offer(request, (file, "")):
                return True
        if not self._world.stands(request.edits):
            self._refuse(request)
            return True
        self._children.fork(request.number, request.descriptors, partial(self._leave_world, request))
        self._close(request)
        return True

    def _awaits_calls(self, request: _Request) -> bool:
        """Return True while a program that has called the target runs, which may call it in other ways."""
        if self._running is None or self._running.program not in request.programs:
            return False
        parked = self._parked.get(request.key)
        return request.wants_calls or (parked is not None and _computed(self._running) < parked.since + CALLS_SECONDS)

    def _refuse(self, request: _Request) -> None:
        """Tell that this world is not what it would be with the texts of a request."""
        self._control.send({"unforked": request.number, "message": "its world has grown old", "stale": True})
        self._close(request)

    def _offer(self, request: _Request, key: Key) -> bool:
        """Hand a request to a parked process, unless there is none or that has refused it."""
        parked = self._parked.get(key)
        if parked is None or parked.pid in request.refused:
            return False
        self._parked[key] = self._parked.pop(key)  # the one that was used last comes last
        parked.asked[request.number] = request
        with suppress(OSError):
            header = {
                "fork": request.number,
                "file": request.key[0],
                "names": request.names,
                "edits": request.edits,
                "ran": self._functions_run(request),
                "calls": self._calls.get(parked.ran, {}).get(key[0], {}).get(key[1], []),
                "stopped": self._stopped_of(request),
            }
            parked.link.send(header, request.descriptors)
        return True

    def _has_run(self, request: _Request) -> bool:
        """Return True if what has changed of a function may have kept a program from calling a target."""
        programs = request.programs
        for file, text in request.edits.items():
            watched = self._world.watched(file)
            changed = changed_functions(watched.source, text) if watched is not None else None
            names = outermost_names(watched.source) if watched is not None else {}
            functions = {name for program in programs for name in self._ran.get(program, {}).get(file, ())}
            if changed is None or any(names.get(line) in functions for line in changed):
                return True
        return False

    def _functions_run(self, request: _Request) -> list[str]:
        """Return the functions of a target's file that have run in programs which may call it."""
        files = [self._ran.get(program, {}) for program in request.programs if program in self._begun]
        return sorted({name for functions in files for name in functions.get(request.key[0], ())})

    def _stopped_of(self, request: _Request) -> list[str]:
        """Return sentences on programs that may call a target, and were not followed to their ends."""
        return [sentence for program in request.programs for sentence in self._stopped.get(program, ())]

    def _follows(self, request: _Request) -> bool:
        """Return True while a program is run that may call the target; begin one if none runs."""
        program = next((p for p in request.programs if p not in self._begun), None)
        if self._running is None and program is not None:
            self._fork_program(program)
        return program is not None or (self._running is not None and self._running.program in request.programs)

    def _fork_program(self, program: ProgramFile, with_gpu: bool = False) -> None:
        """Run a program in a fork of this process, `with_gpu` as on a machine that has one."""
        self._begun.add(program)

        def run(link: Link) -> None:
            if with_gpu:
                self._world.with_gpu()
            run_program(self._world, program, link, self._job)

        self._running = _Running(program, *self._fork(run))

    def _fork_import(self, file: str) -> None:
        self._begun.add(file)

        def run(link: Link) -> None:
            watched = self._world.watched(file)
            is_usable = watched is not None and self._world.import_whole(watched)
            link.send({"read": self._world.read()})
            give_forks(self._world, link, self._job, is_usable)

        self._parked[file, ""] = _Parked(*self._fork(run), file)

    def _fork(self, run: Callable[[Link], None]) -> tuple[int, Link]:
        """Return the id of a fork of this process that calls `run`, and the link to it."""
        ours, theirs = socket.socketpair()
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            ours.close()
            self._begin(parent)
            run(Link(theirs))
        theirs.close()
        ours.settimeout(LINK_SECONDS)
        return pid, Link(ours)

    def _begin(self, parent: int) -> None:
        """Begin a fork of this process that is no answer to a request."""
        begin_child(parent)
        self._close_all()

    def _leave_world(self, request: _Request) -> None:
        """Begin a fork of this process that answers a request by itself."""
        self._waiting.remove(request)
        self._close_all()
        self._world.ran.update(self._functions_run(request))
        self._world.stopped |= dict.fromkeys(self._stopped_of(request))
        self._world.leave()
        self._world.edit(request.edits)

    def _close_all(self) -> None:
        """Close what belongs to this process alone, in a fork of it."""
        with suppress(OSError):
            self._children.close()
        for parked in self._parked.values():
            parked.link.close()
        if self._running is not None:
            self._running.link.close()
        for request in (*self._waiting, *(r for parked in self._parked.values() for r in parked.asked.values())):
            self._close(request)

    def _hear_program(self, running: _Running) -> None:
        """Take a message of a program; one that is forged ends it."""
        try:
            message = running.link.receive()
            if message is not None:
                self._take_of_program(running, *message)
                return
        except FORGED:
            kill_group(running.pid)
        running.link.close()
        self._running = None
        self._measured, self._has_grown = time.monotonic(), True  # what it shared is soon that of the parked alone
        every = {file.file: (*outermost_names(file.source).values(),) for file in self._world.request.files}
        self._ran.setdefault(running.program, every)

    def _take_of_program(self, running: _Running, header: dict[str, Any], descriptors: list[int]) -> None:
        """Take a message of a program. Raises one of `FORGED`."""
        if "ended" in header:
            self._ran[running.program] = from_json(FunctionsRun, header["ended"])
            self._calls[running.program] = from_json(Calls, header["calls"])
            self._stopped[running.program] = from_json(tuple[str, ...], header["stopped"])
            return
        if "again" in header:
            running.link.close()
            self._fork_program(running.program, with_gpu=True)
            return
        (descriptor,) = descriptors
        end, key = socket.socket(fileno=descriptor), (str(header["file"]), str(header["parked"]))
        end.settimeout(LINK_SECONDS)
        self._control.send({"read": from_json(ReadStates, header["read"])})
        is_ours = header["pid"] in children_of(running.pid) | children_of(os.getpid())
        before, is_complete = self._parked.get(key), header["complete"] is True
        is_better = before is None or (is_complete and not before.is_complete)
        if not is_ours or not is_better or self._world.watched(key[0]) is None or len(self._parked) >= MAX_PARKED:
            end.close()
            return
        if before is not None:
            self._end_parked(before)
        self._parked[key] = _Parked(header["pid"], Link(end), running.program, is_complete, since=_computed(running))
        self._has_grown = True

    def _hear_parked(self, key: Key, parked: _Parked) -> None:
        """Take a message of a parked process; one that is forged ends it."""
        try:
            message = parked.link.receive()
            if message is not None:
                self._take_of_parked(parked, message[0])
                return
        except FORGED:
            kill_group(parked.pid)
        del self._parked[key]
        self._end_parked(parked)

    def _end_parked(self, parked: _Parked) -> None:
        """Close the link of a parked process, which ends it; the requests that wait for it get another one."""
        parked.link.close()
        self._waiting += parked.asked.values()
        for pid in parked.children:
            kill_group(pid)
            self._control.send({"exited": pid, "status": -int(signal.SIGKILL)})

    def _take_of_parked(self, parked: _Parked, header: dict[str, Any]) -> None:
        """Take a message of a parked process. Raises one of `FORGED`."""
        if "read" in header:
            self._control.send({"read": from_json(ReadStates, header["read"])})
            return
        if "refused" in header:
            request = parked.asked.pop(header["refused"])
            request.refused.add(parked.pid)
            if header["stale"]:
                self._refuse(request)
            else:
                self._waiting.append(request)
            return
        if "forked" in header:
            if header["pid"] not in children_of(parked.pid):
                raise ValueError(header["pid"])
            parked.children.add(header["pid"])
            self._close(parked.asked.pop(header["forked"]))
            self._control.send({"forked": header["forked"], "pid": header["pid"]})
        elif "unforked" in header:
            self._close(parked.asked.pop(header["unforked"]))
            self._control.send({"unforked": header["unforked"], "message": str(header["message"])})
        else:
            parked.children.remove(header["exited"])
            self._control.send({"exited": header["exited"], "status": int(header["status"])})

    def _stop_endless(self) -> None:
        if self._running is not None and time.monotonic() - self._running.started > PROGRAM_SECONDS:
            kill_group(self._running.pid)

    def _bound_memory(self) -> None:
        """End idle parked processes while all together have too much memory, the one unused for the longest time first.

        A later request for their targets runs the program again. Nothing ends while a program runs or a request waits:
        the process that it waits for may be the one with too much memory.
        """
        is_busy = self._running is not None or bool(self._waiting)
        if is_busy or not self._has_grown or time.monotonic() - self._measured < MEMORY_SECONDS:
            return
        self._measured, self._has_grown = time.monotonic(), False
        sizes = {key: memory_of(parked.pid) for key, parked in self._parked.items()}
        for key, parked in list(self._parked.items()):
            if sum(sizes.values()) <= PARKED_BYTES:
                break
            if not parked.asked and not parked.children:
                del sizes[key], self._parked[key]
                self._has_grown = True  # the others may have what it shared with them for themselves now
                self._begun.discard(parked.ran)
                parked.link.close()
                kill_group(parked.pid)

    def _end_orphans(self) -> None:
        """End what traces that have ended have started. While a program runs, a process may be parked unheard of."""
        if self._running is not None:
            return
        parked = {process.pid for process in self._parked.values()}
        for pid in children_of(os.getpid()) - self._children.pids - parked:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with suppress(OSError):
                os.waitpid(pid, 0)

    @staticmethod
    def _close(request: _Request) -> None:
        for descriptor in request.descriptors:
            with suppress(OSError):
                os.close(descriptor)
        request.descriptors = []
