"""Handle notifications that open, change, save and close texts."""

from __future__ import annotations

from lsprotocol import types

from fx_lsp.features.wording.uris import SCHEME
from fx_lsp.server import from_proto
from fx_lsp.server.client import Client
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.display.kernel_checks import KernelChecks
from fx_lsp.server.display.views import Views, is_view_file
from fx_lsp.server.documents import OpenText
from fx_lsp.server.refresh import RefreshTimer
from fx_lsp.server.session import Session


def did_open(session: Session, views: Views, checks: KernelChecks, params: types.DidOpenTextDocumentParams) -> None:
    """Trace a Python file, and check it if it is of kernels; keep a view up to date; ignore anything else."""
    item = params.text_document
    if item.uri.startswith(SCHEME + ":"):
        views.opened(item.uri)
        return
    file = from_proto.file_of_uri(item.uri, session.roots())
    if file is None or item.language_id not in ("python", "") or is_view_file(file):
        return
    lines = from_proto.split_lines(from_proto.clean_text(item.text))
    document = OpenText(item.uri, file, item.version, tuple(lines))
    session.documents.put(document)
    trace(session, document)
    checks.opened(document)


def did_change(session: Session, refresh: RefreshTimer, params: types.DidChangeTextDocumentParams) -> None:
    """Update the text; the engine waits until the typing pauses."""
    document = session.documents.get(params.text_document.uri)
    if document is None:
        return
    lines = list(document.lines)
    for change in params.content_changes:
        lines = from_proto.apply_change(lines, change, session.encoding)
    refresh.typed()
    document = OpenText(document.uri, document.file, params.text_document.version, tuple(lines))
    session.documents.put(document)
    trace(session, document)


def did_save(session: Session, checks: KernelChecks, params: types.DidSaveTextDocumentParams) -> None:
    """Check whether imported files have changed on disk, and check a file of kernels; the text itself was traced
    before.
    """
    if session.engine is not None and (document := session.documents.get(params.text_document.uri)) is not None:
        session.engine.saved(document.file)
        checks.opened(document)


def did_change_watched_files(session: Session, params: types.DidChangeWatchedFilesParams) -> None:
    """Report to the engine the files that were changed outside the editor, or saved in it."""
    files = [file for change in params.changes if (file := from_proto.file_of_uri(change.uri, session.roots()))]
    if session.engine is not None and files:
        session.engine.changed_on_disk(files)


def did_close(
    session: Session,
    client: Client,
    views: Views,
    benchmarks: Benchmarks,
    refresh: RefreshTimer,
    checks: KernelChecks,
    params: types.DidCloseTextDocumentParams,
) -> None:
    """Remove a text, and its problems."""
    uri = params.text_document.uri
    if uri.startswith(SCHEME + ":"):
        views.closed(uri)
        return
    document = forget(session, benchmarks, refresh, uri)
    if document is not None:
        checks.stop(document.file)
        client.clear(uri)


def trace(session: Session, document: OpenText) -> None:
    """Trace a new version of a text."""
    if session.engine is not None:
        session.engine.open(document.file, document.text, session.roots_of(document.file))


def forget(session: Session, benchmarks: Benchmarks, refresh: RefreshTimer, uri: str) -> OpenText | None:
    """Remove a closed text or notebook, and return it; None if it was not open."""
    document = session.documents.remove(uri)
    if document is not None:
        refresh.forget(document.file)
        benchmarks.forget(document.file)
        if session.engine is not None:
            session.engine.close(document.file)
    return document
