"""The texts that the client has open, and the notifications that change them."""

from __future__ import annotations

import os
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.uris import from_fs_path, to_fs_path

from fx_lsp.features.uris import SCHEME
from fx_lsp.server import from_proto

if TYPE_CHECKING:
    from fx_lsp.server.session import Server


@dataclass(frozen=True)
class Document:
    """One version of an open text. `file` is the absolute path that it is traced as."""

    uri: str
    file: str
    version: int
    lines: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.lines)


class Documents:
    """The open documents by URI and by file."""

    def __init__(self) -> None:
        self._by_uri: dict[str, Document] = {}
        self._by_file: dict[str, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(tuple(self._by_uri.values()))

    def get(self, uri: str) -> Document | None:
        """The open document with this URI."""
        return self._by_uri.get(uri)

    def of_file(self, file: str) -> Document | None:
        """The open document that is traced as this file."""
        return self._by_file.get(file)

    def put(self, document: Document) -> None:
        """Adds a document or a new version of it."""
        self._by_uri[document.uri] = document
        self._by_file[document.file] = document

    def remove(self, uri: str) -> Document | None:
        """Forgets a document and returns what it was."""
        document = self._by_uri.pop(uri, None)
        if document is not None:
            self._by_file.pop(document.file, None)
        return document


def did_open(server: Server, params: types.DidOpenTextDocumentParams) -> None:
    """A Python file is traced; a view of ours is kept up to date from now on; anything else is ignored."""
    item = params.text_document
    if item.uri.startswith(SCHEME + ":"):
        server.views.opened(item.uri)
        return
    file = from_proto.file_of_uri(item.uri, server.roots())
    if file is None or item.language_id not in ("python", "") or server.views.is_view_file(file):
        return
    lines = from_proto.split_lines(from_proto.clean_text(item.text))
    document = Document(item.uri, file, item.version, tuple(lines))
    server.documents.put(document)
    _trace(server, document)


def did_change(server: Server, params: types.DidChangeTextDocumentParams) -> None:
    """Only the text is brought up to date here; the engine waits until the typing pauses."""
    document = server.documents.get(params.text_document.uri)
    if document is None:
        return
    lines = list(document.lines)
    for change in params.content_changes:
        lines = from_proto.apply_change(lines, change, server.encoding)
    changed = Document(document.uri, document.file, params.text_document.version, tuple(lines))
    server.documents.put(changed)
    server.typed()
    _trace(server, changed)


def did_save(server: Server, params: types.DidSaveTextDocumentParams) -> None:
    """The buffer was traced before; saving is a moment to look whether files that it imports have changed on disk."""
    if server.engine is not None and (document := server.documents.get(params.text_document.uri)) is not None:
        server.engine.saved(document.file)


def did_change_watched_files(server: Server, params: types.DidChangeWatchedFilesParams) -> None:
    """Files were changed outside the editor, or saved in it."""
    files = [file for change in params.changes if (file := from_proto.file_of_uri(change.uri, server.roots()))]
    if server.engine is not None and files:
        server.engine.changed_on_disk(files)


def did_close(server: Server, params: types.DidCloseTextDocumentParams) -> None:
    """The file's problems go with it."""
    uri = params.text_document.uri
    if uri.startswith(SCHEME + ":"):
        server.views.closed(uri)
        return
    document = server.documents.remove(uri)
    if document is None:
        return
    server.forget(document)
    if server.engine is not None:
        server.engine.close(document.file)
    server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


def read_source(server: Server, file: str) -> str | None:
    """The text of a file as the client has it, else as it is on disk in whatever encoding, or None without the file."""
    document = server.documents.of_file(file)
    if document is not None:
        return document.text
    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError):
        return None
    try:
        lines = iter(data.splitlines(keepends=True))
        encoding, _ = tokenize.detect_encoding(lambda: next(lines, b""))
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = data.decode("utf-8", "replace")
    return text.replace("\r\n", "\n")


def uri_of_file(server: Server, file: str) -> str:
    """The URI that the client uses for a file."""
    document = server.documents.of_file(file)
    return document.uri if document is not None else from_fs_path(file) or Path(file).as_uri()


def roots_of(folders: list[str], file: str) -> tuple[str, ...]:
    """The workspace folders, those that hold `file` first (the innermost at the front); its own folder without any."""
    inside = sorted((f for f in folders if file.startswith(f.rstrip(os.sep) + os.sep)), key=len, reverse=True)
    rest = [f for f in folders if f not in inside]
    return (*inside, *rest) or (str(Path(file).parent),)


def folder_paths(uris: list[str]) -> list[str]:
    """The paths of folder URIs that are on this machine."""
    return [path for path in map(to_fs_path, uris) if path]


def _trace(server: Server, document: Document) -> None:
    if server.engine is not None:
        server.engine.open(document.file, document.text, roots_of(server.roots(), document.file))
