"""List the stages of a target in the compiler's order, under the names used in views."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fx_lsp.tracer.capture.aot import CaptureOptions, capture
from fx_lsp.tracer.capture.decompositions import find_table
from fx_lsp.tracer.capture.torch_graph import named, symbolic_graph
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.passes.inductor import InductorWatch, OnLowered, watch_dynamo, without_dynamo
from fx_lsp.tracer.passes.user_pass import apply_configured
from fx_lsp.tracer.program.devices import left
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.stages.ledger import Heading, Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

_TITLES = {
    "joint": "AOTAutograd: forward and backward in one graph, functionalized",
    "forward": "AOTAutograd: min-cut partition, forward",
    "backward": "AOTAutograd: min-cut partition, backward",
    "inference": "AOTAutograd: the graph, functionalized",
}


def pipeline(traced: TracedCall) -> Ledger:
    """Return every stage of `torch.compile` with Inductor, and with `code` its output code; with `table` those of
    AOTAutograd with a table of decompositions (`core`, or `module.attribute`).

    If Dynamo would break the graph, AOTAutograd traces the Python code itself, with a note.
    """
    table = traced.options.get("table", "inductor")
    if table != "inductor":
        return _decomposed(traced, table)
    ledger = Ledger("check" in traced.options)
    add_compiled_stages(ledger, traced)
    return ledger


def add_traced_stages(ledger: Ledger, traced: TracedCall) -> None:
    """Add the graphs of the trace itself."""
    for stage in traced.stages:
        before = "joint" if stage.name in ("forward", "backward") else ""
        ledger.add(stage, _TITLES[stage.name], before)


def add_compiled_stages(ledger: Ledger, traced: TracedCall, on_lowered: OnLowered | None = None) -> None:
    """Add every stage of `torch.compile`, and of the passes in the project's settings; call `on_lowered` like
    InductorWatch.
    """
    try:
        with forbid_effects():
            module = symbolic_graph(traced.call, traced.mode, traced.sources)
        heading = Heading("torch", "as written: torch.fx.symbolic_trace")
        ledger.begin(heading, module.graph, named(module.graph, (), traced.new_names()))
    except (Exception, EffectBlocked) as error:
        note = f"torch.fx.symbolic_trace cannot trace it: {sentence(error)}"
        ledger.text("torch", "as written: torch.fx.symbolic_trace", note=note)

    def add_traced() -> None:
        add_traced_stages(ledger, traced)

    watch = InductorWatch(ledger, traced, "code" in traced.options, add_traced, on_lowered)
    try:
        with left(traced.devices):
            watch_dynamo(watch)
    except Exception as error:
        note = f"Dynamo cannot capture it as one graph, so AOTAutograd traces the Python code: {sentence(error)}"
        ledger.text("dynamo", "torch.compile: the graph that Dynamo captures", note=note)
        without_dynamo(watch)
    apply_configured(traced, ledger)


def _decomposed(traced: TracedCall, table: str) -> Ledger:
    ledger = Ledger()
    add_traced_stages(ledger, traced)
    differentiate = traced.captured.inference is None
    names, decompositions = traced.new_names(), find_table(table)
    with forbid_effects():
        how = CaptureOptions(differentiate, traced.symbolic, decompositions)
        captured = capture(traced.call, traced.sources, names, how)
    title = f"decompositions: {table} ({len(decompositions):,} operations)"
    if captured.inference is not None:
        ledger.begin(Heading("decomposed", title), captured.inference.graph, names, "inference")
        return ledger
    assert captured.joint is not None and captured.forward is not None and captured.backward is not None
    ledger.add(replace(captured.joint, name="decomposed"), title, "joint")
    for name, part in (("forward", captured.forward), ("backward", captured.backward)):
        ledger.begin(Heading(f"{name}:partition", _TITLES[name]), part.graph, names, "decomposed")
    return ledger
