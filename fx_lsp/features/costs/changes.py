"""Compare the costs of a target before and after a change of the code, and name the lines that a difference is from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from fx_lsp.features.costs.operations import format_flops
from fx_lsp.features.costs.summary import Place, summary_of
from fx_lsp.features.wording.problems import Problem
from fx_lsp.features.wording.text import basename, format_bytes
from fx_lsp.model import Budgeted, FindingCode, Stage, Target, Trace

MAX_LINES = 3
"""The most lines that are named for one cost over its budget."""


class CostKind(NamedTuple):
    """Describe a cost: its name for people, its numbers as text, and whether it is a small number of things."""

    title: str
    shown: Callable[[int], str]
    is_count: bool = False


COSTS: Mapping[Budgeted, CostKind] = {
    "graph-breaks": CostKind("graph breaks", "{:,}".format, is_count=True),
    "recompilations": CostKind("recompilations", "{:,}".format, is_count=True),
    "host-syncs": CostKind("host syncs", "{:,}".format, is_count=True),
    "saved": CostKind("saved for backward", format_bytes),
    "peak": CostKind("peak of activations", format_bytes),
    "flops": CostKind("floating-point operations", format_flops),
    "moved": CostKind("read and written", format_bytes),
    "operations": CostKind("operations", "{:,}".format, is_count=True),
}
"""The costs of a target in the order of a report: sizes in bytes, other costs as numbers."""
_OF_FINDINGS: Mapping[Budgeted, FindingCode] = {"recompilations": "recompile", "host-syncs": "host-sync"}


@dataclass(frozen=True)
class TargetCosts:
    """Hold the costs of a target: the `amounts` of the whole, and the part of each line in them. `inputs` are the specs
    that it was traced with, by name.
    """

    amounts: Mapping[Budgeted, int]
    lines: Mapping[Budgeted, Mapping[Place, int]]
    inputs: Mapping[str, str]


class CostPlace(NamedTuple):
    """Locate a part of a difference: a line of the code as it is, or `is_removed`, of the code before the change."""

    file: str
    line: int
    is_removed: bool = False


@dataclass(frozen=True)
class CostChange:
    """Hold a cost that differs, and the lines that cost more (or less, if the whole does), the largest part first."""

    cost: Budgeted
    before: int
    after: int
    places: tuple[CostPlace, ...]


@dataclass(frozen=True)
class ChangedTarget:
    """Hold a target whose costs differ. `inputs` are the specs that differ as well, before and after, by name: the
    costs are then those of different calls.
    """

    target: str
    changes: tuple[CostChange, ...]
    inputs: Mapping[str, tuple[str, str]]


def costs_of(trace: Trace, stages: Sequence[Stage], breaks: Trace | None) -> TargetCosts:
    """Return the costs of a traced target with the stages of its summary; graph breaks are those of a trace by
    `torch.compile`, if there is one.
    """
    summary = summary_of(trace, stages)
    totals, peak = summary.totals, summary.peak
    amounts: dict[Budgeted, int] = {
        "saved": trace.activation_bytes,
        "peak": 0 if peak is None else peak.bytes,
        "flops": totals.flops.sum,
        "moved": totals.moved_bytes.sum,
        "operations": totals.ops.sum,
    }
    rows = [((row.span.file, row.span.line), row.totals) for row in summary.lines]
    lines: dict[Budgeted, Mapping[Place, int]] = {
        "saved": {place: total.saved_bytes for place, total in rows},
        "peak": {} if peak is None or peak.span is None else {(peak.span.file, peak.span.line): peak.bytes},
        "flops": {place: total.flops.sum for place, total in rows},
        "moved": {place: total.moved_bytes.sum for place, total in rows},
        "operations": {place: total.ops.sum for place, total in rows},
    }
    for cost, code in _OF_FINDINGS.items():
        lines[cost] = _places(trace, code)
    if breaks is not None:
        lines["graph-breaks"] = _places(breaks, "graph-break")
    amounts |= {cost: sum(places.values()) for cost, places in lines.items() if cost not in amounts}
    return TargetCosts(amounts, lines, {item.name: item.spec for item in trace.inputs})


def _places(trace: Trace, code: FindingCode) -> Counter[Place]:
    return Counter((r.span.file, r.span.line) for r in trace.remarks if r.code == code and r.span is not None)


def over_budget(target: Target, costs: TargetCosts, budget: Mapping[Budgeted, int]) -> Iterator[Problem]:
    """Yield a problem for each cost of a target that exceeds its budget, with the lines that cost most."""
    for name, most in budget.items():
        places, amount = Counter(costs.lines.get(name, {})), costs.amounts.get(name, 0)
        if amount > most:
            title, shown, _ = COSTS[name]
            lines = ", ".join(f"{basename(file)}:{line}" for (file, line), _ in places.most_common(MAX_LINES))
            text = f"{target.name} exceeds its budget of {title}: {shown(amount)}, at most {shown(most)}"
            yield Problem(target.name_span, "error", f"{text}; see {lines}" if lines else text, "budget")


def changed_target(
    target: str, before: TargetCosts, after: TargetCosts, moved: Callable[[Place], Place | None]
) -> ChangedTarget | None:
    """Return the costs of a target that differ, None if none does. `moved` maps a line before the change to the line
    that it has become, or None.
    """
    changes = tuple(_changes(before, after, moved))
    both = before.inputs.keys() & after.inputs.keys()
    inputs = {n: (before.inputs[n], after.inputs[n]) for n in sorted(both) if before.inputs[n] != after.inputs[n]}
    return ChangedTarget(target, changes, inputs) if changes else None


def _changes(before: TargetCosts, after: TargetCosts, moved: Callable[[Place], Place | None]) -> Iterator[CostChange]:
    for cost in COSTS:
        old, new = before.amounts.get(cost), after.amounts.get(cost)
        if old is None or new is None or COSTS[cost].shown(old) == COSTS[cost].shown(new):
            continue
        parts = Counter({CostPlace(*place): amount for place, amount in after.lines[cost].items()})
        for place, amount in before.lines[cost].items() if cost != "peak" else ():
            now = moved(place)
            parts[CostPlace(*place, is_removed=True) if now is None else CostPlace(*now)] -= amount
        sign = 1 if new > old else -1
        grown = [place for place, amount in parts.items() if amount * sign > 0 or cost == "peak"]
        yield CostChange(cost, old, new, tuple(sorted(grown, key=lambda place: -abs(parts[place]))))


def lines_between(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Map the line numbers of a text, from 1, to those of a later one: lines that are equal, and lines that were
    replaced by as many others.
    """
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    kept = (b for b in blocks if b[0] == "equal" or (b[0] == "replace" and b[2] - b[1] == b[4] - b[3]))
    return {start + i + 1: now + i + 1 for _, start, end, now, _ in kept for i in range(end - start)}


def change_text(change: CostChange) -> str:
    """Return the amounts of a cost as text, of sizes with the relative difference: `12 MiB → 13.5 MiB (+12.5 %)`."""
    kind, before, after = COSTS[change.cost], change.before, change.after
    share = f" ({100 * (after - before) / before:+.3g} %)" if before and not kind.is_count else ""
    return f"{kind.shown(before)} → {kind.shown(after)}{share}"
