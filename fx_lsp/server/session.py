"""Hold the state of one connection: the client's capabilities, its settings and documents, and the engine."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types
from pygls.uris import from_fs_path

from fx_lsp import files
from fx_lsp.features.uris import SCHEME, View, format_uri
from fx_lsp.server import from_proto
from fx_lsp.server.documents import Documents
from fx_lsp.server.open_views import OpenViews
from fx_lsp.server.settings import Settings

if TYPE_CHECKING:
    from pygls.workspace import Workspace

    from fx_lsp.tracing.engine import Engine, FileState


@dataclass(frozen=True)
class Capabilities:
    """Hold the client's capabilities that fx-lsp uses."""

    markdown: bool = False
    show_document: bool = False
    text_document_content: bool = False
    code_lens_refresh: bool = False
    inlay_hint_refresh: bool = False
    progress: bool = False
    configuration: bool = False
    register_configuration: bool = False
    register_links: tuple[str, ...] = ()
    register_watchers: bool = False
    related_information: bool = False
    code_pages: bool = False
    diagnostic_version: bool = False
    faded: bool = False
    code_actions: bool = False
    document_changes: bool = False
    apply_edit: bool = False


@dataclass
class Session:
    """Hold the state of one connection. The engine exists once the settings are known: `started` is set then.

    `first_settings` came with `initialize`; later settings of the client extend them.
    """

    capabilities: Capabilities = field(default_factory=Capabilities)
    settings: Settings = field(default_factory=Settings)
    first_settings: Settings = field(default_factory=Settings)
    encoding: str = str(types.PositionEncodingKind.Utf16.value)
    workspace: Workspace | None = None
    documents: Documents = field(default_factory=Documents)
    views: OpenViews = field(default_factory=OpenViews)
    engine: Engine | None = None
    started: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False

    def roots(self) -> list[str]:
        """Return the paths of the workspace folders on this machine."""
        if self.workspace is None:
            return []
        uris = [folder.uri for folder in self.workspace.folders.values()]
        uris = uris or [uri for uri in (self.workspace.root_uri,) if uri]
        paths = map(from_proto.path_of_uri, uris)
        return [path for path in paths if path]

    def roots_of(self, file: str) -> tuple[str, ...]:
        """Return the workspace folders, the innermost folder of `file` first; without any, the file's own folder."""
        folders = self.roots()
        inside = sorted((f for f in folders if file.startswith(f.rstrip(os.sep) + os.sep)), key=len, reverse=True)
        rest = [f for f in folders if f not in inside]
        return (*inside, *rest) or (str(Path(file).parent),)

    def state(self, uri: str) -> FileState | None:
        """Return the engine's state of an open document, or None. Never waits."""
        document = self.documents.get(uri)
        return None if document is None or self.engine is None else self.engine.state(document.file)

    def source(self, file: str) -> str | None:
        """Return the text of a file in the client, else on disk; None if the file does not exist."""
        document = self.documents.of_file(file)
        return _read(file) if document is None else document.text

    def uri_of_view(self, view: View) -> str | None:
        """Return the client's URI of a view; None if the client reads files, and this one is not written."""
        shown = self.views.get(view)
        if shown and shown.uri:
            return shown.uri
        if shown and shown.path:
            return shown.path.as_uri()
        if self.opens_uris:
            return f"{SCHEME}://{format_uri(view).removeprefix(f'{SCHEME}:')}"  # editors take other forms for paths
        return None

    @property
    def opens_uris(self) -> bool:
        """Return True if the client reads views by their URIs, and needs no files of them."""
        return self.capabilities.text_document_content or self.settings.virtual_documents

    def uri_of_file(self, file: str) -> str:
        """Return the URI that the client uses for a file."""
        document = self.documents.of_file(file)
        return document.uri if document is not None else from_fs_path(file) or Path(file).as_uri()


def _read(file: str) -> str | None:
    try:
        return files.read_python_leniently(file)
    except OSError:
        return None
