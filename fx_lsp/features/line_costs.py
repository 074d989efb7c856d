"""Return the share of each line in the cost of its target: in the measured time, else in the FLOPs or moved bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fx_lsp.features.line_times import times_by_line
from fx_lsp.features.summary import Estimate, LineRow, Totals, shares_of, summary_of
from fx_lsp.measured import BenchmarkRun
from fx_lsp.model import Stage, Target, Trace


@dataclass(frozen=True)
class LineTimes:
    """Hold the microseconds of a line, measured in eager PyTorch."""

    forward: float
    backward: float

    @property
    def sum(self) -> float:
        """Return the microseconds of forward and backward together."""
        return self.forward + self.backward


@dataclass(frozen=True)
class LineCost:
    """Hold what the expressions of a line cost, which end on `end_line`. `share` and `saved_share` are fractions of the
    cost of the target, and of the activations that it saves for backward. `times` is None if nothing was measured here.
    """

    line: int
    end_line: int
    share: float
    saved_share: float
    totals: Totals
    times: LineTimes | None = None


@dataclass(frozen=True)
class LineCosts:
    """Hold the lines of a target, in order. `measure` names the cost that shares are of; `where` it was measured, ""
    for an estimate.
    """

    measure: Literal["time"] | Estimate
    where: str
    lines: tuple[LineCost, ...]


def line_costs(
    target: Target, trace: Trace, stages: Sequence[Stage], measured: BenchmarkRun | None = None
) -> LineCosts | None:
    """Return the costs of the lines of a target, from its `stages` (forward and backward, or inference), and from the
    times of a benchmark by line; None without costs of operations.
    """
    if not stages or trace.info(stages[0].name) is None:
        return None
    every = summary_of(trace, stages).lines
    inside = {row.span.line: row for row in every if target.span.contains(row.span)}
    saved = trace.activation_bytes
    times = _times(target, measured)
    if measured is not None and times:
        whole = sum(map(sum, times_by_line(measured.report).values()))
        shares = {line: both.sum / whole for line, both in times.items()}
        where = measured.report.machine.gpu or measured.host
        return LineCosts("time", where, _lines(inside, shares, saved, times))
    by_place, measure = shares_of(every)
    shares = {line: by_place[row.span.file, line] for line, row in inside.items()}
    return LineCosts(measure, "", _lines(inside, shares, saved, {}))


def _times(target: Target, measured: BenchmarkRun | None) -> dict[int, LineTimes]:
    """Return the measured times of the lines of a target."""
    times = {} if measured is None else times_by_line(measured.report)
    inside = range(target.span.line, target.span.end_line + 1)
    return {line: LineTimes(*both) for (file, line), both in times.items() if file == target.file and line in inside}


def _lines(
    rows: dict[int, LineRow], shares: dict[int, float], saved: int, times: dict[int, LineTimes]
) -> tuple[LineCost, ...]:
    costs: list[LineCost] = []
    for line in sorted({*rows, *times}):
        totals = rows[line].totals if line in rows else Totals()
        end = rows[line].span.end_line if line in rows else line
        saved_share = totals.saved_bytes / saved if saved else 0.0
        costs.append(LineCost(line, end, shares.get(line, 0.0), saved_share, totals, times.get(line)))
    return tuple(costs)
