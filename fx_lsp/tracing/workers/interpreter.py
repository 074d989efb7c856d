"""One interpreter that traces: found out about when first asked, started at the first miss, restarted within bounds."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fx_lsp.errors import NotTrusted, TracerFailed, WorkerDied, WorkerStartError, WorkerTimeout
from fx_lsp.messages.processes import NOT_TRUSTED
from fx_lsp.model import Span, Trace, TraceReply, TraceRequest, WorldRequest
from fx_lsp.tracing.environments import may_have_scripts, script_environment
from fx_lsp.tracing.workers import pool
from fx_lsp.tracing.workers.channels import EarlyReply
from fx_lsp.tracing.workers.failures import died, gave_up, internal_error, timed_out
from fx_lsp.tracing.workers.find_python import Interpreter, find_interpreter, probe
from fx_lsp.tracing.workers.fork_server import state_of
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.pool import Mode, Workers
from fx_lsp.tracing.workers.settings import EngineSettings

log = logging.getLogger(__name__)

_RESTARTS = 3
_RESTART_WINDOW = 60.0


class Tracers(Protocol):
    """The part of `Workers` that the engine uses."""

    @property
    def pid(self) -> int | None: ...
    @property
    def ready(self) -> bool: ...
    @property
    def resting(self) -> bool: ...
    def touch(self) -> None: ...
    async def start(self) -> None: ...
    async def run(
        self,
        request: TraceRequest,
        seconds: float | None = None,
        early: EarlyReply | None = None,
        world: WorldRequest | None = None,
    ) -> TraceReply: ...
    def preload(self, packages: Sequence[str]) -> None: ...
    async def rehearse(self, graph: bytes, request: TraceRequest) -> None: ...
    async def close(self) -> None: ...


QUIET, FAIR = 0.1, 0.5
"""The most of a trace's time that its process may wait for a processor if a program was followed: for long, or for a
part of the time that it has.
"""


@dataclass(frozen=True)
class TracerAnswer:
    """A tracer's answer, the seconds that it took with torch warm, and the limit on these."""

    reply: TraceReply
    seconds: float
    limit: float = math.inf

    def repeats(self, request: TraceRequest) -> bool:
        """Return True if tracing again gives the same.

        A search counts its work, but a program is followed by the clock of its process, and may be followed further on
        a quiet machine.
        """
        if isinstance(self.reply.outcome, Trace) or self.seconds < request.seconds / 2:
            return True
        starved = self.reply.starved
        if request.programs or request.kind in ("step", "script"):
            share = FAIR if self.seconds - (starved or 0.0) < request.seconds / 2 else QUIET
            return starved is not None and starved < share * self.seconds and self.seconds < self.limit
        return self.seconds < self.limit


@dataclass(frozen=True)
class Backend:
    """Where interpreters and tracers come from.

    `forks` says whether the process named by `Tracers.pid` stays while children come and go.
    """

    find: Callable[[str | None, Sequence[str], Mapping[str, str]], str]
    probe: Callable[[str], Awaitable[Interpreter]]
    tracers: Callable[[str, Limits], Tracers]
    forks: bool


def default_backend(mode: Mode | None = None) -> Backend:
    """Return the real backend, with the `mode` of the platform unless one is passed."""
    mode = mode or pool.default_mode()

    def workers(python: str, limits: Limits) -> Workers:
        return Workers(Launch(python, limits=limits), mode)

    return Backend(find_interpreter, probe, workers, mode == "fork")


