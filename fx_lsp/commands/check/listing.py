"""Print the results of `fx-lsp check` for people: lines for each file, the counts, and the progress while it runs."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from fx_lsp.commands.check.survey import (
    FileReport,
    Summary,
    SurveyProgress,
    TargetReport,
    faults_of,
    is_problem,
    reached_by,
)
from fx_lsp.commands.places import line_name, place_text
from fx_lsp.commands.sources import shown_path
from fx_lsp.features.wording.problems import Cause, Occurrence, describe, is_failure, other_targets
from fx_lsp.features.wording.text import count, one_line
from fx_lsp.features.wording.traces import summarize
from fx_lsp.model import Failure, ProblemSeverity, Span, Target, Trace

_NAME_WIDTH = 32
_TERMINAL_SECONDS, _LOG_SECONDS = 1, 10
"""The seconds between two lines of the progress on a terminal, and in a log."""
_BOLD, _RED, _GREEN, _YELLOW = "1", "1;31", "32", "33"
_COLOURS = {"error": _RED, "warning": _YELLOW}


class CheckListing:
    """List files one after another: each fault once, with the targets that reach it."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour
        self._listed: dict[Cause, Target] = {}

    def file(self, report: FileReport) -> str:
        """Return the lines for one file, each with its end; "" if it has no targets."""
        lines = [_paint(shown_path(report.file), _BOLD, self._colour)]
        if report.failure is not None and not report.accepted:
            lines.append(f"  {self._why(report.failure, report.file, True)}")
        faults = faults_of([report])
        for cause, several in faults.items():
            self._listed.setdefault(cause, several[0].target)
        width = min(max((len(t.target.name) for t in report.targets), default=0), _NAME_WIDTH)
        for target in report.targets:
            lines += self._target(target, width, faults)
        comments = (self._why(c, report.file, False, otherwise="information") for c in report.comments)
        lines += [f"  {comment}" for comment in comments]
        return "\n".join([*lines, "", ""]) if len(lines) > 1 else ""

    def _target(self, report: TargetReport, width: int, faults: Mapping[Cause, Sequence[Occurrence]]) -> Iterator[str]:
        """Yield the line for a target, and one for each remark that is not listed at another."""
        if report.failure is None:
            yield f"  {_traced(report, width, self._colour)}"
        for one in reached_by(report):
            first = self._listed[one.cause]
            also = ", ".join(other.name for other in other_targets(faults[one.cause]))
            others = f" (also reached from {also})" if also else ""
            if not is_failure(one.code):
                yield from [f"    {_remark(one, self._colour)}{others}"] if first == one.target else []
                continue
            assert report.failure is not None, "a code of a failure"
            name, span = report.target.name.ljust(width), report.target.name_span
            shown = self._why(report.failure, report.target.file, False, span) + others
            yield f"  {name}  {shown if first == one.target else _as(report, first, self._colour)}"

    def _why(
        self,
        failure: Failure,
        file: str,
        whole_file: bool,
        name_span: Span | None = None,
        otherwise: str = "not traced",
    ) -> str:
        span = failure.span or name_span
        where = f"{place_text(span) if span else shown_path(file)}: "
        kind = f" ({failure.kind})" if failure.kind != "error" else ""
        if is_problem(failure, whole_file):
            return f"{where}{_paint(f'error{kind}:', _RED, self._colour)} {one_line(describe(failure), 1000)}"
        label = "warning" if failure.severity == "warning" else otherwise
        return f"{where}{_paint(f'{label}{kind}:', _YELLOW, self._colour)} {one_line(describe(failure), 400)}"


def list_summary(summary: Summary, seconds: float, colour: bool, is_complete: bool) -> str:
    """Return the counts, in one to three lines, or why there is nothing to count in a check that `is_complete`."""
    lines = [_paint(one_line_summary(summary, seconds), _BOLD if not summary.problems else _RED, colour)]
    if is_complete and not summary.found and not summary.failures:
        without = "function or module that computes with tensors" if summary.files else "Python file or notebook"
        lines.append(f"nothing to trace: there is no {without} in what is checked")
    if summary.sources:
        lines.append(f"traced with inputs from: {_counts(summary.sources.items())}")
    if summary.failures:
        lines.append(f"not traced: {_counts(summary.failures.items())}")
    return "\n".join([*lines, ""])


