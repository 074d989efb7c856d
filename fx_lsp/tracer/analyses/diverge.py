"""Find the first pass of the compiler, and the first node, that changes a number by more than rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import fx

from fx_lsp.model import StageInfo
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.passes.generated_code import run_generated
from fx_lsp.tracer.passes.pass_graphs import pass_graph
from fx_lsp.tracer.passes.pipeline import add_compiled_stages
from fx_lsp.tracer.passes.user_pass import run_pass_with
from fx_lsp.tracer.stages.differences import ComparedStage, add_differences
from fx_lsp.tracer.stages.ledger import Heading, Lane, Ledger, Origins
from fx_lsp.tracer.stages.node_values import (
    InputPool,
    NodeComparison,
    NodeRun,
    Relation,
    compare_nodes,
    other_inputs,
    run_nodes,
)

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall


@dataclass(frozen=True)
class Basis:
    """Hold the run that later graphs are compared with, and its stage."""

    stage: str
    run: NodeRun


@dataclass
class ComparingLedger(Ledger):
    """Compare the values of each new or changed graph with those of the graph that it comes from.

    `eager` is the run of the ATen graph of the code. `bases` has what a graph is compared with, by the last stage of
    its lane. After a difference, the changed graph is the basis, so that a later pass is not blamed for it.
    """

    eager: Basis | None = None
    pool: InputPool = field(default_factory=InputPool)
    bases: dict[str, Basis] = field(default_factory=dict[str, Basis])
    rows: list[ComparedStage] = field(default_factory=list[ComparedStage])

    def begin(self, heading: Heading, graph: fx.Graph, names: Names, before: str = "") -> Lane:
        lane = super().begin(heading, graph, names, before)
        basis = self.bases.get(before)
        run = run_nodes(graph, names, self.pool, basis.run if basis else None)
        if basis is None and self.eager is not None:
            self._compare(lane.stage, run, self.eager, "recaptured")
        elif basis is not None:
            self._compare(lane.stage, run, basis, "part")
        inherited = basis is not None and self._agrees(lane.stage)
        self.bases[lane.stage] = basis if inherited and basis is not None else Basis(lane.stage, run)
        return lane

    def step(self, lane: Lane, heading: Heading, graph: fx.Graph, origins: Origins | None = None) -> StageInfo:
        basis = self.bases[lane.stage]
        info = super().step(lane, heading, graph, origins)
        if not info.change or heading.note:
            self.bases[lane.stage] = basis
            return info
        run = run_nodes(graph, lane.names, self.pool, basis.run)
        self._compare(info.name, run, basis, "rewritten")
        self.bases[info.name] = basis if self._agrees(info.name) else Basis(info.name, run)
        return info

    def lay_out(self, lane: Lane, heading: Heading, graph: fx.Graph) -> None:
        basis = self.bases[lane.stage]
        super().lay_out(lane, heading, graph)
        self.bases[lane.stage] = basis

    def run_code(self, lane: Lane, prefix: str, lowering: Any, load: Callable[[Any], Any]) -> None:
        """Compare the code that Inductor generates for the graph of a lane with a run of that graph."""
        graph = lowering.module.graph
        before = run_nodes(graph, lane.names, self.pool, self.bases[lane.stage].run)
        run = run_generated(lowering, load, graph, lane.names, (self.pool, before))
        comparison = NodeComparison() if run.trouble else compare_nodes(run, before, "part")
        self.rows.append(ComparedStage(f"inductor {prefix}, on the CPU", lane.stage, comparison, run.trouble, True))

    def _agrees(self, stage: str) -> bool:
        row = self.rows[-1] if self.rows else None
        return row is None or row.stage != stage or bool(row.trouble) or not row.comparison.first

    def _compare(self, stage: str, run: NodeRun, basis: Basis, relation: Relation) -> None:
        trouble = run.trouble or (basis.run.trouble and f"{basis.stage} was not run: {basis.run.trouble}")
        others = other_inputs(run, basis.run) if relation == "recaptured" and not trouble else []
        if others:
            trouble = f"it names an input {others[0]}, which {basis.stage} does not"
        comparison = NodeComparison() if trouble else compare_nodes(run, basis.run, relation)
        self.rows.append(ComparedStage(stage, basis.stage, comparison, trouble))


def diverge(traced: TracedCall) -> Ledger:
    """Return the stages of the compiler, or with `pass` those of a user's pass, and a page on where numbers differ.

    With `inductor`, the code that Inductor generates for the CPU is also compared.
    """
    if "pass" in traced.options:
        ledger = run_pass_with(traced, ComparingLedger)
    else:
        pool = InputPool()
        ledger = ComparingLedger(eager=_eager(traced, pool), pool=pool)
        add_compiled_stages(ledger, traced, ledger.run_code if "inductor" in traced.options else None)
    assert isinstance(ledger, ComparingLedger)
    add_differences(ledger, ledger.rows)
    return ledger


def _eager(traced: TracedCall, pool: InputPool) -> Basis:
    stage = traced.stages[0].name
    graph = pass_graph(traced, stage)
    return Basis(stage, run_nodes(graph.module.graph, graph.names, pool))
