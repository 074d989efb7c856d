"""Name the stages of a trace, sum it up in a line, and show the part of a failing target that ran."""

from __future__ import annotations

from dataclasses import replace

from fx_lsp.features.wording.guesses import Guesses
from fx_lsp.features.wording.text import basename, count, one_line
from fx_lsp.model import Failure, GradMode, Outcome, Span, StageInfo, Trace, Work, known_trace, write_work

EXECUTED = "torch"
"""The stage with the operations that ran before a failure, as PyTorch calls."""
PASSES = "passes"
"""The stage that lists all stages, and the work that produces them."""
RUN = "run"
"""The stage that describes the whole run of a pass."""
TORCHSCRIPT = "torchscript"
"""The stage of a graph as TorchScript, and the work that produces it."""
DIVERGE = "diverge"
"""The stage of a page on the first node whose numbers differ, and the work that produces it."""
DIVERGE_KERNELS = "diverge-kernels"
"""The work that produces such a page on the kernels of a target."""
DIVERGE_DATA = "diverge:json"
"""The stage of the same as JSON."""
RECOMPILES = "recompiles"
"""The stage of a page on the calls that are compiled again, and the work that produces it."""
RECOMPILES_DATA = "recompiles:json"
"""The stage of the same as JSON."""
FUSION = "fusion"
"""The stage that lists the kernels of fx-lsp with why they are several, and the work that produces it."""
INDUCTOR_FUSION = "fusion:inductor"
"""The stage of the same for the kernels of Inductor."""
FUSION_DATA = "fusion:json"
"""The stage of both as JSON."""


def place_text(file: str, span: Span | None) -> str:
    """Return a place as text for a reader of `file`: `line 12`, or `layers.py:12`; "" without a place."""
    if span is None:
        return ""
    return f"line {span.line}" if span.file == file else f"{basename(span.file)}:{span.line}"


def work_of_pass(file: str, name: str) -> Work:
    """Return the work of running the pass `name` of a file."""
    return write_work({"pass": f"{file}::{name}"})


def default_stage(trace: Trace) -> str:
    """Return the default stage to show: forward, or inference if there is nothing to differentiate."""
    names = [s.name for s in trace.stages]
    return next((s for s in ("forward", "inference") if s in names), names[0] if names else "forward")


def why_no_backward(refused: bool, grad: GradMode) -> str:
    """Return the text in place of the backward graph of a trace without one; `grad` is the mode of its call."""
    if grad != "grad":
        return f"under {grad}"
    return "cannot be differentiated" if refused else "nothing to differentiate"


def summarize(trace: Trace) -> str:
    """Return `12 ops forward · 18 backward · saves ~4.1 KiB`, or `9 ops · nothing to differentiate`; `12 nodes` for a
    graph.
    """
    if (built := trace.info("graph")) is not None:
        return count("node", built.nodes)
    forward, backward = trace.ops("forward"), trace.ops("backward")
    if forward is None or backward is None:
        inference = trace.ops("inference")
        ops = forward if inference is None else inference
        return f"{count('op', ops or 0)} · {why_no_backward(trace.refused, trace.context.grad)}"
    saved = saved_text(trace.activation_bytes, Guesses(trace.inputs))
    return f"{count('op', forward)} forward · {backward:,} backward · {saved}"


def saved_text(activations: int, guesses: Guesses) -> str:
    """Return how many bytes of activations forward saves for backward, marked if they depend on guesses."""
    return f"saves {guesses.marked_bytes(activations)}" if activations else "saves nothing"


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
