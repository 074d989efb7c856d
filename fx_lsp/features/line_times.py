"""Show the measured time of each line of the user's code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fx_lsp.features.documents import SourceLine
from fx_lsp.features.summary import Place, table
from fx_lsp.features.text import basename, one_line
from fx_lsp.measured import Report
from fx_lsp.model import Span

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
