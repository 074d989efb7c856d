"""Build the editor's list of problems for one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias, get_args

from fx_lsp import files
from fx_lsp.features.wording.text import one_line, sentence
from fx_lsp.model import (
    Failure,
    FailureKind,
    FindingCode,
    Outcome,
    ProblemSeverity,
    Related,
    Remark,
    Span,
    Target,
    Trace,
)

_WHOLE_FILE = frozenset({"no-torch", "interpreter"})
_FAILURES = frozenset(get_args(FailureKind))
_FINDINGS = frozenset(get_args(FindingCode))
_SEVERAL = frozenset({"dimension", "graph", "comment", "syntax"}) | _FINDINGS
"""Codes that may occur several times on one line."""
_WORST_FIRST: tuple[ProblemSeverity, ...] = ("error", "warning", "information", "hint")


@dataclass(frozen=True)
class Problem:
    """Hold a message at `span` of the file. `code` is the failure's kind or the finding's, "dimension" for another
    remark of a trace, or "graph" for a remark on a hand-built graph. `faded` is code that an editor may show as
    unused; `page` is the URL of a page on this problem, or "".
    """

    span: Span
    severity: ProblemSeverity
    message: str
    code: str
    related: tuple[Related, ...] = ()
    faded: bool = False
    page: str = ""


Cause: TypeAlias = tuple[object, str]
"""The identity of a mistake."""


@dataclass(frozen=True)
class Occurrence:
    """Hold a mistake as one target reaches it: `span` is the wrong code, in any file, or None.

    `raised` is the place of a failure in another file that `span` leads to.
    """

    target: Target
    severity: ProblemSeverity
    code: str
    span: Span | None
    message: str
    related: tuple[Related, ...] = ()
    page: str = ""
    raised: Span | None = None

    @property
    def place(self) -> Span | None:
        """Return the place of the mistake itself."""
        return self.raised or self.span

    @property
    def cause(self) -> Cause:
        """Return the identity of the mistake: the expression and the code, or the line of a failure.

        Remarks on sizes are distinct by their sentence. A mistake without a place is distinct for each target.
        """
        if self.code in _WHOLE_FILE:
            return None, self.message
        if self.place is None:
            return self.target.id, f"{self.code} {self.message}"
        if self.code in _FINDINGS:
            return self.place, self.code
        return (self.place, self.message) if self.code in _SEVERAL else ((self.place.file, self.place.line), "")

    @property
    def rank(self) -> tuple[int, bool, int]:
        """Return a sort key for targets that reach a mistake: the most severe first, then the innermost around it."""
        target = self.target.span
        is_outside = self.place is None or not target.contains(self.place)
        return _WORST_FIRST.index(self.severity), is_outside, 0 if is_outside else target.end_line - target.line


def reached_by(target: Target, outcome: Outcome | None) -> Iterator[Occurrence]:
    """Yield the mistakes that a target reaches: its failure, or the remarks of its trace."""
    if isinstance(outcome, Failure):
        yield reached_failure(target, outcome, outcome.severity)
    for remark in outcome.remarks if isinstance(outcome, Trace) else ():
        yield reached_remark(target, remark)


def reached_failure(target: Target, failure: Failure, severity: ProblemSeverity) -> Occurrence:
    """Return a failure as a mistake that a target reaches."""
    return Occurrence(target, severity, failure.kind, failure.span, describe(failure), raised=failure.raised)


def reached_remark(target: Target, remark: Remark) -> Occurrence:
    """Return a remark as a mistake that a target reaches."""
    code, message = code_of(remark, target.kind == "graph"), sentence(remark.message)
    return Occurrence(target, remark.severity, code, remark.span, message, remark.related, remark.page)


def by_cause(reached: Iterable[Occurrence]) -> dict[Cause, list[Occurrence]]:
    """Return the occurrences of each fault; the message of the first is shown."""
    faults: dict[Cause, list[Occurrence]] = {}
    for one in reached:
        faults.setdefault(one.cause, []).append(one)
    return {cause: sorted(several, key=lambda one: one.rank) for cause, several in faults.items()}


def other_targets(several: Sequence[Occurrence]) -> tuple[Target, ...]:
    """Return the targets that reach a mistake except the first, each once."""
    return tuple(dict.fromkeys(one.target for one in several if one.target != several[0].target))


def problems(
    file: str, outcomes: Iterable[tuple[Target, Outcome | None]], whole: Failure | None
) -> tuple[Problem, ...]:
    """Return the problems of a file in order of place; a mistake that several targets reach is listed once.

    Of failures on one line, the most severe is shown, and of those the one of the enclosing target; the other targets
    are related. A failure in another file is shown at the target's name, with the other place as related. `whole` is a
    failure of the whole file: it does not parse, or no interpreter can trace it.
    """
    reported = list(outcomes)
    reached = [one for target, outcome in reported for one in reached_by(target, outcome) if not _is_stopped(one)]
    marked = {_line_of(one) for one in reached if one.target.kind != "script" and one.severity in ("error", "warning")}
    listed: list[Problem] = []
    for several in by_cause(reached).values():
        if any(one.target.kind != "script" for one in several) or _line_of(several[0]) not in marked:
            first = dict.fromkeys(one for one in several if one.target == several[0].target)
            listed += [_problem(one, other_targets(several)) for one in first]
    if whole is not None:
        listed.append(_file_problem(file, whole, stale=any(outcome is not None for _, outcome in reported)))
    return tuple(sorted(listed, key=lambda p: (p.span.line, p.span.col, p.span.end_line, p.span.end_col)))


def _is_stopped(one: Occurrence) -> bool:
    """Return True for a script that cannot be followed to its end, which is not an error."""
    return one.target.kind == "script" and one.code not in _SEVERAL and one.severity == "information"


def _line_of(one: Occurrence) -> tuple[str, int] | None:
    return None if one.span is None else (one.span.file, one.span.line)


def _problem(one: Occurrence, others: Iterable[Target]) -> Problem:
    """Return a mistake as a problem of its target's file; the targets `others` reach it too."""
    target, span, message, related = one.target, one.span, one.message, one.related
    if one.code in _WHOLE_FILE:
        return Problem(target.name_span, one.severity, message, one.code)
    if span is None or span.file != target.file:
        message = message if is_failure(one.code) else f"{target.name}: {message}"
        related = () if span is None else (Related(span, one_line(one.message, 200)),)
        span = target.name_span
    elif one.raised is not None:
        related = (Related(one.raised, "raised here"),)
    elif not target.span.contains(span):
        related = (*related, Related(target.name_span, f"traced {target.name}"))
    also = (Related(other.name_span, f"also reached from {other.name}") for other in others)
    return Problem(span, one.severity, message, one.code, tuple(dict.fromkeys((*related, *also))), page=one.page)


