"""Describe the kernels of a graph in the order of their launches, and why neighbours are not one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fx_lsp.model import Node, Stage, WhyNotFused
from fx_lsp.tracer.stages.ledger import page

_WIDTH = 100

LaunchKind: TypeAlias = Literal["kernel", "template", "call"]

_KINDS: dict[LaunchKind, str] = {"kernel": "kernel", "template": "template kernel", "call": "call of a library"}


@dataclass(frozen=True)
class KernelGap:
    """Hold why a kernel does not compute what the earlier one of a number, from 1, does: a kind, and a sentence."""

    earlier: int
    kind: WhyNotFused
    sentence: str


@dataclass(frozen=True)
class PlannedKernel:
    """Hold a kernel, or a call of a library: its operations, and its gaps to earlier ones, the nearest one last.

    `name` is "" if it is unknown. `gaps` are those to the kernel before, and to those that compute what it reads.
    """

    kind: LaunchKind
    operations: tuple[Node, ...]
    gaps: tuple[KernelGap, ...]
    name: str = ""


@dataclass(frozen=True)
class KernelPlan:
    """Hold the kernels of one graph, in the order of their launches, under a title."""

    title: str
    kernels: tuple[PlannedKernel, ...]


def plan_stage(name: str, plans: Sequence[KernelPlan], notes: Iterable[str] = ()) -> Stage:
    """Return a page with the kernels of several graphs. Each line of an operation has its node as its origin, and each
    line of a kernel the kernel's number: kernels are numbered through all graphs.
    """
    rows: list[tuple[str, Node | None, int]] = [(note, None, 0) for note in notes]
    count = 0
    for plan in plans:
        rows += [("", None, 0)] if rows else []
        rows.append((f"{plan.title}: {_launches(plan)}", None, 0))
        for number, kernel in enumerate(plan.kernels, start=1):
            count += 1
            rows += [("", None, 0), *((f"  not in {gap.earlier}: {gap.sentence}", None, 0) for gap in kernel.gaps)]
            rows.append((_heading(number, kernel), None, count))
            rows += [(f"    {_operation(node)}", node, count) for node in kernel.operations]
    nodes: list[Node] = []
    origins: list[int] = []
    for _, node, _ in rows:
        if node is not None:
            nodes.append(node)
        origins.append(0 if node is None else len(nodes))
    text = page(row for row, _, _ in rows)
    return Stage(name, tuple(nodes), text, tuple(origins), tuple(number for _, _, number in rows))


def plan_data(plan: KernelPlan, nodes: list[Node]) -> dict[str, Any]:
    """Return the kernels of a graph as JSON. Operations are indices of nodes, which are appended to `nodes`."""

    def index(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    return {
        "graph": plan.title,
        "kernels": [
            {
                "number": number,
                "kind": kernel.kind,
                "name": kernel.name,
                "operations": [index(node) for node in kernel.operations],
                "not_fused": [{"with": gap.earlier, "kind": gap.kind, "reason": gap.sentence} for gap in kernel.gaps],
            }
            for number, kernel in enumerate(plan.kernels, start=1)
        ],
    }


def _launches(plan: KernelPlan) -> str:
    calls = sum(kernel.kind == "call" for kernel in plan.kernels)
    kernels = len(plan.kernels) - calls
    parts = [f"{kernels} kernel{'' if kernels == 1 else 's'}"] if kernels or not calls else []
    parts += [f"{calls} call{'' if calls == 1 else 's'} of a library"] if calls else []
    return " and ".join(parts)


def _heading(number: int, kernel: PlannedKernel) -> str:
    return f"{number}. {_KINDS[kernel.kind]} {kernel.name}".rstrip()


def _operation(node: Node) -> str:
    """Return an operation with its place in the form that is updated when lines move."""
    text = f"{node.name} = {node.target}({', '.join(node.args)})"
    text = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
    return f"{Path(node.span.file).name}:{node.span.line}  {text}" if node.span is not None else text
