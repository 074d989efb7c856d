"""Convert the results of a check to the formats that code hosts and CI services show at the lines of a change."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fx_lsp import __version__
from fx_lsp.commands.check.results import CheckResult, path_below
from fx_lsp.commands.check.survey import FileReport
from fx_lsp.commands.places import character_column
from fx_lsp.features.wording.problems import text_of_page
from fx_lsp.features.wording.text import sentence
from fx_lsp.model import Span

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_FINGERPRINT = "fxLsp/v1"
"""The name of the fingerprint; its number changes with the way to compute it."""
_GITHUB = {"error": "error", "warning": "warning", "information": "notice"}
_GITLAB = {"error": "major", "warning": "minor", "information": "info"}


def to_sarif(results: Iterable[CheckResult], base: Path) -> dict[str, Any]:
    """Return one SARIF log: errors and warnings at these levels, others as "note". Paths below `base` are relative."""
    listed = [_result(result, base) for result in results]
    kinds = sorted({result["ruleId"] for result in listed})
    driver = {"name": "fx-lsp", "version": __version__, "rules": [_rule(kind) for kind in kinds]}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {"%SRCROOT%": {"uri": f"{base.as_uri().rstrip('/')}/"}},
                "results": listed,
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


def _result(result: CheckResult, base: Path) -> dict[str, Any]:
    location = _location(result.span, base)
    if result.target:
        location["logicalLocations"] = [{"fullyQualifiedName": result.target}]
    converted = {
        "ruleId": result.code,
        "level": "note" if result.severity == "information" else result.severity,
        "message": {"text": result.message},
        "locations": [location],
        "partialFingerprints": {_FINGERPRINT: result.fingerprint},
    }
    if result.related:
        others = [(_location(other.span, base), sentence(other.message)) for other in result.related]
        converted["relatedLocations"] = [{**location, "message": {"text": text}} for location, text in others]
    return converted


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


def to_github(results: Iterable[CheckResult], base: Path) -> str:
    """Return the workflow commands of GitHub Actions, one on each line. Paths below `base` are relative."""
    return "".join(f"{_command(result, base)}\n" for result in results)


def _command(result: CheckResult, base: Path) -> str:
    span = result.span
    properties = {"file": path_below(span.file, base), "line": span.line, "title": f"fx-lsp: {result.code}"}
    if span.end_line == span.line:
        columns = (character_column(span.file, span.line, col) for col in (span.col, span.end_col))
        properties |= dict(zip(("col", "endColumn"), (column + 1 for column in columns), strict=True))
    texts = (f"{name}={_escaped(str(value), ':,')}" for name, value in properties.items())
    return f"::{_GITHUB[result.severity]} {','.join(texts)}::{_escaped(result.message)}"


def _escaped(text: str, others: str = "") -> str:
    """Return a text with the characters encoded that end a command, or one of its properties."""
    for character in f"%\r\n{others}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def to_gitlab(results: Iterable[CheckResult], base: Path) -> list[dict[str, Any]]:
    """Return a report of GitLab's Code Quality."""
    return [
        {
            "description": result.message,
            "check_name": f"fx-lsp/{result.code}",
            "fingerprint": result.fingerprint,
            "severity": _GITLAB[result.severity],
            "location": {"path": path_below(result.span.file, base), "lines": {"begin": result.span.line}},
        }
        for result in results
    ]


def to_junit(reports: Sequence[FileReport], results: Sequence[CheckResult], base: Path) -> str:
    """Return a JUnit report: a suite for each file, with a test for each target and one for the file itself.

    A test fails if its target has an error. Warnings and targets that were not traced are in its output.
    """
    suites = ET.Element("testsuites", name="fx-lsp")
    for report in reports:
        name = path_below(report.file, base)
        seconds = {target.target.name: target.seconds for target in report.targets}
        cases = {case: _case(name, case, time) for case, time in {"": 0.0, **seconds}.items()}
        for result in (r for r in results if r.span.file == report.file):
            case = cases[result.target if result.target in cases else ""]
            text = f"{name}:{result.span.line}: {result.message} [{result.code}]"
            if result.severity == "error":
                ET.SubElement(case, "failure", message=result.message, type=result.code).text = text
            else:
                output = case.find("system-out")
                output = ET.SubElement(case, "system-out") if output is None else output
                output.text = f"{output.text or ''}{text}\n"
        failed = sum(case.find("failure") is not None for case in cases.values())
        suite = ET.SubElement(suites, "testsuite", name=name, tests=str(len(cases)), failures=str(failed))
        suite.extend(cases.values())
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _case(file: str, target: str, seconds: float) -> ET.Element:
    return ET.Element("testcase", classname=file, name=target or "the file", time=f"{seconds:.3f}")
