"""Convert results to SARIF 2.1.0, the format that code hosts and CI services show as annotations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fx_lsp import __version__
from fx_lsp.commands.columns import character_column
from fx_lsp.commands.results import CheckResult
from fx_lsp.features.pages import text_of_page
from fx_lsp.features.text import sentence
from fx_lsp.model import Span

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_FINGERPRINT = "fxLsp/v1"
"""The name of the fingerprint; its number changes with the way to compute it."""


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
