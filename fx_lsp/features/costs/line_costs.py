"""Return the share of each line in the cost of its target: in the measured time, else in the FLOPs or moved bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fx_lsp.features.costs.summary import Estimate, LineRow, Place, Totals, shares_of, summary_of, table
from fx_lsp.features.documents.document import SourceLine
from fx_lsp.features.wording.text import basename, one_line
from fx_lsp.measured import BenchmarkRun, Report
from fx_lsp.model import Span, Stage, Target, Trace


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


ELSEWHERE: Place = ("", 0)
"""The place of the time that no line of the user's code accounts for."""
_HEAD = ("line", "forward µs", "backward µs", "share", "")
_WIDTH = 60


def line_times_page(report: Report, file: str, source_line: SourceLine) -> str:
    """Return a table for each case of a report, the lines in the order of the files, the target's own `file` first.
    `source_line` returns the text of a line.
    """
    texts: list[str] = []
    for label in dict.fromkeys(time.label for time in report.lines):
        case = replace(report, lines=tuple(time for time in report.lines if time.label == label))
        where = report.machine.gpu or report.machine.cpu or "this machine"
        texts.append(f"# time by line, eager, on {where}" + (f", {label}" if label else ""))
        texts += [*table(_HEAD, [*_rows(case, file, source_line)], left=1), ""]
    return "\n".join(texts)


def times_by_line(report: Report) -> dict[Place, tuple[float, float]]:
    """Return the microseconds of forward and backward of each line, those of all cases together; of the rest at line 0
    of no file.
    """
    sums: dict[Place, tuple[float, float]] = {}
    for time in report.lines:
        place = (time.file, time.line) if time.line else ELSEWHERE
        forward, backward = sums.get(place, (0.0, 0.0))
        sums[place] = forward + time.forward, backward + time.backward
    return {place: both for place, both in sums.items() if any(both)}


def _rows(report: Report, file: str, source_line: SourceLine) -> Iterator[tuple[str, ...]]:
    times = times_by_line(report)
    whole = sum(map(sum, times.values()))
    elsewhere = times.pop(ELSEWHERE, None)
    for (path, line), both in sorted(times.items(), key=lambda item: (item[0][0] != file, item[0])):
        name = str(line) if path == file else f"{basename(path)}:{line}"
        yield name, *_cells(*both, whole), one_line(source_line(Span(path, line, 0, line, 0)) or "", _WIDTH)
    if elsewhere is not None:
        yield "elsewhere", *_cells(*elsewhere, whole), ""


def _cells(forward: float, backward: float, whole: float) -> tuple[str, str, str]:
    texts = [f"{time:,.1f}" if time else "" for time in (forward, backward)]
    return texts[0], texts[1], f"{(forward + backward) / whole:.0%}"
