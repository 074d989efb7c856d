"""Build pages on AOTAutograd and fake tensors behind a target's graphs, for debugging these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import fx

from fx_lsp.model import Stage
from fx_lsp.tracer.analyses.aliasing import watched_metadata
from fx_lsp.tracer.analyses.cross_reference import cross_reference
from fx_lsp.tracer.capture.aot import CaptureOptions, capture, capture_what_is_possible
from fx_lsp.tracer.capture.decompositions import find_table
from fx_lsp.tracer.capture.graphs import stage_of
from fx_lsp.tracer.compat import without_functionalization
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.passes.pass_graphs import pass_graph
from fx_lsp.tracer.passes.pipeline import add_traced_stages
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.stages.ledger import Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall


class _JointCaptured(BaseException):
    """Leaves AOTAutograd once the joint graph is captured."""


def debug(traced: TracedCall) -> Ledger:
    """Return the graph without functionalization, with it and in core operations; pages on aliases and real tensors."""
    ledger = Ledger()
    both = traced.captured.inference is None
    whole_graph = "forward and backward in one graph" if both else "the graph"
    options = without_functionalization()
    title = f"AOTAutograd without functionalization: {whole_graph}, with views and in-place operations"
    if options is None:
        ledger.text("unfunctionalized", title, note="this version of torch always functionalizes")
    else:
        _add(ledger, "unfunctionalized", title, lambda name: graph_of(traced, name, options=options))
    add_traced_stages(ledger, traced)
    whole = "joint" if both else "inference"
    table = find_table("core")
    title = f"AOTAutograd with the decompositions of core ATen ({len(table):,} operations): {whole_graph}"
    _add(ledger, "core", title, lambda name: graph_of(traced, name, table), whole)
    title = "AOTAutograd: mutations and aliases (ViewAndMutationMeta)"
    _add(ledger, "aliasing", title, lambda name: _aliasing(traced, name))
    _add(ledger, "crossref", "fake tensors against real ones, node by node", lambda name: _crossref(traced, name))
    return ledger


def graph_of(
    traced: TracedCall,
    name: str,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Stage:
    """Return the whole graph of a target, joint or for inference. Raises the errors of its capture."""
    both, names = traced.captured.inference is None, traced.new_names()
    seen: list[Stage] = []

    def partition(joint: fx.GraphModule, inputs: Any, **_: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        seen.append(stage_of(name, joint.graph, names))
        raise _JointCaptured

    try:
        with forbid_effects():
            how = CaptureOptions(both, traced.symbolic, decompositions, partition, others=options)
            captured = capture(traced.call, traced.sources, names, how)
    except _JointCaptured:
        return seen[0]
    assert captured.inference is not None
    return stage_of(name, captured.inference.graph, names)


def _aliasing(traced: TracedCall, name: str) -> Stage:
    with forbid_effects(), watched_metadata() as seen:
        captured = capture_what_is_possible(traced.call, traced.sources, traced.new_names, traced.symbolic)
    assert captured.names is not None
    return Stage(name, text=seen.page(captured.inputs, captured.names.output_labels(captured.outputs)))


def _crossref(traced: TracedCall, name: str) -> Stage:
    inference = pass_graph(traced, "inference")
    return Stage(name, text=cross_reference(inference.module, inference.names))


def _add(ledger: Ledger, name: str, title: str, make: Callable[[str], Stage], before: str = "") -> None:
    """Add a stage, or the reason for its failure."""
    try:
        ledger.add(make(name), title, before)
    except (Exception, EffectBlocked) as error:
        ledger.text(name, title, note=sentence(error))
