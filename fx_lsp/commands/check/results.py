"""List the mistakes of a check, each once with its fingerprint, which stays the same if the mistake moves."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fx_lsp.commands.check.survey import FileReport, TargetReport, faults_of, is_problem, reached_by
from fx_lsp.commands.places import cell_of, line_name, line_text
from fx_lsp.features.wording.problems import Cause, Occurrence, describe, is_failure, other_targets
from fx_lsp.features.wording.text import sentence
from fx_lsp.model import Failure, ProblemSeverity, Related, Span

_CHANGING = re.compile(r"\bline \d+|\b0x[0-9a-f]+")
"""Parts of a message that change although the mistake does not: lines and addresses."""


@dataclass(frozen=True)
class FingerprintedMistake:
    """Hold a mistake in the words of a report: `file` is the path of the checked file that first reached it."""

    code: str
    file: str
    message: str
    fingerprint: str


class Fingerprints:
    """Hold the fingerprints of the mistakes in files that are added one after another.

    A fingerprint depends on the code, the path below `base`, the message and the text of the line. Mistakes that are
    equal in all of these differ by their number.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._by_cause: dict[Cause, FingerprintedMistake] = {}
        self._times = Counter[tuple[str, ...]]()

    @property
    def mistakes(self) -> Collection[FingerprintedMistake]:
        """Return all mistakes so far."""
        return self._by_cause.values()

    def add(self, report: FileReport) -> None:
        """Add the mistakes of a file."""
        path = path_below(report.file, self.base)

        def add(cause: Cause, code: str, span: Span, message: str) -> None:
            if cause not in self._by_cause:
                fingerprint = self._fingerprint(code, span, message)
                self._by_cause[cause] = FingerprintedMistake(code, path, message, fingerprint)

        if report.failure is not None:
            start = report.failure.span or Span(report.file, 1, 0, 1, 0)
            add(cause_of_file(report), report.failure.kind, start, report.failure.message)
        for target in report.targets:
            for one in reached_by(target):
                add(one.cause, one.code, one.span or one.target.name_span, one.message)
        for comment in report.comments:
            if comment.span is not None:
                add(cause_of_comment(comment), comment.kind, comment.span, comment.message)

    def __getitem__(self, cause: Cause) -> str:
        """Return the fingerprint of a mistake of an added file."""
        return self._by_cause[cause].fingerprint

    def _fingerprint(self, code: str, span: Span, message: str) -> str:
        text = line_text(span.file, span.line).strip()
        identity = (code, path_below(span.file, self.base), _CHANGING.sub("", message), text)
        self._times[identity] += 1
        data = "\0".join([*identity, str(self._times[identity])]).encode("utf-8", "surrogatepass")
        return hashlib.sha256(data).hexdigest()[:40]


def cause_of_file(report: FileReport) -> Cause:
    """Return the identity of a file's own failure within a check."""
    return report.file, "the file"


def cause_of_comment(comment: Failure) -> Cause:
    """Return the identity of a mistake in a comment within a check."""
    return comment.span, f"comment: {comment.message}"


def path_below(file: str, base: Path) -> str:
    """Return the path of a file, relative to `base` if it is below."""
    path = Path(file)
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()


_TOLD = ("error", "warning")


@dataclass(frozen=True)
class CheckResult:
    """Hold one mistake, or one target that was not traced for another reason ("information").

    `span` is in a checked file: a failure in another file is at the target's name, with the other place in `related`.
    `target` is the name of the function or module, "" for a whole file or a comment. `fingerprint` stays the same if
    the mistake moves.
    """

    code: str
    severity: ProblemSeverity
    message: str
    span: Span
    target: str = ""
    related: tuple[Related, ...] = ()
    fingerprint: str = ""


def results_of(reports: Iterable[FileReport], fingerprints: Fingerprints) -> list[CheckResult]:
    """Return the results of a check, file by file; a mistake that several targets reach is at the first."""
    surveyed = list(reports)
    faults = faults_of(surveyed)
    results: list[CheckResult] = []
    for report in surveyed:
        if report.failure is not None and not report.accepted:
            start = report.failure.span or Span(report.file, 1, 0, 1, 0)
            whole = _failure(report.failure, sentence(describe(report.failure)), start, whole_file=True)
            results.append(replace(whole, fingerprint=fingerprints[cause_of_file(report)]))
        for target in report.targets:
            results += _results_of_target(target, faults, fingerprints)
        for comment in report.comments:
            if comment.span is not None:
                result = _failure(comment, sentence(comment.message), comment.span)
                results.append(replace(result, fingerprint=fingerprints[cause_of_comment(comment)]))
    return [_in_document(result) for result in results]


def _results_of_target(
    report: TargetReport, faults: Mapping[Cause, Sequence[Occurrence]], fingerprints: Fingerprints
) -> Iterator[CheckResult]:
    """Yield the mistakes of a target, without those that are listed at another target."""
    for one in reached_by(report):
        several = faults[one.cause]
        if several[0].target != one.target or not (is_failure(one.code) or one.severity in _TOLD):
            continue
        is_elsewhere = is_failure(one.code) and one.span is not None and one.span.file != one.target.file
        here = one.target.name_span if one.span is None or is_elsewhere else one.span
        message = f"{one.target.name} was not traced: {one.message}" if is_failure(one.code) else one.message
        there = [Related(one.span, one.message)] if is_elsewhere and one.span is not None else []
        also = (Related(other.name_span, f"also reached from {other.name}") for other in other_targets(several))
        related, fingerprint = (*there, *one.related, *also), fingerprints[one.cause]
        yield CheckResult(one.code, one.severity, message, here, one.target.name, related, fingerprint)


def _in_document(result: CheckResult) -> CheckResult:
    """Return a result in a notebook with the cell and line in its message, and with its place at the notebook's start:
    code hosts show lines of a file's text.
    """

    def moved(span: Span, message: str) -> tuple[Span, str]:
        if cell_of(span.file, span.line) is None:
            return span, message
        return Span(span.file, 1, 0, 1, 0), f"{line_name(span)}: {message}"

    span, message = moved(result.span, result.message)
    related = tuple(Related(*moved(other.span, other.message)) for other in result.related)
    return replace(result, span=span, message=message, related=related)


def _failure(failure: Failure, message: str, span: Span, whole_file: bool = False) -> CheckResult:
    severity = "error" if is_problem(failure, whole_file) else failure.severity
    return CheckResult(failure.kind, severity, message, span)
