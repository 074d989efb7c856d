"""A job for process tests: runs the request's source as a user's code would run, without torch."""

from collections.abc import Iterator
from typing import Any

from fx_lsp.model import Failure, Trace, TraceReply, TraceRequest
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects


def run(request: TraceRequest) -> TraceReply:
    """A trace whose notes are the source's `notes` and whose stages its `stages`; a MemoryError is a failure."""
    names: dict[str, Any] = {"__name__": "user"}
    try:
        exec(compile(request.source, request.file, "exec"), names)
    except MemoryError:
        return TraceReply(Failure("memory", "over the limit"))
    except ValueError as error:
        return TraceReply(Failure("error", str(error)))
    notes = tuple(str(note) for note in names.get("notes", ()))
    trace = Trace(request.name, (), (), (), (), (), seconds=0.0, torch="", notes=notes)
    return TraceReply(trace, names.get("stages", {}), ("dependency.py",), ("package",))


def twice(request: TraceRequest) -> Iterator[TraceReply]:
    """First a reply that is not final, then what `run` gives, unless the source fails or waits when it is run."""
    names: dict[str, Any] = {"__name__": "first"}
    exec(compile(request.source, request.file, "exec"), names)
    first = Trace(request.name, (), (), (), (), (), seconds=0.0, torch="", notes=("first",))
    yield TraceReply(first, names.get("stages", {}), final=False)
    yield run(request)


def guarded(request: TraceRequest) -> TraceReply:
    """The same under `forbid_effects`; a blocked effect is a failure."""
    try:
        with forbid_effects():
            return run(request)
    except EffectBlocked as blocked:
        return TraceReply(Failure("effect", blocked.what))
