"""One interpreter that traces: found out about when first asked, started at the first miss, restarted within bounds."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fx_lsp.errors import WorkerDied, WorkerError, WorkerStartError, WorkerTimeout
from fx_lsp.model import Failure, FailureKind, Span, TraceReply, TraceRequest
from fx_lsp.tracing.interpreters import Interpreter, find_interpreter, probe
from fx_lsp.tracing.workers import Limits, Workers

log = logging.getLogger(__name__)

_RESTARTS = 3
_RESTART_WINDOW = 60.0
_CRASHES = {
    "SIGSEGV": "a segmentation fault",
    "SIGABRT": "an abort",
    "SIGBUS": "a bus error",
    "SIGILL": "an illegal instruction",
}


class Tracers(Protocol):
    """What the engine needs of `Workers`."""

    @property
    def pid(self) -> int | None: ...
    @property
    def ready(self) -> bool: ...
    async def start(self) -> None: ...
    async def run(self, request: TraceRequest, seconds: float | None = None) -> TraceReply: ...
    def preload(self, packages: Sequence[str]) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True)
class Backend:
    """Where interpreters and tracers come from.

    `forks` says whether the process named by `Tracers.pid` stays while children come and go.
    """

    find: Callable[[str | None, Sequence[str], Mapping[str, str]], str]
    probe: Callable[[str], Awaitable[Interpreter]]
    tracers: Callable[[str, Limits], Tracers]
    forks: bool


def default_backend() -> Backend:
    """The real one: forks where the platform can, fresh processes elsewhere."""
    mode: Literal["fork", "spawn"] = "fork" if hasattr(os, "fork") else "spawn"
    return Backend(find_interpreter, probe, lambda python, limits: Workers(python, limits, mode), mode == "fork")


class Host:
    """The tracers of one interpreter. `on_change` is called when `message` or `error` changes."""

    def __init__(
        self,
        python: str,
        limits: Limits,
        backend: Backend,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.error: WorkerError | None = None
        self.message = ""
        self._python = python
        self._limits = limits
        self._backend = backend
        self._on_change = on_change
        self._clock = clock
        self._identity: asyncio.Task[Interpreter] | None = None
        self._tracers: Tracers | None = None
        self._starting = 0
        self._deaths: deque[float] = deque()
        self._dead: set[int | None] = set()

    async def identity(self) -> str:
        """What tells this interpreter and its torch from another. Raises WorkerStartError."""
        if self._identity is None:
            self._identity = asyncio.ensure_future(self._backend.probe(self._python))
        try:
            return (await asyncio.shield(self._identity)).identity
        except WorkerStartError as error:
            self._fail(error)
            raise

    async def trace(self, request: TraceRequest, name_span: Span) -> TraceReply:
        """The answer to `request`; limits and crashes are failures at `name_span`. Raises WorkerStartError."""
        again = True
        while True:
            tracers, pid = await self._ready()
            try:
                reply = await tracers.run(request)
            except WorkerTimeout as error:
                return TraceReply(_timed_out(request.name, self._limits, error, name_span))
            except WorkerDied as error:
                if not (self._backend.forks and pid != tracers.pid):
                    return TraceReply(_died(request.name, self._limits, error, name_span))
                self._note_death(pid, error)
                if not again:
                    return TraceReply(_died(request.name, self._limits, error, name_span))
                again = False
                continue
            except WorkerStartError as error:
                self._fail(error)
                raise
            if reply.packages:
                tracers.preload(reply.packages)
            return reply

    async def close(self) -> None:
        """End every process of this interpreter."""
        tracers, self._tracers = self._tracers, None
        if self._identity is not None:
            self._identity.cancel()
        if tracers is not None:
            await tracers.close()

    async def _ready(self) -> tuple[Tracers, int | None]:
        if isinstance(self.error, WorkerStartError):
            raise self.error
        if self._tracers is None:
            self._tracers = self._backend.tracers(self._python, self._limits)
        tracers = self._tracers
        if not tracers.ready:
            self._starting += 1
            self._say("starting torch")
            try:
                await tracers.start()
            except WorkerStartError as error:
                self._fail(error)
                raise
            except WorkerDied as error:
                raise self._fail(_gave_up(self._python, error)) from error
            finally:
                self._starting -= 1
                self._say("starting torch" if self._starting else "")
        return tracers, tracers.pid

    def _note_death(self, pid: int | None, error: WorkerDied) -> None:
        """Count the death of a zygote once. Raises WorkerStartError when it has died too often."""
        if pid not in self._dead:
            self._dead.add(pid)
            now = self._clock()
            self._deaths.append(now)
            while self._deaths and now - self._deaths[0] > _RESTART_WINDOW:
                self._deaths.popleft()
            log.warning("the tracer of %s ended: %s", self._python, error)
        if len(self._deaths) > _RESTARTS:
            raise self._fail(_gave_up(self._python, error)) from error

    def _fail(self, error: WorkerStartError) -> WorkerStartError:
        if self.error is not error:
            self.error = error
            self._on_change()
        return error

    def _say(self, message: str) -> None:
        if message != self.message:
            self.message = message
            self._on_change()


def _gave_up(python: str, error: WorkerDied) -> WorkerStartError:
    tail = error.output.strip().splitlines()[-3:]
    message = f"the tracer of {python} ended {_RESTARTS + 1} times within a minute and is not started again"
    said = f": {' / '.join(tail)}" if tail else f": {error}"
    return WorkerStartError(message + said, "interpreter", "Restart the server's tracers to try again.", error.output)


def _timed_out(name: str, limits: Limits, error: WorkerTimeout, span: Span) -> Failure:
    message = f"tracing {name} took more than {limits.seconds:g} s; it was stopped"
    hint = "Give smaller inputs in a `# fx:` comment, or raise the time limit in the settings."
    return Failure("timeout", message, span, hint, output=error.output[-4096:])


def _died(name: str, limits: Limits, error: WorkerDied, span: Span) -> Failure:
    output = error.output[-4096:]
    if error.status >= 0:
        message = f"tracing {name} ended the process with exit code {error.status}"
        return Failure("exit" if error.status == 0 else "crash", message, span, output=output)
    number = -error.status
    try:
        signal_name = signal.Signals(number).name
    except ValueError:
        signal_name = f"signal {number}"
    kind: FailureKind = "memory" if signal_name == "SIGKILL" else "crash"
    if kind == "memory":
        message = f"the process that traced {name} was killed (SIGKILL), most likely because memory ran out"
        hint = f"The limit is {limits.memory_bytes / (1 << 30):.1f} GiB; give smaller inputs in a `# fx:` comment."
    else:
        message = f"tracing {name} crashed the process with {_CRASHES.get(signal_name, 'a signal')} ({signal_name})"
        hint = "Native code failed; the output below may say where."
    return Failure(kind, message, span, hint, output=output)