class TracingInterpreter:
    """The tracers of one interpreter. `on_change` is called when `message` or `error` changes."""

    def __init__(
        self,
        python: str,
        limits: Limits,
        backend: Backend,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.error: WorkerStartError | None = None
        self.message = ""
        self._python = python
        self._limits = limits
        self._backend = backend
        self._on_change = on_change
        self._clock = clock
        self._identity: asyncio.Task[Interpreter] | None = None
        self._torch: tuple[Interpreter, list[int] | None] | None = None
        self._tracers: Tracers | None = None
        self._starting = 0
        self._deaths: deque[float] = deque()
        self._dead: set[int | None] = set()

    async def identity(self) -> str:
        """Return what tells this interpreter and its torch from another. Raises WorkerStartError."""
        if self._identity is None or self._torch_changed():
            self._identity, self._torch = asyncio.ensure_future(self._backend.probe(self._python)), None
        try:
            interpreter = await asyncio.shield(self._identity)
        except WorkerStartError as error:
            self._fail(error)
            raise
        if self._torch is None or self._torch[0] is not interpreter:
            self._torch = interpreter, state_of(interpreter.file)
        allowed = self._limits.reads, self._limits.programs, self._limits.confined
        return interpreter.identity if allowed == ((), (), True) else f"{interpreter.identity} {allowed}"

    def _torch_changed(self) -> bool:
        """Return True if torch was upgraded since its version was read."""
        return self._torch is not None and state_of(self._torch[0].file) != self._torch[1]

    async def trace(
        self,
        request: TraceRequest,
        name_span: Span,
        early: EarlyReply | None = None,
        world: WorldRequest | None = None,
    ) -> TracerAnswer:
        """Return the answer to `request`; limits and crashes are failures, at the line that ran or at `name_span`.

        `early` is given replies that are not final, `world` as in `Workers.run`. Raises WorkerStartError.
        """
        again = True
        while True:
            tracers, pid = await self._ready()
            started = self._clock()
            try:
                reply = await tracers.run(request, early=early, world=world)
            except WorkerTimeout as error:
                reply = TraceReply(timed_out(request, self._limits, error, name_span))
            except TracerFailed as error:
                log.error("tracing %s::%s failed inside fx-lsp\n%s", request.file, request.name, error.output)
                reply = TraceReply(internal_error(request.name, error, name_span))
            except WorkerDied as error:
                if self._backend.forks and pid != tracers.pid:
                    self._note_death(pid, error)
                    if again:
                        again = False
                        continue
                reply = TraceReply(died(request, self._limits, error, name_span))
            except WorkerStartError as error:
                self._fail(error)
                raise
            if reply.packages:
                tracers.preload(reply.packages)
            graph = reply.stages.get("joint") or reply.stages.get("inference")
            if graph and not request.work:
                await tracers.rehearse(graph, request)
            return TracerAnswer(reply, self._clock() - started, self._limits.seconds)

    @property
    def resting(self) -> bool:
        """Return True if its processes have ended because nobody used them."""
        return self._tracers is not None and self._tracers.resting

    def touch(self) -> None:
        """Record that the editor was used."""
        if self._tracers is not None and self.error is None:
            self._tracers.touch()

    async def close(self) -> None:
        """End every process of this interpreter."""
        tracers, self._tracers = self._tracers, None
        if self._identity is not None:
            self._identity.cancel()
        if tracers is not None:
            await tracers.close()

    async def _ready(self) -> tuple[Tracers, int | None]:
        if self.error is not None:
            raise self.error
        if self._tracers is None:
            self._tracers = self._backend.tracers(self._python, self._limits)
        tracers = self._tracers
        while not tracers.ready:
            self._starting += 1
            self._say("starting torch")
            try:
                await tracers.start()
            except WorkerStartError as error:
                if not error.was_killed or self._count_death() > _RESTARTS:
                    self._fail(error)
                    raise
            except WorkerDied as error:
                raise self._fail(gave_up(self._python, _RESTARTS + 1, error)) from error
            finally:
                self._starting -= 1
                self._say("starting torch" if self._starting else "")
        return tracers, tracers.pid

    def _note_death(self, pid: int | None, error: WorkerDied) -> None:
        """Count the death of a zygote once. Raises WorkerStartError when it has died too often."""
        if pid not in self._dead:
            self._dead.add(pid)
            self._count_death()
            log.warning("the tracer of %s ended: %s", self._python, error)
        if len(self._deaths) > _RESTARTS:
            raise self._fail(gave_up(self._python, _RESTARTS + 1, error)) from error

    def _count_death(self) -> int:
        """Count the death of a process now; return how many there were within the window."""
        now = self._clock()
        self._deaths.append(now)
        while now - self._deaths[0] > _RESTART_WINDOW:
            self._deaths.popleft()
        return len(self._deaths)

    def _fail(self, error: WorkerStartError) -> WorkerStartError:
        if self.error is not error:
            self.error = error
            self._on_change()
        return error

    def _say(self, message: str) -> None:
        if message != self.message:
            self.message = message
            self._on_change()


class TracingInterpreters:
    """The interpreters of an engine, by path. `on_change` is that of each of them."""

    def __init__(self, backend: Backend, on_change: Callable[[], None]) -> None:
        self._backend = backend
        self._on_change = on_change
        self._interpreters: dict[str, TracingInterpreter] = {}

    @property
    def all(self) -> list[TracingInterpreter]:
        """Return those that there are."""
        return list(self._interpreters.values())

    async def find(self, settings: EngineSettings, file: str, workspace: Sequence[str]) -> TracingInterpreter:
        """Return the interpreter for a file of a workspace: without a setting, a script with inline metadata has its
        own. Raises WorkerStartError where none may be started.
        """
        if not settings.may_run(file):
            raise NotTrusted(NOT_TRUSTED.message(), hint=NOT_TRUSTED.hint)
        setting = settings.interpreter_of(workspace)
        if setting is None and may_have_scripts(os.environ):
            setting = await asyncio.to_thread(script_environment, file, os.environ)
        python = self._backend.find(setting, workspace, os.environ)
        if python not in self._interpreters:
            self._interpreters[python] = TracingInterpreter(python, settings.limits, self._backend, self._on_change)
        return self._interpreters[python]

    async def close(self) -> None:
        """End the processes of every interpreter, and forget them."""
        interpreters = self.all
        self._interpreters.clear()
        await asyncio.gather(*(interpreter.close() for interpreter in interpreters))
