"""What `fx-lsp check` shows a person: lines for each file, the counts, and the progress while it runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TextIO

from fx_lsp.commands.sources import shown_path
from fx_lsp.commands.survey import FileReport, Summary, TargetReport, is_problem
from fx_lsp.features.guesses import Guesses
from fx_lsp.features.lenses import saved_text, why_no_backward
from fx_lsp.features.problems import describe, remark_text
from fx_lsp.features.text import count, one_line
from fx_lsp.model import Failure, Remark, Span

_NAME_WIDTH = 32
_BOLD, _RED, _GREEN, _YELLOW = "1", "1;31", "32", "33"


def list_file(report: FileReport, colour: bool) -> str:
    """Return the lines about one file, each with its end; "" where nothing in it can be traced."""
    lines = [_paint(shown_path(report.file), _BOLD, colour)]
    if report.failure is not None:
        lines.append(f"  {_why(report.failure, report.file, True, colour)}")
    width = min(max((len(t.target.name) for t in report.targets), default=0), _NAME_WIDTH)
    owners = _owners(report)
    for target in report.targets:
        owner = owners.get(target.target.name, "")
        lines.append(f"  {_line(target, width, colour, owner)}")
        lines += [_remark(remark, colour) for remark in target.remarks]
    lines += [f"  {_why(comment, report.file, False, colour, otherwise='note')}" for comment in report.comments]
    return "\n".join([*lines, "", ""]) if len(lines) > 1 else ""


def list_summary(summary: Summary, seconds: float, colour: bool) -> str:
    """Return the counts, in one to three lines."""
    lines = [_paint(one_line_summary(summary, seconds), _BOLD if not summary.problems else _RED, colour)]
    if summary.sources:
        lines.append(f"traced with inputs from: {_counts(summary.sources.items())}")
    if summary.failures:
        lines.append(f"not traced: {_counts(summary.failures.items())}")
    return "\n".join([*lines, ""])


def one_line_summary(summary: Summary, seconds: float) -> str:
    """`12 found in 3 files · 10 traced · 2 not · 1 problem · 4.1 s`."""
    parts = [
        f"{summary.found:,} found in {count('file', summary.files)}",
        f"{summary.traced:,} traced",
        f"{summary.found - summary.traced:,} not",
        count("problem", summary.problems),
        *([count("warning", summary.warnings)] if summary.warnings else []),
        *([count("internal error", summary.internal_errors)] if summary.internal_errors else []),
        f"{seconds:.1f} s",
    ]
    return " · ".join(parts)


class Progress:
    """One line, redrawn, on a terminal; nothing where `stream` is none."""

    def __init__(self, stream: TextIO, files: int) -> None:
        self._stream = stream if stream.isatty() else None
        self._files = files
        self._done = self._found = self._traced = 0
        self._current = ""

    def target(self, report: TargetReport) -> None:
        """Note that one more target is known."""
        self._found += 1
        self._traced += report.failure is None
        self._current = report.target.id
        self._draw()

    def file(self) -> None:
        """Note that one more file is done."""
        self._done += 1
        self._draw()

    def clear(self) -> None:
        """Make the line empty, so that something else can be printed."""
        self._write("")

    def _draw(self) -> None:
        counts = f"{self._done}/{self._files} files · {self._found:,} found · {self._traced:,} traced"
        self._write(one_line(f"{counts} · {shown_path(self._current)}", shutil.get_terminal_size().columns - 1))

    def _write(self, line: str) -> None:
        if self._stream is not None:
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()


def _remark(remark: Remark, colour: bool) -> str:
    text = one_line(remark_text(remark), 200)
    colours = {"error": _RED, "warning": _YELLOW}
    style = colours.get(remark.severity)
    text += f" [{remark.code}]" if remark.code is not None else ""
    return f"    {text}" if style is None else f"    {_paint(f'{remark.severity}:', style, colour)} {text}"


def _owners(report: FileReport) -> dict[str, str]:
    """For each target that failed inside another one that failed on the same line, the name of that one."""
    failed = [(t.target, t.failure, t.failure.span) for t in report.targets if t.failure and t.failure.span]
    inside = {span.line: target.name for target, _, span in failed if target.span.contains(span)}
    outside = [(target, span) for target, failure, span in failed if not is_problem(failure)]
    return {
        target.name: inside[span.line]
        for target, span in outside
        if span.file == report.file and span.line in inside and not target.span.contains(span)
    }


def _line(report: TargetReport, width: int, colour: bool, owner: str) -> str:
    name = report.target.name.ljust(width)
    if report.failure is not None and owner:
        return f"{name}  {_paint(f'not traced ({report.failure.kind}):', _YELLOW, colour)} as {owner}"
    if report.failure is not None:
        return f"{name}  {_why(report.failure, report.target.file, False, colour, report.target.name_span)}"
    ops, saved = count("op", report.forward or 0), saved_text(report.activation_bytes or 0, Guesses(report.inputs))
    if report.target.kind == "graph":
        graphs = f"{ops} · built by hand"
    elif report.backward is None:
        graphs = f"{ops} · {why_no_backward(report.refused)}"
    else:
        graphs = f"{ops} forward · {report.backward:,} backward · {saved}"
    return f"{_paint(name, _GREEN, colour)}  {graphs} · {report.seconds:.2f} s · inputs: {report.source}"


def _why(
    failure: Failure,
    file: str,
    whole_file: bool,
    colour: bool,
    name_span: Span | None = None,
    otherwise: str = "not traced",
) -> str:
    span = failure.span or name_span
    where = f"{shown_path(span.file)}:{span.line}: " if span else f"{shown_path(file)}: "
    kind = f" ({failure.kind})" if failure.kind != "error" else ""
    if is_problem(failure, whole_file):
        return f"{where}{_paint(f'error{kind}:', _RED, colour)} {one_line(describe(failure), 1000)}"
    label = "warning" if failure.severity == "warning" else otherwise
    return f"{where}{_paint(f'{label}{kind}:', _YELLOW, colour)} {one_line(describe(failure), 400)}"


def _counts(numbers: Iterable[tuple[str, int]]) -> str:
    return " · ".join(f"{name} {number:,}" for name, number in numbers)


def _paint(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text
