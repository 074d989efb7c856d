"""Detect targets that turn out not to be tensor code once they run; they are not shown."""

from __future__ import annotations

from fx_lsp.messages.targets import NO_OPERATIONS, NO_OPERATIONS_BEFORE_ERROR
from fx_lsp.model import Failure, InputSource, InputSpec, TraceRequest
from fx_lsp.tracer.run.call import tensors_in
from fx_lsp.tracer.run.observation import Run

_GUESSES: frozenset[InputSource] = frozenset({"search", "default", "annotation"})


def nothing(name: str, why: str = "") -> Failure:
    """Return the failure of a target with nothing to trace; `why` is the exception that ended the run."""
    return NO_OPERATIONS_BEFORE_ERROR.failure(name=name, error=why) if why else NO_OPERATIONS.failure(name=name)


def ran_without_tensors(request: TraceRequest, run: Run) -> bool:
    """Return True if a run came to its end without a PyTorch operation, and returned no tensor."""
    return may_be_none(request) and not run.calls and not any(tensors_in(run.result, ""))


def shows_no_tensors(request: TraceRequest, run: Run, inputs: tuple[InputSpec, ...]) -> bool:
    """Return True if a failed run on guessed inputs shows that the target is not tensor code.

    It ended before the first PyTorch operation, and the target's text has no use that only tensors have.
    """
    if request.evident or not may_be_none(request):
        return False
    if run.calls or any(i.source not in _GUESSES for i in inputs):
        return False
    return run.failed is None or isinstance(run.error, TypeError)


def may_be_none(request: TraceRequest) -> bool:
    """Return True if a target may turn out not to be tensor code: it is a function that nobody asked to be traced."""
    return request.kind in ("function", "method") and not request.is_asked
