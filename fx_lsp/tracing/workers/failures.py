"""What a user reads when a tracing process was stopped or died: one sentence, at the line that it was in."""

from __future__ import annotations

import signal

from fx_lsp.errors import TracerFailed, WorkerDied, WorkerError, WorkerStartError, WorkerTimeout
from fx_lsp.model import Failure, FailureKind, Span, TraceRequest
from fx_lsp.tracing.workers.launch import Limits
from fx_lsp.tracing.workers.stack import stopped_at

_OUTPUT_BYTES = 4096
_SMALLER = "write smaller inputs in a `# fx:` comment"
_CRASHES = {
    "SIGSEGV": "a segmentation fault",
    "SIGABRT": "an abort",
    "SIGBUS": "a bus error",
    "SIGILL": "an illegal instruction",
}


def timed_out(request: TraceRequest, limits: Limits, error: WorkerTimeout, name_span: Span) -> Failure:
    """It ran into the time limit."""
    what, place = _stopped(request, error)
    where = f" while it was at line {place.line}" if place else ""
    message = f"{what} took more than {limits.seconds:g} s and was stopped{where}"
    hint = f"Check whether this code ends; if it does, {_SMALLER}, or raise `fx-lsp.limits.seconds`."
    return _failure("timeout", message, hint, place or name_span, error)


def died(request: TraceRequest, limits: Limits, error: WorkerDied, name_span: Span) -> Failure:
    """It ended by itself, or something ended it."""
    name, status = request.name, error.status
    what, place = _stopped(request, error)
    if status >= 0:
        message = f"tracing {name} ended without a result: {error}"
        hint = "Look for `os._exit`, or for native code that exits the process."
        return _failure("exit" if status == 0 else "crash", message, hint, name_span, error)
    signal_name = _signal_name(-status)
    if signal_name == "SIGKILL":
        limit = f"{limits.memory_bytes / (1 << 20):.0f} MiB"
        message = f"the process that traced {name} was killed (SIGKILL), most likely because memory ran out"
        hint = f"The limit is {limit}; {_SMALLER}, or restart the server's tracers to try again."
        return _failure("memory", message, hint, place or name_span, error)
    where = f" at line {place.line}" if place else ""
    message = f"{what} crashed the process with {_CRASHES.get(signal_name, 'a signal')} ({signal_name}){where}"
    hint = "Native code failed there; it cannot run on fake tensors, because they have no memory."
    return _failure("crash", message, hint, place or name_span, error)


def _stopped(request: TraceRequest, error: WorkerError) -> tuple[str, Span | None]:
    """Return what was running, and its line: one of the user's passes, or the target."""
    for source in request.passes:
        if place := stopped_at(error.output, source.found.file, source.source):
            return f"{source.found.name} on {request.name}", place
    return f"tracing {request.name}", stopped_at(error.output, request.file, request.source)


def internal_error(what: str, error: Exception, span: Span | None) -> Failure:
    """Return the failure for a bug of fx-lsp itself that ended the work on `what`, a target or a file."""
    said = str(error) if isinstance(error, TracerFailed) else f"{type(error).__name__}: {error}"
    message = f"internal error in fx-lsp, please report it: {said} (in the work on {what})"
    output = error.output[-_OUTPUT_BYTES:] if isinstance(error, TracerFailed) else ""
    return Failure("internal", message, span, "The log has the traceback; your code may be correct.", output=output)


def gave_up(python: str, times: int, error: WorkerDied) -> WorkerStartError:
    """Say that the process that forks the others keeps dying."""
    tail = error.output.strip().splitlines()[-3:]
    message = f"the tracer of {python} ended {times} times within a minute and is not started again"
    said = f": {' / '.join(tail)}" if tail else f": {error}"
    return WorkerStartError(message + said, "interpreter", "Restart the server's tracers to try again.", error.output)


def _failure(kind: FailureKind, message: str, hint: str, span: Span, error: WorkerError) -> Failure:
    return Failure(kind, message, span, hint, output=error.output[-_OUTPUT_BYTES:])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
