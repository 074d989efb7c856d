"""Compare partitioners: the values that each saves between forward and backward, and its recomputed operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fx_lsp.model import Saved
from fx_lsp.tracer.capture.aot import CaptureOptions, capture, saved_nodes
from fx_lsp.tracer.capture.graphs import Names, saved_values, stage_of
from fx_lsp.tracer.compat import default_partition, memory_budget, min_cut_partition
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.passes.pass_graphs import copied_module
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.stages.ledger import Ledger, page

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

BUDGETS = (0.0, 0.25, 0.5, 0.75, 1.0)
MIN_CUT = "min-cut"
_WIDTH = 110
_SHOWN = 60
_COLUMNS = ("partitioner", "ops forward", "ops backward", "recomputed", "saved values", "saved bytes", "activations")
_REDRAWN = "unless the backend keeps the seeds, as Inductor does"

Graphs = tuple[fx.GraphModule, fx.GraphModule]


@dataclass(frozen=True)
class Partitioner:
    """Describe a partitioner of joint graphs. `before` is the partitioner that it is compared with, or ""."""

    name: str
    title: str
    run: Callable[..., Graphs]
    before: str = ""


@dataclass(frozen=True)
class Cut:
    """Hold the graphs of a partitioner, and their cost.

    `names` are those of the nodes of both. `recomputed` are the operations of backward that are in forward as well,
    `redrawn` those of them that compute other random values the second time, unless the backend prevents it.
    """

    by: Partitioner
    forward: fx.GraphModule
    backward: fx.GraphModule
    names: tuple[Names, Names]
    saved: tuple[Saved, ...]
    recomputed: tuple[str, ...]
    redrawn: tuple[str, ...]

    @property
    def saved_bytes(self) -> int:
        """Return the bytes of all saved values, including inputs and parameters."""
        return sum(s.bytes for s in self.saved)


@dataclass(frozen=True)
class FailedCut:
    """Hold a partitioner that could not cut the graph, and the reason."""

    by: Partitioner
    why: str


def partitions(traced: TracedCall) -> Ledger:
    """Return a table of the partitioners, and the graphs of each.

    Raises ValueError for budgets that are not numbers from 0 to 1.
    """
    partitioners = [_default(), min_cut(), *(_budget(b) for b in budgets_of(traced.options.get("budgets", "")))]
    ledger = Ledger()
    title = "partitioners side by side"
    if traced.captured.inference is not None:
        ledger.text("table", title, _nothing_to_cut(traced))
        return ledger
    cuts = cut(traced, partitioners, traced.new_names())
    ledger.text("table", title, table(cuts))
    add_graphs(ledger, cuts)
    return ledger


def budgets_of(text: str) -> Sequence[float]:
    """Return the numbers of `0.1,0.5`, each once; the default ones for "". Raises ValueError for any not from
    0 to 1.
    """
    if not text:
        return BUDGETS
    try:
        budgets = [float(part) for part in text.split(",")]
    except ValueError:
        budgets = [-1.0]
    if not all(0 <= budget <= 1 for budget in budgets):
        raise ValueError(f"budgets must be numbers from 0 to 1, as in 0.1,0.5, not {text!r}")
    return list(dict.fromkeys(budgets))


def min_cut() -> Partitioner:
    """Return the partitioner of `torch.compile`, with its current settings."""
    return Partitioner(MIN_CUT, "min-cut partition", min_cut_partition, "default")


def _default() -> Partitioner:
    return Partitioner("default", "default partition: forward as written", default_partition)


def _budget(budget: float) -> Partitioner:
    def run(joint: fx.GraphModule, inputs: Any, **options: Any) -> Graphs:
        with memory_budget(budget):
            return min_cut_partition(joint, inputs, **options)

    text = f"{budget:g}"
    name = f"budget-{text.replace('.', '_')}"  # the title of a view ends its name at a dot
    return Partitioner(name, f"min-cut partition, activation_memory_budget={text}", run, MIN_CUT)


def cut(traced: TracedCall, partitioners: Sequence[Partitioner], names: Names) -> list[Cut | FailedCut]:
    """Cut the joint graph of a target with a backward by each partitioner; `names` are new."""
    cuts: list[Cut | FailedCut] = []

    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> Graphs:
        values = {n.name: n.meta.get("val") for n in joint.graph.nodes}

        def names_of(module: fx.GraphModule) -> Names:
            """Name its nodes: a node added by a partitioner may have the name of another one of the joint graph."""
            same = (n.name for n in module.graph.nodes if values.get(n.name) is n.meta.get("val"))
            return names.of_copy({name: name for name in same})

        for by in partitioners:
            try:
                forward, backward = by.run(copied_module(joint), inputs, **options)
            except Exception as error:
                cuts.append(FailedCut(by, sentence(error)))
                continue
            saved = saved_nodes(forward, options["num_fwd_outputs"])
            cuts.append(_measured(by, forward, backward, saved, (names_of(forward), names_of(backward))))
        last = next((c for c in reversed(cuts) if isinstance(c, Cut)), None)
        return (last.forward, last.backward) if last is not None else min_cut_partition(joint, inputs, **options)

    with forbid_effects():
        how = CaptureOptions(symbolic=traced.symbolic, partition_fn=partition)
        capture(traced.call, traced.sources, names, how)
    return cuts


def _measured(
    by: Partitioner,
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    saved: list[fx.Node],
    names: tuple[Names, Names],
) -> Cut:
    first = {n.name: n.target for n in _operations(forward)}
    again = [n for n in _operations(backward) if first.get(n.name) == n.target or _with_state(n)]
    redrawn = tuple(names[1][n] for n in again if n.users and _is_random(n))
    values = tuple(saved_values(saved, backward, names[0]))
    return Cut(by, forward, backward, names, values, tuple(names[1][n] for n in again), redrawn)


def _with_state(node: fx.Node) -> bool:
    """Return True for a random operation that runs again with the generator's state of forward."""
    return "run_with_rng_state" in getattr(node.target, "__name__", "")


