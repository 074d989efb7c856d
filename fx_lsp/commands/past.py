"""Benchmarks of one target beside each other, as text: of several hosts, and of earlier times."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from fx_lsp.measured import Report
from fx_lsp.tracing.remote.history import Change, Run, changes, times


def across(reports: Mapping[str, Report]) -> str:
    """A table with a column for each host: the times in ms, each by the clock that counts there."""
    found = {host: {(p.label, p.what, p.variant): t for p, t in times(r).items()} for host, r in reports.items()}
    keys = dict.fromkeys(key for column in found.values() for key in column)
    rows = [["", *reports]]
    for label, what, variant in keys:
        name = " · ".join(part for part in (label, what, variant) if part)
        cells = [column.get((label, what, variant)) for column in found.values()]
        rows.append([name, *(f"{cell.median:.4f}" if cell else "–" for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    return "\n".join(["ms on all hosts:", *(f"  {line}" for line in lines), ""])


def history_text(runs: Sequence[Run], source_hash: str) -> str:
    """A block for each run, the last at the end: what was measured where, and what differs from the run before.

    A run of another source than `source_hash` says so.
    """
    if not runs:
        return "nothing was measured yet\n"
    return "\n".join(_block(run, found, source_hash) for run, found in zip(runs, changes(runs), strict=True))


def _block(run: Run, found: Sequence[Change], source_hash: str) -> str:
    report = run.report
    changed = {change.place: change for change in found}
    machine = report.machine
    where = " · ".join(part for part in (run.host, machine.gpu or machine.cpu, f"torch {machine.torch}") if part)
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.started))
    stale = "" if report.source_hash == source_hash else "  (of another source than the present one)"
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
