"""Convert reports to SARIF 2.1.0, the format that code hosts and CI services show as annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fx_lsp import __version__
from fx_lsp.commands.columns import character_column
from fx_lsp.commands.survey import FileReport, TargetReport, faults_of, is_problem, reached_by
from fx_lsp.features.pages import text_of_page
from fx_lsp.features.problems import Cause, Occurrence, describe, is_failure, other_targets
from fx_lsp.features.text import sentence
from fx_lsp.model import Failure, ProblemSeverity, Related, Severity, Span

_TOLD = ("error", "warning")
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(reports: Iterable[FileReport], base: Path) -> dict[str, Any]:
    """Return one SARIF log: errors and warnings at these levels, targets not traced for another reason as "note".

    Paths below `base` are relative to it. A failure in another file is at the target's name, with the other place as
    related.
    """
    results: list[dict[str, Any]] = []
    surveyed = list(reports)
    faults = faults_of(surveyed)
    for report in surveyed:
        if report.failure is not None:
            start = report.failure.span or Span(report.file, 1, 0, 1, 0)
            results.append(_failure(report.failure, sentence(describe(report.failure)), start, base, whole_file=True))
        results += [result for target in report.targets for result in _target_results(target, faults, base)]
        results += [_failure(c, sentence(c.message), c.span, base) for c in report.comments if c.span is not None]
    kinds = sorted({result["ruleId"] for result in results})
    driver = {"name": "fx-lsp", "version": __version__, "rules": [_rule(kind) for kind in kinds]}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"%SRCROOT%": {"uri": f"{base.as_uri().rstrip('/')}/"}},
                "results": results,
            }
        ],
    }


def _rule(code: str) -> dict[str, Any]:
    """Return the rule of a code with its page, so that the log explains it on any machine."""
    page = text_of_page(code)
    if page is None:
        return {"id": code}
    title = page.partition("\n")[0].partition(": ")[2]
    return {"id": code, "shortDescription": {"text": title}, "help": {"text": page, "markdown": page}}


def _target_results(
    report: TargetReport, faults: Mapping[Cause, Sequence[Occurrence]], base: Path
) -> Iterator[dict[str, Any]]:
    """Yield the mistakes of a target, without those that are listed at another target."""
    for one in reached_by(report):
        several = faults[one.cause]
        if several[0].target != one.target or not (is_failure(one.code) or one.severity in _TOLD):
            continue
        is_elsewhere = is_failure(one.code) and one.span is not None and one.span.file != one.target.file
        here = one.target.name_span if one.span is None or is_elsewhere else one.span
        message = f"{one.target.name} was not traced: {one.message}" if is_failure(one.code) else one.message
        result = _result(one.code, one.severity, message, here, base)
        result["locations"][0]["logicalLocations"] = [{"fullyQualifiedName": one.target.name}]
        there = [Related(one.span, one.message)] if is_elsewhere and one.span is not None else []
        also = (Related(other.name_span, f"also reached from {other.name}") for other in other_targets(several))
        if related := [*there, *one.related, *also]:
            others = [(_location(other.span, base), sentence(other.message)) for other in related]
            result["relatedLocations"] = [{**location, "message": {"text": text}} for location, text in others]
        yield result


def _failure(failure: Failure, message: str, span: Span, base: Path, whole_file: bool = False) -> dict[str, Any]:
    severity = "error" if is_problem(failure, whole_file) else _milder(failure)
    return _result(failure.kind, severity, message, span, base)


def _milder(failure: Failure) -> Severity:
    return "warning" if failure.severity == "warning" else "information"


def _result(rule: str, severity: ProblemSeverity, message: str, span: Span, base: Path) -> dict[str, Any]:
    return {
        "ruleId": rule,
        "level": severity if severity in _TOLD else "note",
        "message": {"text": message},
        "locations": [_location(span, base)],
    }


def _location(span: Span, base: Path) -> dict[str, Any]:
    region = {
        "startLine": span.line,
        "startColumn": character_column(span.file, span.line, span.col) + 1,
        "endLine": span.end_line,
        "endColumn": character_column(span.file, span.end_line, span.end_col) + 1,
    }
    return {"physicalLocation": {"artifactLocation": _artifact(span.file, base), "region": region}}


def _artifact(file: str, base: Path) -> dict[str, Any]:
    path = Path(file)
    if path.is_relative_to(base):
        return {"uri": quote(path.relative_to(base).as_posix()), "uriBaseId": "%SRCROOT%"}
    return {"uri": path.as_uri()}
