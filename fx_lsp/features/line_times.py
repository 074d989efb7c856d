"""Show the measured time of each line of the user's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fx_lsp.features.documents import SourceLine
from fx_lsp.features.summary import table
from fx_lsp.features.text import basename, one_line
from fx_lsp.measured import LineTime, Report
from fx_lsp.model import Span

_HEAD = ("line", "forward µs", "backward µs", "share", "")
_WIDTH = 60


def line_times_page(report: Report, file: str, source_line: SourceLine) -> str:
    """Return a table for each case of a report, the lines in the order of the files, the target's own `file` first.
    `source_line` returns the text of a line.
    """
    texts: list[str] = []
    for label in dict.fromkeys(time.label for time in report.lines):
        times = [time for time in report.lines if time.label == label]
        where = report.machine.gpu or report.machine.cpu or "this machine"
        texts.append(f"# time by line, eager, on {where}" + (f", {label}" if label else ""))
        texts += [*table(_HEAD, [*_rows(times, file, source_line)], left=1), ""]
    return "\n".join(texts)


def _rows(times: Iterable[LineTime], file: str, source_line: SourceLine) -> Iterator[tuple[str, ...]]:
    sums: dict[tuple[bool, str, int], tuple[float, float]] = {}
    for time in times:
        place = (time.line == 0 or time.file != file, time.file if time.line else "", time.line)
        forward, backward = sums.get(place, (0.0, 0.0))
        sums[place] = forward + time.forward, backward + time.backward
    whole = sum(map(sum, sums.values())) or 1.0
    elsewhere = sums.pop((True, "", 0), (0.0, 0.0))
    for (is_other, path, line), (forward, backward) in sorted(item for item in sums.items() if any(item[1])):
        name = f"{basename(path)}:{line}" if is_other else str(line)
        yield name, *_cells(forward, backward, whole), one_line(source_line(Span(path, line, 0, line, 0)) or "", _WIDTH)
    if sum(elsewhere):
        yield "elsewhere", *_cells(*elsewhere, whole), ""


def _cells(forward: float, backward: float, whole: float) -> tuple[str, str, str]:
    texts = [f"{time:,.1f}" if time else "" for time in (forward, backward)]
    return texts[0], texts[1], f"{(forward + backward) / whole:.0%}"
