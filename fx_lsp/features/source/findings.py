"""List the kinds of mistakes in code that runs: which are reported, and where a comment suppresses one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar, get_args

from fx_lsp.features.source.pin import TextChange
from fx_lsp.features.wording.problems import Problem, code_of
from fx_lsp.model import (
    FailureKind,
    FindingCode,
    Outcome,
    ProblemSeverity,
    RuleSeverity,
    Severity,
    Span,
    Target,
    Trace,
)
from fx_lsp.specs import IGNORE_COMMENT


class FindingKind(NamedTuple):
    """Describe a kind of finding: the mistake in a few words, and whether it is reported by default."""

    title: str
    is_told: bool = True


FINDINGS: dict[FindingCode, FindingKind] = {
    "all-pairs": FindingKind("a column and a row that broadcast to all pairs of their elements"),
    "changed-in-place": FindingKind("an in-place change of a value that is saved for backward"),
    "copy": FindingKind("a reshape that copies, because the strides do not allow a view", is_told=False),
    "graph-break": FindingKind("compiled code at which torch.compile breaks the graph"),
    "host-sync": FindingKind("the host waits for the GPU: a value is read, printed or branched on", is_told=False),
    "loss": FindingKind("a loss that gets probabilities in place of logits, or the like"),
    "no-effect": FindingKind("a conversion to a dtype or layout that the tensor already has", is_told=False),
    "no-gradient": FindingKind("a layer that gets no gradient from the module's results"),
    "one-element": FindingKind("a softmax, norm or standard deviation over a single element"),
    "pytorch-warning": FindingKind("a warning of PyTorch, shown at the call that raises it"),
    "recompile": FindingKind("an argument or a state of compiled code for which its calls are compiled again"),
    "training": FindingKind("parameters that no optimizer step changes, or gradients that are never set to zero"),
    "unregistered": FindingKind("a layer or a parameter in a list, a dictionary or a plain attribute of its module"),
    "upcast": FindingKind("operands of mixed precision, computed in the widest dtype"),
    "wrong-gradient": FindingKind("a custom backward that raises, or whose gradient does not fit its argument"),
}
TOLD: frozenset[FindingCode] = frozenset[FindingCode](code for code, kind in FINDINGS.items() if kind.is_told)
"""The findings that are reported by default."""
_OTHER_CODES = ("dimension", "graph", "comment", "pass", "kernel", "unreached")
_CODES = frozenset({*FINDINGS, *get_args(FailureKind), *_OTHER_CODES})
_IGNORABLE = frozenset({*FINDINGS, "dimension"})
_NEWLINE = re.compile(r"\r\n|\r|\n")


Severities: TypeAlias = Mapping[str, RuleSeverity]
"""The severities that a project sets, by code."""
UNSET: Severities = {}


def told(
    problems: Iterable[Problem], codes: Collection[FindingCode], text: str, severities: Severities = UNSET
) -> tuple[Problem, ...]:
    """Return the problems to report, with the severity that the project sets: findings only of `codes`, and none that a
    comment ignores.
    """
    rated = ((p, severity_of(p.code, p.severity, codes, severities)) for p in problems)
    kept = (replace(p, severity=severity) for p, severity in rated if severity is not None)
    return tuple(p for p in kept if not is_ignored(p.span, p.code, text))


def told_outcome(
    outcome: Outcome, codes: Collection[FindingCode], text: str, severities: Severities = UNSET
) -> Outcome:
    """Return an outcome with only the remarks to report, and with the severities that the project sets.

    A failure that a comment ignores, or that is off, is not an error.
    """
    if isinstance(outcome, Trace):
        is_built = outcome.info("graph") is not None
        rated = ((r, severity_of(code_of(r, is_built), r.severity, codes, severities)) for r in outcome.remarks)
        kept = (replace(remark, severity=severity) for remark, severity in rated if severity is not None)
        remarks = (r for r in kept if r.span is None or not is_ignored(r.span, code_of(r, is_built), text))
        return replace(outcome, remarks=tuple(remarks))
    severity = severity_of(outcome.kind, outcome.severity, codes, severities) or "information"
    is_error = outcome.span is None or not is_ignored(outcome.span, outcome.kind, text)
    return replace(outcome, severity=severity if is_error else "information")


T = TypeVar("T", bound=ProblemSeverity)


def severity_of(code: str, severity: T, codes: Collection[FindingCode], severities: Severities) -> T | Severity | None:
    """Return the severity to report a problem of a code with, None if it is not reported.

    Findings are those of `codes`. The project's severity enables or disables a code too, unless the user has: `codes`
    then differ from the default.
    """
    rated, in_codes = severities.get(code), code not in FINDINGS or code in codes
    is_users = code in FINDINGS and in_codes != FINDINGS[code].is_told
    is_reported = in_codes if is_users or rated is None else rated != "off"
    return (severity if rated is None or rated == "off" else rated) if is_reported else None


def is_ignored(span: Span, code: str, text: str) -> bool:
    """Return True if a line of a problem has a comment `# fx: ignore`, or `# fx: ignore[code, …]` with its code."""
    if "fx:" not in text:
        return False
    ignored = _ignored(text)
    lines = range(span.line, span.end_line + 1)
    return any(line in ignored and (not ignored[line] or code in ignored[line]) for line in lines)


def ignoring(text: str, span: Span, code: str) -> TextChange | None:
    """Return the edit that adds a comment to ignore a code, on the last line of `span` with room for it.

    None if the code is that of an error, or if no comment is possible there, as within a string of several lines.
    """
    lines = _NEWLINE.split(text)
    if code not in _IGNORABLE:
        return None
    for number in range(min(span.end_line, len(lines)), span.line - 1, -1):
        line = lines[number - 1]
        match = IGNORE_COMMENT.search(line)
        has_codes = match is not None and match[1] is not None
        place = match.end(1) if match is not None and has_codes else len(line.rstrip())
        added = f", {code}" if has_codes else f"  # fx: ignore[{code}]"
        change = insertion(text, number, place, added)
        if change is not None:
            return change
    return None


def insertion(text: str, number: int, index: int, added: str) -> TextChange | None:
    """Return the edit that adds a comment at a character of a line; None if that is no comment there."""
    col = len(_NEWLINE.split(text)[number - 1][:index].encode(errors="replace"))
    change = TextChange(number, col, number, col, added)
    return change if change.keeps_program(text) else None


def without_ignore(text: str, span: Span) -> TextChange | None:
    """Return the edit that removes a comment to ignore problems, with its reason, up to another comment, and with its
    line if nothing else is there; None if it is no comment.
    """
    line = _NEWLINE.split(text)[span.line - 1].encode(errors="replace")
    before, (_, _, other) = line[: span.col].rstrip(), line[span.col :].partition(b"#")[2].partition(b"#")
    end = (span.line, len(line) - len(other) - 1) if other else (span.line, len(line)) if before else (span.line + 1, 0)
    change = TextChange(span.line, span.col if other else len(before), *end, "")
    return change if change.keeps_program(text) else None


def unknown_codes(file: str, text: str) -> Iterator[Problem]:
    """Yield a problem for each unknown code in a comment."""
    for number, line in enumerate(_NEWLINE.split(text), 1) if "fx:" in text else ():
        match = IGNORE_COMMENT.search(line)
        for word in re.finditer(r"[^\s,]+", match[1]) if match and match[1] else ():
            if word[0] not in _CODES and match is not None:
                start = len(line[: match.start(1) + word.start()].encode(errors="replace"))
                span = Span(file, number, start, number, start + len(word[0].encode(errors="replace")))
                told = f"`{word[0]}` is not the code of a problem; the codes of findings are {', '.join(FINDINGS)}."
                yield Problem(span, "warning", told, "comment")


def unused_ignores(
    file: str, text: str, outcomes: Iterable[tuple[Target, Outcome]], problems: Iterable[Problem]
) -> Iterator[Problem]:
    """Yield a problem for each comment that ignores nothing, in code that ran: all targets around its line are traced.

    `outcomes` are those of all targets of the file, and `problems` all of theirs, reported or not.
    """
    traced = [(target.span, outcome) for target, outcome in outcomes]
    here = [(p.span, p.code) for p in problems]
    for number, codes in _ignored(text).items() if "fx:" in text else ():
        line = _NEWLINE.split(text)[number - 1]
        around = [outcome for span, outcome in traced if span.line <= number <= span.end_line]
        runs = all(
            isinstance(outcome, Trace) and not any(u.span.line <= number <= u.span.end_line for u in outcome.unreached)
            for outcome in around
        )
        present = {code for span, code in here if span.line <= number <= span.end_line}
        if around and runs and not (present & codes if codes else present) and not codes - _CODES:
            match = IGNORE_COMMENT.search(line)
            start, end = (len(line[:i].encode(errors="replace")) for i in (match.span() if match else (0, len(line))))
            what = f"ignore[{', '.join(sorted(codes))}]" if codes else "ignore"
            message = f"`# fx: {what}` ignores nothing: the traces have no such problem on this line."
            yield Problem(Span(file, number, start, number, end), "information", message, "comment")


@lru_cache(maxsize=8)
def _ignored(text: str) -> dict[int, frozenset[str]]:
    """Return the ignored codes by line; an empty set means all codes."""
    matches = ((n, IGNORE_COMMENT.search(line)) for n, line in enumerate(_NEWLINE.split(text), 1) if "fx:" in line)
    return {n: frozenset(re.split(r"[\s,]+", match[1].strip()) if match[1] else ()) for n, match in matches if match}
