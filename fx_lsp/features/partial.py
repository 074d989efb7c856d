"""Show the part of a failing target that ran, and mark it."""

from __future__ import annotations

from dataclasses import replace

from fx_lsp.features.lenses import place_text
from fx_lsp.features.text import one_line
from fx_lsp.model import Failure, Outcome, StageInfo, Trace, known_trace

EXECUTED = "torch"
"""The stage with the operations that ran before a failure, as PyTorch calls."""


def shown_trace(outcome: Outcome | None, file: str = "") -> Trace | None:
    """Return the trace of a target, or the part that ran before it failed, with a note on that for a reader of
    `file`.
    """
    if outcome is None or not isinstance(outcome, Failure) or outcome.partial is None:
        return None if outcome is None else known_trace(outcome)
    note = f"partial: {until(outcome, file)}: {one_line(outcome.message, 200)}"
    return replace(outcome.partial, notes=(*outcome.partial.notes, note))


def until(failure: Failure, file: str) -> str:
    """Return the extent of a partial run: `up to line 41, where it fails`."""
    place = place_text(file, failure.span)
    return f"up to {place}, where it fails" if place else "up to the failure"


def executed(outcome: Outcome | None) -> StageInfo | None:
    """Return the stage of the partial run of a failing target; None without one."""
    partial = outcome.partial if isinstance(outcome, Failure) else None
    return None if partial is None else partial.info(EXECUTED)
