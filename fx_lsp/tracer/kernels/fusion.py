"""Show which operations share a kernel, here and in Inductor, and why neighbouring kernels are not one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fx_lsp.choices import NO_KERNELS
from fx_lsp.codegen.graph.query import is_empty, is_view
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.text import size_text
from fx_lsp.codegen.schedule.fusion import FusionGroup
from fx_lsp.codegen.schedule.members import computed_by, read_by, written_by
from fx_lsp.codegen.schedule.not_fused import NotFused
from fx_lsp.codegen.triton.program import Program
from fx_lsp.messages.fusion import WHY_NOT_FUSED, dimensions_text
from fx_lsp.model import Node, Stage
from fx_lsp.tracer.capture.graphs import Names, stage_of
from fx_lsp.tracer.compat import sympy
from fx_lsp.tracer.kernels.subject import tuple_text
from fx_lsp.tracer.kernels.triton import kernels
from fx_lsp.tracer.passes.inductor_kernels import inductor_plans
from fx_lsp.tracer.stages.kernel_plan import KernelGap, KernelPlan, PlannedKernel, plan_data, plan_stage
from fx_lsp.tracer.stages.ledger import Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

FUSION = "fusion"
"""The stage with the kernels of fx-lsp, and the work that produces it."""
INDUCTOR = "fusion:inductor"
"""The stage with the kernels of Inductor."""
DATA = "fusion:json"
"""The stage with both as JSON."""


def fusion(traced: TracedCall) -> Ledger:
    """Return a page on the kernels of fx-lsp for a target, one on those of Inductor, and the data of both."""
    ledger = Ledger()
    ours, notes = list[KernelPlan](), list[str]()
    try:
        ours = own_plans(traced)
    except ValueError as error:
        notes.append(str(error))
    theirs = inductor_plans(traced)
    ledger.add(plan_stage(FUSION, ours, notes), "kernels of fx-lsp, and why neighbours are not one")
    ledger.add(plan_stage(INDUCTOR, theirs.plans, theirs.notes), "kernels of Inductor, and why neighbours are not one")
    nodes: list[Node] = []
    data = {
        "fx-lsp": {"notes": notes, "graphs": [plan_data(plan, nodes) for plan in ours]},
        "inductor": {"notes": theirs.notes, "graphs": [plan_data(plan, nodes) for plan in theirs.plans]},
    }
    ledger.add(Stage(DATA, tuple(nodes), json.dumps(data)), "the same as JSON")
    return ledger


def own_plans(traced: TracedCall) -> list[KernelPlan]:
    """Return the kernels that fx-lsp generates for each graph of a target. Raises ValueError if there cannot be any."""
    file = kernels(replace(traced, options={**traced.options, "inductor": NO_KERNELS}))
    titles = ("forward", "backward") if len(file.graphs) > 1 else ("inference",)
    return [
        KernelPlan(f"fx-lsp, {title}", _Planner(program, file.names, _nodes_by_name(graph, file.names)).kernels())
        for title, program, graph in zip(titles, file.generated.programs, file.graphs, strict=True)
    ]


def _nodes_by_name(graph: fx.Graph, names: Names) -> dict[str, Node]:
    return {node.name: shown for node, shown in zip(graph.nodes, stage_of("", graph, names).nodes, strict=True)}


@dataclass(frozen=True)
class _Planner:
    """Describe the kernels of a program; `shown` are the nodes of its graph by the name that torch has for them."""

    program: Program
    names: Names
    shown: Mapping[str, Node]

    def kernels(self) -> tuple[PlannedKernel, ...]:
        """Return the kernels and calls in order."""
        schedule = self.program.schedule
        assert schedule is not None
        launched = [i for i, step in enumerate(schedule.steps) if i in self.program.kernel_names or _is_called(step)]
        numbers = {step: number for number, step in enumerate(launched, start=1)}
        planned: list[PlannedKernel] = []
        written = {i: written_by(schedule, i) for i in launched}
        for previous, later in zip([None, *launched[:-1]], launched, strict=True):
            read = read_by(schedule, later)
            earlier = [i for i in launched if i < later and (i == previous or not written[i].isdisjoint(read))]
            gaps = [KernelGap(numbers[i], *self._explained(schedule.not_fused(i, later))) for i in earlier]
            step = schedule.steps[later]
            template = not isinstance(step, FusionGroup) and facts_of(step).template is not None
            kind = "template" if template else "kernel" if isinstance(step, FusionGroup) else "call"
            nodes = [self.shown[n.name] for n in computed_by(schedule, later)]
            planned.append(PlannedKernel(kind, tuple(nodes), tuple(gaps), self.program.kernel_names.get(later, "")))
        return tuple(planned)

    def _explained(self, reason: NotFused) -> tuple[Any, str]:
        """Return the kind of a reason, and its sentence."""
        fields: dict[str, object] = {"why": reason.why}
        for name, node in zip(("first", "second"), reason.nodes, strict=False):
            fields[name] = self.names[node]
        sizes = reason.sizes
        if reason.kind in ("reductions", "ends"):
            for name, (shape, dims) in zip(
                ("first", "second"), zip(sizes[::2], sizes[1::2], strict=True), strict=False
            ):
                fields |= {f"{name}_size": _size_text(shape), f"{name}_dims": dimensions_text(dims)}
        elif reason.kind == "row":
            fields |= {"first_size": size_text(sizes[0][0]), "second_size": sizes[1][0]}
        elif reason.kind == "sizes":
            fields |= {"first_size": _size_text(sizes[0]), "second_size": _size_text(sizes[1])}
        sentence = WHY_NOT_FUSED[reason.kind].format(**fields)
        called = {call.node: call.reason for call in self.program.calls}
        because = called.get(reason.nodes[0]) if reason.kind == "call" else None
        return reason.kind, f"{sentence}: {because}" if because else sentence


def _is_called(step: FusionGroup | fx.Node) -> bool:
    """Return True for a step that PyTorch computes."""
    if isinstance(step, FusionGroup) or is_empty(step) or is_view(step):
        return False
    value = step.meta.get("val")
    return any(isinstance(v, torch.Tensor) for v in (value if isinstance(value, (tuple, list)) else [value]))


def _size_text(sizes: tuple[Any, ...]) -> str:
    return tuple_text([size_text(sympy.sympify(size)) for size in sizes])
