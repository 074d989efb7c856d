"""Convert fx-lsp's terms to LSP. Only this module writes client columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lsprotocol import types

from fx_lsp.features.hints import Hint
from fx_lsp.features.hover import Hover
from fx_lsp.features.lenses import Lens
from fx_lsp.features.source.completion import Completion
from fx_lsp.features.source.pin import TextChange
from fx_lsp.features.wording.problems import Problem
from fx_lsp.model import Span

SHOW_STAGE = "fxLsp.showStage"
_COMMANDS = {
    "show stage": SHOW_STAGE,
    "show failure": "fxLsp.showFailure",
    "show menu": "fxLsp.menu",
    "run pass": "fxLsp.runPass",
    "bench": "fxLsp.bench",
    "write kernel": "fxLsp.writeKernel",
}

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "information": types.DiagnosticSeverity.Information,
    "hint": types.DiagnosticSeverity.Hint,
}
_KINDS = {
    "parameter": types.CompletionItemKind.Variable,
    "constructor": types.CompletionItemKind.Constructor,
    "context": types.CompletionItemKind.Function,
    "value": types.CompletionItemKind.Value,
    "dtype": types.CompletionItemKind.Class,
    "device": types.CompletionItemKind.Constant,
}


def position(lines: Sequence[str], line: int, col: int, encoding: str) -> types.Position:
    """Return (line, column) as a client position; a place beyond the end of the text becomes its end."""
    if line > len(lines):
        line, col = len(lines), len(lines[-1].encode())
    content = lines[max(line, 1) - 1].rstrip("\r\n")
    return types.Position(line=max(line, 1) - 1, character=_units(content, max(col, 0), encoding))


def range_(lines: Sequence[str], span: Span, encoding: str) -> types.Range:
    """Return a span of the document with these lines as a client range."""
    return types.Range(
        start=position(lines, span.line, span.col, encoding), end=position(lines, span.end_line, span.end_col, encoding)
    )


def below(range_: types.Range, lines: int) -> types.Range:
    """Return a range in a text with that many more lines at its top."""
    start, end = (types.Position(at.line + lines, at.character) for at in (range_.start, range_.end))
    return types.Range(start, end)


def code_lens(lens: Lens, uri: str, lines: Sequence[str], encoding: str, place: int) -> types.CodeLens:
    """Return a lens as a command on the document `uri`; `place` counts the lenses over the same definition.

    Clients sort by the start of the range, some of them unstably, so each lens starts at another column.
    """
    span = replace(lens.span, col=min(place, lens.span.end_col))
    return types.CodeLens(range=range_(lines, span, encoding), command=command(lens, uri))


def command(lens: Lens, uri: str) -> types.Command:
    """Return the command of a lens over a target of the document `uri`."""
    words: list[Any] = []
    if lens.action == "show stage":
        words = [lens.stage, lens.work] if lens.work else [lens.stage]
    elif lens.action == "run pass" and lens.target is not None:
        words = [lens.target.file, lens.target.name]
    elif lens.action == "bench" and (lens.work or lens.by_line):
        words = [{"byLine": True} if lens.by_line else {"work": lens.work}]
    name, tooltip = _COMMANDS[lens.action], lens.tooltip or None
    return types.Command(title=lens.title, command=name, arguments=[uri, lens.name, *words], tooltip=tooltip)


def hover(value: Hover, lines: Sequence[str], encoding: str, markdown: bool) -> types.Hover:
    """Return a hover, as plain text for clients without Markdown."""
    kind = types.MarkupKind.Markdown if markdown else types.MarkupKind.PlainText
    return types.Hover(
        contents=types.MarkupContent(kind=kind, value=value.markdown), range=range_(lines, value.span, encoding)
    )


def inlay_hint(hint: Hint, lines: Sequence[str], encoding: str) -> types.InlayHint:
    """Return a hint; one after a name is of the kind "type"."""
    return types.InlayHint(
        position=position(lines, hint.line, hint.col, encoding),
        label=hint.label,
        kind=None if hint.ends_line else types.InlayHintKind.Type,
        tooltip=hint.tooltip or None,
        padding_left=hint.padded or None,
    )


def diagnostic(
    problem: Problem,
    lines: Sequence[str],
    encoding: str,
    location: Callable[[Span], types.Location] | None,
    page: str | None = None,
) -> types.Diagnostic:
    """Return a problem; `location` converts related places, None if the client does not show them. `page` explains its
    code.
    """
    related = None
    if location is not None and problem.related:
        related = [
            types.DiagnosticRelatedInformation(location=location(r.span), message=r.message) for r in problem.related
        ]
    return types.Diagnostic(
        range=range_(lines, problem.span, encoding),
        message=problem.message,
        severity=_SEVERITIES[problem.severity],
        code=problem.code,
        code_description=None if page is None else types.CodeDescription(href=page),
        source="fx-lsp",
        related_information=related,
        tags=[types.DiagnosticTag.Unnecessary] if problem.faded else None,
    )


def text_edit(edit: TextChange, lines: Sequence[str], encoding: str) -> types.TextEdit:
    """Return a change of the text as an edit."""
    start = position(lines, edit.line, edit.col, encoding)
    return types.TextEdit(types.Range(start, position(lines, edit.end_line, edit.end_col, encoding)), edit.text)


def completion(offer: Completion, place: int, edit: types.TextEdit) -> types.CompletionItem:
    """Return an offer that makes an edit; `place` counts offers from the best."""
    return types.CompletionItem(
        label=offer.label,
        kind=_KINDS[offer.kind],
        detail=offer.detail or None,
        sort_text=f"{place:03}",
        filter_text=offer.text,
        text_edit=edit,
        preselect=place == 0 or None,
    )


def _units(line: str, col: int, encoding: str) -> int:
    if encoding == types.PositionEncodingKind.Utf8:
        return min(col, len(line.encode()))
    if line.isascii():
        return min(col, len(line))
    before = line.encode()[:col].decode(errors="ignore")
    return len(before) if encoding == types.PositionEncodingKind.Utf32 else len(before.encode("utf-16-le")) // 2
