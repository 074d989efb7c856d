"""Handle `textDocument/diagnostic`, and requests on all files of the workspace: their problems, and their targets."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from lsprotocol import types

from fx_lsp import files
from fx_lsp.model import TargetKind
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.display.diagnostics import diagnostics_of
from fx_lsp.server.documents import OpenText
from fx_lsp.server.session import Session

OPTIONS = types.DiagnosticOptions(identifier="fx-lsp", inter_file_dependencies=True, workspace_diagnostics=True)
_FUNCTION = types.SymbolKind.Function
_KINDS: dict[TargetKind, types.SymbolKind] = {
    "module": types.SymbolKind.Class,
    "method": types.SymbolKind.Method,
    "script": types.SymbolKind.File,
}
"""The kinds of targets in the client; others are functions."""


async def document_diagnostic(
    session: Session, params: types.DocumentDiagnosticParams
) -> types.DocumentDiagnosticReport:
    """Return the problems of a document at this moment; a refresh follows later traces.

    They are empty for views and cells of notebooks, whose problems are published, and for clients that are not told of
    new problems.
    """
    document = session.documents.get(params.text_document.uri) if session.capabilities.pulls else None
    shown = (None if document is None or document.cells else diagnostics_of(session, document)) or []
    result_id = _result_id(shown)
    if params.previous_result_id == result_id:
        return types.RelatedUnchangedDocumentDiagnosticReport(result_id=result_id)
    return types.RelatedFullDocumentDiagnosticReport(items=shown, result_id=result_id)


async def workspace_diagnostic(
    session: Session, params: types.WorkspaceDiagnosticParams
) -> types.WorkspaceDiagnosticReport:
    """Return the problems of open documents, and those of other files in stored answers that are still valid. Nothing
    is traced for it. A client asks again as soon as it has an answer: then the next one comes when results have
    changed.
    """
    if params.previous_result_ids and session.pulled is session.redrawn:
        await session.redrawn.wait()
    session.pulled = session.redrawn
    reports: list[types.WorkspaceDocumentDiagnosticReport] = []
    former = {each.uri: each.value for each in params.previous_result_ids}
    documents = [each for each in session.documents if not each.cells] if session.capabilities.pulls else []
    for uri, version, shown in [
        *((each.uri, each.version, diagnostics_of(session, each) or []) for each in documents),
        *([(uri, None, shown) async for uri, shown in _stored(session)] if documents else []),
    ]:
        result_id = _result_id(shown)
        if former.pop(uri, "") == result_id:
            reports.append(
                types.WorkspaceUnchangedDocumentDiagnosticReport(uri=uri, result_id=result_id, version=version)
            )
        else:
            reports.append(
                types.WorkspaceFullDocumentDiagnosticReport(uri, shown, version=version, result_id=result_id)
            )
    reports += (types.WorkspaceFullDocumentDiagnosticReport(uri, []) for uri in former)
    return types.WorkspaceDiagnosticReport(reports)


async def _stored(session: Session) -> AsyncIterator[tuple[str, list[types.Diagnostic]]]:
    """Yield the problems of files that are not open, one after another."""
    for file in await asyncio.to_thread(lambda: [*_closed_files(session)]):
        text, engine = await asyncio.to_thread(session.source, file), session.engine
        state = await engine.stored(file, text, session.roots_of(file)) if text and engine is not None else None
        if state is not None:
            uri = session.uri_of_file(file)
            document = OpenText(uri, file, 0, tuple(from_proto.split_lines(state.text)))
            yield uri, diagnostics_of(session, document, state) or []


def _result_id(shown: list[types.Diagnostic]) -> str:
    return hashlib.sha256(repr(shown).encode("utf-8", "surrogatepass")).hexdigest()[:16]


async def workspace_symbol(session: Session, params: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol]:
    """Return the targets whose names have the letters of the query, in their order. No code runs."""
    letters = params.query.casefold()
    symbols = await asyncio.to_thread(lambda: [*_symbols(session)])
    return [symbol for symbol in symbols if _matches(symbol.name.casefold(), letters)]


def _matches(name: str, letters: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in letters)


def _symbols(session: Session) -> Iterator[types.WorkspaceSymbol]:
    """Yield the targets of open documents, and those of other files on disk."""
    for document in session.documents:
        state = session.state(document.uri)
        for target in [each.target for each in state.targets] if state is not None else ():
            kind = _KINDS.get(target.kind, _FUNCTION)
            yield types.WorkspaceSymbol(session.location(target.name_span), target.name, kind)
    for file in _closed_files(session):
        uri = session.uri_of_file(file)
        with suppress(OSError):
            status = Path(file).stat()
            for name, kind, range_ in _targets_in(file, session.encoding, (status.st_mtime_ns, status.st_size)):
                yield types.WorkspaceSymbol(types.Location(uri, range_), name, kind)


@lru_cache(maxsize=1 << 12)
def _targets_in(file: str, encoding: str, state: tuple[int, int]) -> list[tuple[str, types.SymbolKind, types.Range]]:
    """Return the targets of a file on disk in a state of it: the names, their kinds, and their places."""
    from fx_lsp.tracing.source.targets import discover

    text = files.read_python_leniently(file)
    lines, targets = from_proto.split_lines(text), discover(file, text).targets
    return [(t.name, _KINDS.get(t.kind, _FUNCTION), to_proto.range_(lines, t.name_span, encoding)) for t in targets]


def _closed_files(session: Session) -> Iterator[str]:
    """Yield the Python files of the workspace that are not open."""
    from fx_lsp.tracing.calls.project_files import files_below

    for file in dict.fromkeys(file for root in session.roots() for file in files_below(root)):
        if session.documents.of_file(file) is None:
            yield file
