"""Find the first pass of the compiler, and the first node, that changes a number by more than rounding."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import fx

from fx_lsp.model import Stage, StageInfo
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.passes.generated_code import run_generated
from fx_lsp.tracer.passes.pass_graphs import pass_graph
from fx_lsp.tracer.passes.pipeline import add_compiled_stages
from fx_lsp.tracer.passes.user_pass import run_pass_with
from fx_lsp.tracer.stages.ledger import Heading, Lane, Ledger, Origins, page
from fx_lsp.tracer.stages.node_values import (
    Difference,
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

DIVERGE = "diverge"
"""The stage that is the page on differences; its data is in `DATA`."""
DATA = "diverge:json"

_HEAD = ("graph", "compared with", "values", "differ", "first node")


@dataclass(frozen=True)
class ComparedStage:
    """Hold the comparison of the graph of a stage with that of another one; or why it was not compared.

    For code that is generated from the graph `before`, `stage` says which code that is.
    """

    stage: str
    before: str
    comparison: NodeComparison = field(default_factory=NodeComparison)
    trouble: str = ""
    is_code: bool = False

    @property
    def graph(self) -> str:
        """Return the stage that has its nodes."""
        return self.before if self.is_code else self.stage


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
    data = [_data(ledger, row) for row in ledger.rows]
    notes = [line for info in ledger.infos if info.note for line in ("", f"{info.name}: {info.note}")]
    for row in ledger.rows:
        mark = f"differs in {row.stage}" if row.is_code else f"differs from {row.before}"
        ledger.mark(row.graph, ((name, mark) for name in row.comparison.wrong))
    ledger.text(DIVERGE, "where numbers differ by more than rounding", page([*_page(data), *notes]))
    ledger.text(DATA, "the same as JSON", json.dumps(data))
    return ledger


def _eager(traced: TracedCall, pool: InputPool) -> Basis:
    stage = traced.stages[0].name
    graph = pass_graph(traced, stage)
    return Basis(stage, run_nodes(graph.module.graph, graph.names, pool))


def _data(ledger: ComparingLedger, row: ComparedStage) -> dict[str, Any]:
    """Return a row as data: JSON has no infinite numbers, so these are text."""
    comparison = row.comparison
    stage = next(s for s in ledger.stages if s.name == row.graph)
    inputs = {n.name for n in stage.nodes if n.op == "placeholder"}
    data: dict[str, Any] = {
        "stage": row.stage,
        "before": row.before,
        "compared": len(comparison.differences.keys() - inputs),
        "differ": len(comparison.wrong),
        "random": comparison.left_out,
        "trouble": row.trouble,
        "first": None,
    }
    if comparison.first:
        data["first"] = _first(stage, comparison)
    return data


def _first(stage: Stage, comparison: NodeComparison) -> dict[str, Any]:
    node = next(n for n in stage.nodes if n.name == comparison.first)
    inputs = [{"name": n, **_numbers(comparison.differences.get(n))} for n in dict.fromkeys(node.inputs)]
    return {
        "node": node.name,
        "code": f"{node.name}: {node.spec} = {node.target}({', '.join(node.args)})",
        "file": node.span.file if node.span else "",
        "line": node.span.line if node.span else 0,
        **_numbers(comparison.differences[node.name]),
        "inputs": inputs,
    }


def _numbers(difference: Difference | None) -> dict[str, Any]:
    if difference is None:
        return {"compared": False}
    numbers = asdict(difference).items()
    return {"compared": True, **{k: str(v) if v in (math.inf, -math.inf) else v for k, v in numbers}}


def _page(data: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page: the first difference, a table of all graphs, and the other differences."""
    differing = [row for row in data if row["first"]]
    if differing:
        yield from _told(differing[0], "The first difference")
    else:
        compared = sum(not row["trouble"] for row in data)
        yield f"No result differs by more than rounding, on random inputs: {compared} of {len(data)} graphs compared."
    yield ""
    widths = [max(map(len, column)) for column in zip(_HEAD, *map(_row, data), strict=True)]
    for row in (_HEAD, *map(_row, data)):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    drawn = sum(row["random"] for row in data)
    if drawn:
        yield ""
        yield f"Left out, as they are computed from random numbers that the graphs draw in other ways: {drawn} values."
    for row in data:
        if row["trouble"]:
            yield ""
            yield f"{row['stage']} was not compared: {row['trouble']}."
    for row in differing[1:]:
        yield ""
        yield from _told(row, "Another one")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    if row["trouble"]:
        return row["stage"], row["before"], "–", "–", ""
    inside = "(no result differs)" if row["differ"] and not row["first"] else ""
    first = row["first"]["node"] if row["first"] else inside
    return row["stage"], row["before"], str(row["compared"]), str(row["differ"]), first


def _told(row: dict[str, Any], title: str) -> Iterator[str]:
    first = row["first"]
    yield f"{title}: in {row['stage']}, {first['node']} is not as in {row['before']}."
    if first["file"]:
        yield f"  {Path(first['file']).name}:{first['line']}"
    yield f"  {first['code']}"
    if first["index"]:
        exact = f", {first['exact']} in float64" if first["exact"] else ""
        yield f"  at {first['index']}: {first['here']}, before {first['before']}{exact}"
        yield f"  absolute error {_short(first['absolute'])}, relative error {_short(first['relative'])}"
        yield f"  rounding before, against float64: {_short(first['rounding'])}"
    else:
        yield f"  {first['here']}, before {first['before']}"
    for item in first["inputs"]:
        yield f"  its input {item['name']}: {_verdict(item)}"


def _verdict(item: dict[str, Any]) -> str:
    if not item["compared"]:
        return "not compared"
    error = f"relative error {_short(item['relative'])}"
    return f"differs, {error}" if item["wrong"] else f"agrees, {error}"


def _short(number: float | str) -> str:
    return number if isinstance(number, str) else f"{number:.2g}"
