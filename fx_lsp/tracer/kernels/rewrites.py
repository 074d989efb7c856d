"""Show the graphs of a target on their way to kernels, after each rewrite that changed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import fx

from fx_lsp.codegen.ir.node_facts import NodeFacts, facts_of
from fx_lsp.codegen.pipeline import REWRITES, Graphs, Rewrite, finish
from fx_lsp.model import Change, StageInfo
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.kernels.subject import results_of
from fx_lsp.tracer.kernels.triton import captured_graphs, deep_recursion
from fx_lsp.tracer.stages.ledger import Heading, Lane, Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

Mark: TypeAlias = "tuple[Any, NodeFacts]"
"""The mark of a node for partitioners and later rewrites."""


def rewrites(traced: TracedCall) -> Ledger:
    """Run the pipeline on a target: each rewrite is a stage, `joint_merge_views`, with its graph if it changed. Raises
    ValueError if there cannot be any kernels.
    """
    record = _Record(traced.new_names())
    with deep_recursion():
        captured, graphs = captured_graphs(traced, record.names, record.watch)
        forward = graphs.forward or graphs.joint
        assert forward is not None
        results = results_of(captured, forward)
        finish(graphs, results.total, results.tangents)
    record.add_idle(graphs)
    return record.ledger


@dataclass
class _Record:
    """Hold a ledger of the pipeline: a lane for each graph, and the marks in them before the running rewrite."""

    names: Names
    ledger: Ledger = field(default_factory=Ledger)
    lanes: dict[fx.Graph, Lane] = field(default_factory=dict[fx.Graph, Lane])
    marks: dict[fx.Node, Mark] = field(default_factory=dict[fx.Node, "Mark"])

    def watch(self, rewrite: Rewrite, graphs: Graphs, broken: Sequence[str] | None) -> None:
        """Record the graphs of a rewrite, before it runs and afterwards."""
        present = graphs.of(rewrite)
        if broken is None:
            for name, graph in present.items():
                if graph not in self.lanes:
                    stage = "inference" if graphs.call is None else name
                    self.lanes[graph] = self.ledger.begin(Heading(stage, "the traced graph"), graph, self.names.copy())
            self.marks = _marks(present)
            return
        for name, graph in present.items():
            heading = Heading(_stage(rewrite, name), _title(rewrite))
            if graph in self.lanes:
                self.ledger.step(self.lanes[graph], heading, graph)
                continue
            before = self.lanes[graphs.joint].stage if graphs.joint is not None else ""
            self.lanes[graph] = self.ledger.begin(heading, graph, self.names.copy(), before)
        marks = _marks(present)
        marked = sum(marks[node] != earlier for node, earlier in self.marks.items() if node in marks)
        notes = [f"it marks {marked} {'node' if marked == 1 else 'nodes'}"] if marked else []
        if notes or broken:
            self.ledger.infos[-1] = replace(self.ledger.infos[-1], note="; ".join([*notes, *broken]))

    def add_idle(self, graphs: Graphs) -> None:
        """Insert the rewrites that did not run at their places."""
        ran = {info.name: info for info in self.ledger.infos}
        first, *_ = self.ledger.infos
        self.ledger.infos[:] = [first]
        for rewrite in REWRITES:
            why = "no backward graph" if rewrite.applies(graphs.choices) else "other choices"
            for stage in (_stage(rewrite, name) for name in rewrite.graphs):
                idle = StageInfo(stage, 0, 0, _title(rewrite), "", Change(), f"it does not run: {why}")
                self.ledger.infos.append(ran.get(stage, idle))


def _stage(rewrite: Rewrite, graph: str) -> str:
    """Return the name of the stage of a rewrite's graph."""
    which = [graph] if len(rewrite.graphs) > 1 else []
    return "_".join([rewrite.phase, rewrite.name.removeprefix(f"{rewrite.phase}_"), *which])


def _title(rewrite: Rewrite) -> str:
    return f"{rewrite.does} ({rewrite.condition}, {rewrite.file})"


def _marks(graphs: Mapping[str, fx.Graph]) -> dict[fx.Node, Mark]:
    """Return the marks of the nodes of graphs."""
    return {node: (node.meta.get("recompute"), facts_of(node)) for graph in graphs.values() for node in graph.nodes}
