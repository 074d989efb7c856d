"""Compare benchmarks of one target between hosts and over time. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fx_lsp.features.costs.benchmark import legend, table
from fx_lsp.measured import CLOCKS, BenchmarkRun, Failed, Measured, Report, Timing

MIN_CHANGE = 0.02
"""The least relative change, beyond the noise, that counts."""
MAX_RUNS = 20
"""The most runs of a history that an editor shows."""


@dataclass(frozen=True)
class TimedPlace:
    """Identify the measured code of a time: only times of the same place are comparable."""

    gpu: str
    label: str
    choices: str
    inputs: tuple[str, ...]
    variant: str
    what: str
    clock: str


@dataclass(frozen=True)
class MeasuredChange:
    """Hold a time that differs from the previous one by more than their noise; times in ms."""

    place: TimedPlace
    before: Timing
    after: Timing

    @property
    def ratio(self) -> float:
        """Return the ratio of the new time to the old one."""
        return self.after.median / self.before.median

    @property
    def worse(self) -> bool:
        """Return True if the new time is longer."""
        return self.ratio > 1


def latest(runs: Sequence[BenchmarkRun]) -> dict[tuple[str, str], BenchmarkRun]:
    """Return the last run of each target on each host."""
    return {(run.target, run.host): run for run in runs}


def times(report: Report) -> dict[TimedPlace, Timing]:
    """Return the time of each variant, by its preferred clock."""
    return {place: measured.timings[place.clock] for place, measured in _places(report)}


def changes(runs: Sequence[BenchmarkRun]) -> list[list[MeasuredChange]]:
    """Return, for each run, the changes since the last run before it that measured the same place."""
    last_times: dict[tuple[str, TimedPlace], Timing] = {}
    by_run: list[list[MeasuredChange]] = []
    for run in runs:
        here: list[MeasuredChange] = []
        for place, timing in times(run.report).items():
            before = last_times.get((run.target, place))
            if before is not None and differs(before, timing):
                here.append(MeasuredChange(place, before, timing))
            last_times[run.target, place] = timing
        by_run.append(here)
    return by_run


def noise(timing: Timing) -> float:
    """Return the uncertainty of a time in ms: half its spread, or its difference to the second measurement, if
    larger.
    """
    return max((timing.high - timing.low) / 2, abs(timing.median - timing.again))


def differs(before: Timing, after: Timing) -> bool:
    """Return True if two times of the same place differ by more than their noise."""
    return abs(after.median - before.median) > max(noise(before) + noise(after), MIN_CHANGE * before.median)


def page(reports: Mapping[str, Report], stale: Collection[str] = ()) -> str:
    """Return the tables of all hosts, a table across them, and the meaning of the columns. The source of hosts in
    `stale` has changed.
    """
    parts: list[str] = []
    for host, report in reports.items():
        mark = "stale: the source has changed since · " if host in stale else ""
        parts.append(f"{mark}{f'{host}: ' if len(reports) > 1 else ''}{table(report)}")
    parts += [across(reports)] if len(reports) > 1 else []
    return "\n".join([*parts, legend(next(iter(reports.values())))])


def document(name: str, runs: Sequence[BenchmarkRun], now: Mapping[str, str], failed: Mapping[str, Failed]) -> str:
    """Return the runs of a target as the text of an editor's page.

    The page has the current step `now` by host, the hosts that have `failed`, the last run on each host, and the
    earlier runs, the oldest first.
    """
    doing = [f"measuring on {host}: {text}" for host, text in now.items()]
    for host, end in failed.items():
        doing += [f"not measured on {host}: {end.message}", *([f"  {end.hint}"] if end.hint else [])]
    last = {run.host: run for run in latest(runs).values()}
    if not last:
        return "\n".join([*(doing or [f"{name} has not been measured yet."]), ""])
    parts = ["\n".join([*doing, ""])] if doing else []
    parts.append(
        page({host: run.report for host, run in last.items()}, [run.host for run in last.values() if run.stale])
    )
    if len(runs) > len(last):
        parts.append("History, the latest last\n\n" + history_text(runs[-MAX_RUNS:]))
    return "\n".join(parts)


def across(reports: Mapping[str, Report]) -> str:
    """Return a table with a column for each host: the times in ms, each by its preferred clock."""
    by_host = {host: {(p.label, p.what, p.variant): t for p, t in times(r).items()} for host, r in reports.items()}
    keys = dict.fromkeys(key for column in by_host.values() for key in column)
    rows = [["", *reports]]
    for label, what, variant in keys:
        name = " · ".join(part for part in (label, what, variant) if part)
        cells = [column.get((label, what, variant)) for column in by_host.values()]
        rows.append([name, *(f"{cell.median:.4f}" if cell else "–" for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    return "\n".join(["ms on all hosts:", *(f"  {line}" for line in lines), ""])


def history_text(runs: Sequence[BenchmarkRun]) -> str:
    """Return a block for each run, the last at the end: its measurements, and the changes since the previous run."""
    if not runs:
        return "no measurements yet\n"
    return "\n".join(_block(run, changed) for run, changed in zip(runs, changes(runs), strict=True))


def _places(report: Report) -> Iterator[tuple[TimedPlace, Measured]]:
    inputs = {(cost.label, cost.what): cost.inputs for cost in report.costs}
    machine = report.machine.gpu or report.machine.cpu
    for one in report.measured:
        clock = next((clock for clock in CLOCKS if clock in one.timings), None)
        if clock is not None:
            specs = inputs.get((one.label, one.what), ())
            yield TimedPlace(machine, one.label, report.choices, specs, one.variant, one.what, clock), one


def _block(run: BenchmarkRun, changes: Sequence[MeasuredChange]) -> str:
    report = run.report
    changed = {change.place: change for change in changes}
    machine = report.machine
    parts = run.host, machine.gpu or machine.cpu, f"torch {machine.torch}", report.choices
    where = " · ".join(filter(None, parts))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.started))
    stale = "  (of an older version of the source)" if run.stale else ""
    lines = [f"{when}  {where}{stale}"]
    rows = [
        (place, timing, f"{place.variant}{f' {place.label}' if place.label else ''}")
        for place, timing in times(report).items()
    ]
    width = max((len(name) for _, _, name in rows), default=0)
    for place, timing, name in rows:
        text = f"  {name:{width}}  {place.what:8}  {timing.median:9.4f} ms by {place.clock}"
        change = changed.get(place)
        if change is not None:
            word = "slower" if change.worse else "faster"
            ratio = change.ratio if change.worse else 1 / change.ratio
            text += f"  {'!' if change.worse else ' '} {ratio:.2f}× {word} than before ({change.before.median:.4f} ms)"
        lines.append(text)
    if not rows:
        lines.append("  nothing was timed")
    return "\n".join([*lines, ""])
