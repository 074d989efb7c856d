"""Explain why a tracing process was stopped or died, at the line that it was in."""

from __future__ import annotations

import signal
from dataclasses import replace

from fx_lsp.errors import TracerFailed, WorkerDied, WorkerError, WorkerExceeded, WorkerStartError, WorkerTimeout
from fx_lsp.messages.places import line_of, mention
from fx_lsp.messages.processes import (
    CRASHED,
    CRASHED_AT_LINE,
    ENDED_WITH_STATUS,
    EXITED,
    INTERNAL_ERROR,
    OUT_OF_MEMORY_KILLED,
    TIMED_OUT,
    TIMED_OUT_AT_LINE,
    USED_TOO_MUCH,
    WROTE_TOO_MUCH,
)
from fx_lsp.model import Failure, Span, TraceRequest
from fx_lsp.tracing.workers.launch import Limits
from fx_lsp.tracing.workers.stack import stopped_at

_OUTPUT_BYTES = 4096
_CRASHES = {
    "SIGSEGV": "a segmentation fault",
    "SIGABRT": "an abort",
    "SIGBUS": "a bus error",
    "SIGILL": "an illegal instruction",
}


def timed_out(request: TraceRequest, limits: Limits, error: WorkerTimeout, name_span: Span) -> Failure:
    """Return the failure of a trace that ran into the time limit."""
    work, place = _stopped(request, error)
    seconds = limits.seconds
    if place is None:
        return _with_output(TIMED_OUT.failure(name_span, work=work, seconds=seconds), error)
    failure = TIMED_OUT_AT_LINE.failure(place, work=work, seconds=seconds, place=line_of(place))
    return _with_output(replace(failure, mentions=(mention(place),)), error)


def died(request: TraceRequest, limits: Limits, error: WorkerDied, name_span: Span) -> Failure:
    """Return the failure of a trace whose process exited, crashed or was killed."""
    name, status = request.name, error.status
    work, place = _stopped(request, error)
    if isinstance(error, WorkerExceeded):
        template = USED_TOO_MUCH if error.resource == "memory" else WROTE_TOO_MUCH
        return _with_output(template.failure(name_span, work=work, mebibytes=error.limit / (1 << 20)), error)
    if status >= 0:
        template = EXITED if status == 0 else ENDED_WITH_STATUS
        return _with_output(template.failure(name_span, name=name, error=error), error)
    signal_name = _signal_name(-status)
    if signal_name == "SIGKILL":
        mebibytes = limits.memory_bytes / (1 << 20)
        return _with_output(OUT_OF_MEMORY_KILLED.failure(place or name_span, name=name, mebibytes=mebibytes), error)
    crash = _CRASHES.get(signal_name, "a signal")
    if place is None:
        return _with_output(CRASHED.failure(name_span, work=work, crash=crash, signal=signal_name), error)
    failure = CRASHED_AT_LINE.failure(place, work=work, crash=crash, signal=signal_name, place=line_of(place))
    return _with_output(replace(failure, mentions=(mention(place),)), error)


def _stopped(request: TraceRequest, error: WorkerError) -> tuple[str, Span | None]:
    """Return what was running, and its line: one of the user's passes, or the target."""
    for source in request.passes:
        if place := stopped_at(error.output, source.found.file, source.source):
            return f"{source.found.name} on {request.name}", place
    return f"tracing {request.name}", stopped_at(error.output, request.file, request.source)


def internal_error(what: str, error: Exception, span: Span | None) -> Failure:
    """Return the failure for a bug of fx-lsp itself that ended the work on `what`, a target or a file."""
    cause = str(error) if isinstance(error, TracerFailed) else f"{type(error).__name__}: {error}"
    failure = INTERNAL_ERROR.failure(span, error=cause, work=what)
    return _with_output(failure, error) if isinstance(error, TracerFailed) else failure


def gave_up(python: str, times: int, error: WorkerDied) -> WorkerStartError:
    """Say that the process that forks the others keeps dying."""
    tail = error.output.strip().splitlines()[-3:]
    message = f"the tracer of {python} ended {times} times within a minute and is not started again"
    said = f": {' / '.join(tail)}" if tail else f": {error}"
    return WorkerStartError(message + said, "interpreter", "Restart the server's tracers to try again.", error.output)


def _with_output(failure: Failure, error: WorkerError) -> Failure:
    """Add the end of what the process printed."""
    return replace(failure, output=error.output[-_OUTPUT_BYTES:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