def _is_random(node: fx.Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _operations(module: fx.GraphModule) -> Iterable[fx.Node]:
    return (n for n in module.graph.nodes if n.op.startswith("call_") and n.target is not operator.getitem)


def add_graphs(ledger: Ledger, cuts: Sequence[Cut | FailedCut]) -> None:
    """Add forward and backward of every cut as stages, each after the one that it is compared with."""
    names_of_cuts = {c.by.name for c in cuts if isinstance(c, Cut)}
    for item in cuts:
        if isinstance(item, FailedCut):
            ledger.text(item.by.name, item.by.title, note=f"it cannot be partitioned this way: {item.why}")
            continue
        before = item.by.before if item.by.before in names_of_cuts else ""
        computed = {n.name for n in item.forward.graph.nodes if n.op == "call_function"}
        parts = ("forward", item.forward, None), ("backward", item.backward, computed)
        for (part, module, forward_ops), names in zip(parts, item.names, strict=True):
            stage = stage_of(f"{item.by.name}:{part}", module.graph, names, forward_ops)
            ledger.add(stage, f"{item.by.title}, {part}", f"{before}:{part}" if before else "")


def table(cuts: Sequence[Cut | FailedCut], against: str = MIN_CUT) -> str:
    """Return a table with a row for each partitioner, then the differences of each from `against`."""
    base = next((c for c in cuts if isinstance(c, Cut) and c.by.name == against), None)
    rows = [[*_COLUMNS, f"against {against}"], *(_row(item, base) for item in cuts if isinstance(item, Cut))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in rows
    ]
    lines += ["", "Saved bytes count all values that forward saves for backward; activations are the ones"]
    lines += ["that are neither inputs nor parameters nor buffers."]
    for item in cuts:
        if isinstance(item, FailedCut):
            lines += ["", item.by.name, *_wrapped("cannot cut it", item.why.split())]
        elif base is not None and item is not base:
            lines += ["", f"{item.by.name}, against {against}", *(difference(item, base) or ["  the same"])]
    return page(lines)


def _row(item: Cut, base: Cut | None) -> list[str]:
    ops = [len(list(_operations(module))) for module in (item.forward, item.backward)]
    activations = sum(s.bytes for s in item.saved if s.kind == "activation")
    numbers = [*ops, len(item.recomputed), len(item.saved), item.saved_bytes, activations]
    more = "" if base is None or item is base else f"{item.saved_bytes - base.saved_bytes:+,}"
    return [item.by.name, *(f"{number:,}" for number in numbers), more]


def difference(item: Cut, base: Cut) -> list[str]:
    """Return the values that only one of two cuts saves, and the operations that only one recomputes."""
    saved, kept = ({s.name: f"{s.name} {s.spec}" for s in c.saved} for c in (item, base))
    parts = {
        "saves instead": [text for name, text in saved.items() if name not in kept],
        "does not save": [text for name, text in kept.items() if name not in saved],
        "recomputes": [name for name in item.recomputed if name not in base.recomputed],
        "does not recompute": [name for name in base.recomputed if name not in item.recomputed],
        "draws random values again": [*item.redrawn, _REDRAWN] if item.redrawn else [],
    }
    return [line for label, items in parts.items() for line in _listed(label, items)]


def _listed(label: str, items: list[str]) -> list[str]:
    more = [f"and {len(items) - _SHOWN:,} more"] if len(items) > _SHOWN else []
    shown = [*items[:_SHOWN], *more]
    return _wrapped(label, [f"{item}," for item in shown[:-1]] + shown[-1:])


def _wrapped(label: str, pieces: list[str]) -> list[str]:
    """Return labelled pieces of text, wrapped into lines between pieces."""
    lines: list[str] = []
    for piece in pieces:
        if lines and len(lines[-1]) + len(piece) < _WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"  {'' if lines else label:<20}{piece}")
    return lines


def _nothing_to_cut(traced: TracedCall) -> str:
    reasons = traced.captured.notes or ("No output can be differentiated with respect to an input.",)
    text = f"There is nothing to partition: {traced.request.name} has no backward graph."
    return page([text, *reasons])
