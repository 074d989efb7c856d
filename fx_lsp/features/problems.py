"""What stands in the editor's list of problems for one file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import get_args

from fx_lsp.features.text import one_line, sentence
from fx_lsp.model import Failure, FindingCode, Outcome, ProblemSeverity, Related, Remark, Span, Target, Trace

_WHOLE_FILE = frozenset({"no-torch", "interpreter"})
_SEVERAL = frozenset({"dimension", "graph", "comment", "syntax", *get_args(FindingCode)})
"""Codes of which there may be several on one line."""
_WORST_FIRST: tuple[ProblemSeverity, ...] = ("error", "warning", "information", "hint")


@dataclass(frozen=True)
class Problem:
    """A message at `span` of the file; `code` is the failure's kind or the finding's, "dimension" for another remark of
    a trace, or "graph" for one of a graph that is built by hand. `faded` is code that an editor may show as not in use;
    `page` the address of what is to be read about this very problem, or "".
    """

    span: Span
    severity: ProblemSeverity
    message: str
    code: str
    related: tuple[Related, ...] = ()
    faded: bool = False
    page: str = ""


def problems(
    file: str, outcomes: Iterable[tuple[Target, Outcome | None]], whole: Failure | None
) -> tuple[Problem, ...]:
    """Return the problems of a file in order of place; a cause that several targets share stands once.

    Of failures on one line the worst is said, and of those the one of the target that the line is in. A failure in
    another file stands at the target's name, with the other place as related. `whole` is a failure of the whole file:
    it does not parse, or there is nothing to trace it with.
    """
    reported = list(outcomes)
    failed = [(t, o) for t, o in reported if t.kind != "script" and isinstance(o, Failure)]
    listed = [_target_problem(target, outcome) for target, outcome in failed]
    listed += [
        _remark(t, remark) for t, outcome in reported if isinstance(outcome, Trace) for remark in outcome.remarks
    ]
    listed += _of_scripts(reported, {p.span.line for p in listed if p.severity in ("error", "warning")})
    if whole is not None:
        listed.append(_file_problem(file, whole, stale=any(outcome is not None for _, outcome in reported)))
    merged: dict[tuple[object, str], Problem] = {}
    for problem in listed:
        key = _cause(problem)
        first = merged.setdefault(key, problem)
        if first is not problem:
            said, other = sorted((first, problem), key=lambda p: (_WORST_FIRST.index(p.severity), len(p.related)))
            merged[key] = replace(said, related=tuple(dict.fromkeys((*said.related, *other.related))))
    return tuple(sorted(merged.values(), key=lambda p: (p.span.line, p.span.col, p.span.end_line, p.span.end_col)))


def _of_scripts(outcomes: Iterable[tuple[Target, Outcome | None]], told: Collection[int]) -> list[Problem]:
    """Return what is wrong with scripts, but for the lines that are `told`; one that is stopped is not wrong."""
    programs = [(t, o) for t, o in outcomes if t.kind == "script" and isinstance(o, Failure)]
    wrong = [_target_problem(t, o) for t, o in programs if o.severity != "information"]
    return [problem for problem in wrong if problem.span.line not in told]


def _cause(problem: Problem) -> tuple[object, str]:
    """Return what tells the cause of a problem from others: its line, or its place and its words."""
    if problem.code in _WHOLE_FILE:
        return None, problem.message
    return (problem.span, problem.message) if problem.code in _SEVERAL else (problem.span.line, "")


def describe(failure: Failure) -> str:
    """Return a failure in one or two sentences: what happened, and what to do about it."""
    return " ".join(sentence(part) for part in (failure.message, failure.hint) if part.strip())


def remark_text(remark: Remark) -> str:
    """Return a remark with the line that it is about."""
    return remark.message if remark.span is None else f"line {remark.span.line}: {remark.message}"


def code_of(remark: Remark, is_built: bool) -> str:
    """Return the code of a remark: that of a mistake that runs, or else "graph" of a graph that is built by hand, and
    "dimension" of what a trace demands."""
    return remark.code or ("graph" if is_built else "dimension")


def all_notes(trace: Trace) -> tuple[str, ...]:
    """Return what is to be known of a whole trace: its notes, and what it demands; mistakes stand where they are."""
    return (*trace.notes, *(remark_text(remark) for remark in trace.remarks if remark.code is None))


def _target_problem(target: Target, failure: Failure) -> Problem:
    message, span = describe(failure), failure.span
    if failure.kind in _WHOLE_FILE:
        return Problem(target.name_span, failure.severity, message, failure.kind)
    if span is None or span.file != target.file:
        related = () if span is None else (Related(span, one_line(failure.message, 200)),)
        return Problem(target.name_span, failure.severity, message, failure.kind, related)
    if target.span.contains(span):
        return Problem(span, failure.severity, message, failure.kind)
    return Problem(span, failure.severity, message, failure.kind, (Related(target.name_span, f"traced {target.name}"),))


def _remark(target: Target, remark: Remark) -> Problem:
    message, span = sentence(remark.message), remark.span
    severity, code = remark.severity, code_of(remark, target.kind == "graph")
    if span is None or span.file != target.file:
        related = () if span is None else (Related(span, one_line(remark.message, 200)),)
        return Problem(target.name_span, severity, f"{target.name}: {message}", code, related, page=remark.page)
    related = () if target.span.contains(span) else (Related(target.name_span, f"traced {target.name}"),)
    return Problem(span, severity, message, code, (*remark.related, *related), page=remark.page)


def work_problems(remarks: Iterable[Remark]) -> tuple[Problem, ...]:
    """Return what passes say of places in a file: what they raised, as errors, and what they matched, as hints."""
    said = {(r.span, r.message): r for r in remarks if r.severity != "information"}
    return tuple(Problem(r.span, r.severity, sentence(r.message), "pass") for r in said.values() if r.span is not None)


def _file_problem(file: str, failure: Failure, stale: bool) -> Problem:
    span = failure.span or Span(file, 1, 0, 1, 0)
    if failure.kind == "syntax":
        # Other tools report the error itself as one.
        last = "fx-lsp shows the graphs of the last version that parsed."
        shown = last if stale else "There are no graphs until the file parses."
        return Problem(span, "information", f"{sentence(failure.message)} {shown}", "syntax")
    return Problem(span, failure.severity, describe(failure), failure.kind)