def describe(failure: Failure) -> str:
    """Return a failure in one or two sentences: the error, and the remedy."""
    return " ".join(sentence(part) for part in (failure.message, failure.hint) if part.strip())


def is_failure(code: str) -> bool:
    """Return True for the code of a failure, False for that of a remark."""
    return code in _FAILURES


def remark_text(remark: Remark) -> str:
    """Return a remark with its line."""
    return remark.message if remark.span is None else f"line {remark.span.line}: {remark.message}"


def code_of(remark: Remark, is_built: bool) -> str:
    """Return the code of a remark: that of its mistake, or else "graph" for a hand-built graph, and "dimension" for a
    requirement of the trace.
    """
    return remark.code or ("graph" if is_built else "dimension")


def all_notes(trace: Trace) -> tuple[str, ...]:
    """Return the notes on a whole trace: its notes and its requirements, without mistakes, which are shown in place."""
    return (*trace.notes, *(remark_text(remark) for remark in trace.remarks if remark.code is None))


def work_problems(remarks: Iterable[Remark]) -> tuple[Problem, ...]:
    """Return the results of passes at places in a file: exceptions as errors, and matches as hints."""
    said = {(r.span, r.message): r for r in remarks if r.severity != "information"}
    return tuple(Problem(r.span, r.severity, sentence(r.message), "pass") for r in said.values() if r.span is not None)


def _file_problem(file: str, failure: Failure, stale: bool) -> Problem:
    span = failure.span or Span(file, 1, 0, 1, 0)
    if failure.kind == "syntax":
        # Other tools report the syntax error itself as an error.
        last = "fx-lsp shows the graphs of the last version that parsed."
        shown = last if stale else "No graphs are shown until the file parses."
        return Problem(span, "information", f"{sentence(failure.message)} {shown}", "syntax")
    return Problem(span, failure.severity, describe(failure), failure.kind)


_PACKAGE = Path(__file__).parents[2]
FOLDERS = _PACKAGE / "problems", _PACKAGE.parent / "docs" / "problems"


@cache
def page_of(code: str) -> str | None:
    """Return the URI of the page on a code, None if it has none."""
    page = _file_of(code)
    return None if page is None else page.as_uri()


@cache
def text_of_page(code: str) -> str | None:
    """Return the Markdown text of the page on a code, None if it has none."""
    page = _file_of(code)
    return None if page is None else files.read_text(page)


def codes_with_pages() -> list[str]:
    """Return the codes that have a page, sorted."""
    pages = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0]).glob("*.md")
    return sorted(page.stem for page in pages if page.stem.islower())


def _file_of(code: str) -> Path | None:
    pages = (folder / f"{code}.md" for folder in FOLDERS if code in codes_with_pages())
    return next((page for page in pages if page.is_file()), None)