def one_line_summary(summary: Summary, seconds: float) -> str:
    """Return `12 found in 3 files · 10 traced · 2 not · 1 problem · 4.1 s`."""
    parts = [
        f"{summary.found:,} found in {count('file', summary.files)}",
        f"{summary.traced:,} traced",
        f"{summary.found - summary.traced:,} not",
        count("problem", summary.problems),
        *([count("warning", summary.warnings)] if summary.warnings else []),
        *([f"{summary.information:,} information"] if summary.information else []),
        *([count("internal error", summary.internal_errors)] if summary.internal_errors else []),
        f"{seconds:.1f} s",
    ]
    return " · ".join(parts)


def statistics_lines(counts: Mapping[tuple[str, ProblemSeverity], int]) -> list[str]:
    """Return a line for each code and severity of mistakes: `  12  warning  shape`."""
    width = max((len(f"{number:,}") for number in counts.values()), default=0)
    return [f"  {number:>{width},}  {severity:<11}  {code}" for (code, severity), number in counts.items()]


class Progress(SurveyProgress):
    """Show what a survey is doing: on a terminal in one line that is drawn again, else as a line now and then."""

    def __init__(self, stream: TextIO, files: int) -> None:
        self._stream, self._is_terminal = stream, stream.isatty()
        self.restart("", files)

    def restart(self, what: str, files: int) -> None:
        """Begin to count another survey of files; `what` says which one it is."""
        super().__init__()
        self._what, self._files, self._listed = what, files, 0
        self._started = time.perf_counter()

    def file(self) -> None:
        """Count one more file that has finished."""
        self._listed += 1
        self.show()

    async def keep_showing(self) -> None:
        """Show the line again and again, until this is cancelled."""
        self.show()
        while True:
            await asyncio.sleep(_TERMINAL_SECONDS if self._is_terminal else _LOG_SECONDS)
            if self._is_terminal:
                self.show()
            else:
                print(self._line(), file=self._stream, flush=True)

    def clear(self) -> None:
        """Clear the line, so that something else can be printed."""
        self._write("")

    def _line(self) -> str:
        running, names = len(self.running), ", ".join(self.running)
        counts = f"{self.finished:,} done · {running:,} running · {self.found - self.finished - running:,} left"
        files, seconds = f"{self._listed:,}/{count('file', self._files)}", time.perf_counter() - self._started
        return f"{self._what}{seconds:.0f} s · {files} · {counts}{f' · {names}' if names else ''}"

    def show(self) -> None:
        """Draw the line."""
        self._write(one_line(self._line(), shutil.get_terminal_size().columns - 1))

    def _write(self, line: str) -> None:
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()


def _remark(one: Occurrence, colour: bool) -> str:
    place = f"{line_name(one.span)}: " if one.span is not None else ""
    label = _paint(f"{one.severity}:", _COLOURS.get(one.severity, ""), colour)
    return f"{label} {one_line(place + one.message, 200)} [{one.code}]"


def _as(report: TargetReport, first: Target, colour: bool) -> str:
    """Return the line of a target that fails at the mistake of another one, which is listed with the reason."""
    kind = f" ({report.failure.kind})" if report.failure is not None and report.failure.kind != "error" else ""
    place = first.name if first.file == report.target.file else shown_path(first.id)
    return f"{_paint(f'not traced{kind}:', _YELLOW, colour)} as {place}"


def _traced(report: TargetReport, width: int, colour: bool) -> str:
    name = _paint(report.target.name.ljust(width), _GREEN, colour)
    return f"{name}  {target_cost(report)} · {report.seconds:.2f} s · inputs: {report.source}"


def target_cost(report: TargetReport) -> str:
    """Return the operations of a traced target, and the bytes that it saves for backward."""
    assert isinstance(report.outcome, Trace), "the target is traced"
    if report.target.kind == "graph":
        return f"{count('op', report.outcome.ops('graph') or 0)} · built by hand"
    return summarize(report.outcome)


def _counts(numbers: Iterable[tuple[str, int]]) -> str:
    return " · ".join(f"{name} {number:,}" for name, number in numbers)


def _paint(text: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if colour and style else text
