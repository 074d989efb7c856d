"""Hold the state of one connection: the client's capabilities, its settings and documents, and the engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lsprotocol import types
from pygls.uris import from_fs_path

from fx_lsp import files
from fx_lsp.features.kernel_files import KernelCheck
from fx_lsp.features.wording.uris import SCHEME, View, format_uri
from fx_lsp.messages.places import with_places
from fx_lsp.model import Outcome, Span
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.documents import Documents
from fx_lsp.server.open_views import OpenViews
from fx_lsp.server.settings import Settings, engine_settings

if TYPE_CHECKING:
    from pygls.workspace import Workspace

    from fx_lsp.tracing.engine import Engine, EngineSettings, FileState
    from fx_lsp.tracing.trust import FolderTrust
    from fx_lsp.tracing.workers.find_python import PythonChoice


T = TypeVar("T", bound=Outcome | None)


def _flag(path: str) -> bool:
    """Return a field that is True if a client has the capability at a path."""
    return field(default=False, metadata={"path": path})


@dataclass(frozen=True)
class Capabilities:
    """Hold the client's capabilities that fx-lsp uses. `pulls` means that it requests diagnostics, also when told that
    there are new ones; `resolved_in_hints` are the properties of inlay hints that it asks for when it needs them.
    """

    markdown: bool = False
    show_document: bool = _flag("window.show_document.support")
    text_document_content: bool = False
    code_lens_refresh: bool = _flag("workspace.code_lens.refresh_support")
    inlay_hint_refresh: bool = _flag("workspace.inlay_hint.refresh_support")
    resolved_in_hints: tuple[str, ...] = ()
    progress: bool = _flag("window.work_done_progress")
    configuration: bool = _flag("workspace.configuration")
    register_configuration: bool = _flag("workspace.did_change_configuration.dynamic_registration")
    register_in_views: tuple[str, ...] = ()
    register_watchers: bool = _flag("workspace.did_change_watched_files.dynamic_registration")
    related_information: bool = _flag("text_document.publish_diagnostics.related_information")
    code_pages: bool = _flag("text_document.publish_diagnostics.code_description_support")
    diagnostic_version: bool = _flag("text_document.publish_diagnostics.version_support")
    pulls: bool = False
    faded: bool = False
    code_actions: bool = _flag("text_document.code_action.code_action_literal_support")
    document_changes: bool = _flag("workspace.workspace_edit.document_changes")
    apply_edit: bool = _flag("workspace.apply_edit")


@dataclass
class Session:
    """Hold the state of one connection. The engine exists once the settings are known: `started` is set then.

    `first_settings` came with `initialize`; later settings of the client extend them. `asked_about` are the folders
    that the user was asked about, and `unstored_trust` the answers that could not be stored. `checks` are the checks of
    kernels, by the path of their file or the URI of their view. `picked` is the interpreter that the user has picked
    for this connection. `redrawn` is set, and replaced, when results have changed; `pulled` is the one at the last
    answer on the whole workspace.
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
    asked_about: set[str] = field(default_factory=set[str])
    checks: dict[str, KernelCheck] = field(default_factory=dict[str, KernelCheck])
    unstored_trust: dict[str, FolderTrust] = field(default_factory=dict[str, "FolderTrust"])
    picked: str | None = None
    redrawn: asyncio.Event = field(default_factory=asyncio.Event)
    pulled: asyncio.Event | None = None

    def roots(self) -> list[str]:
        """Return the paths of the workspace folders on this machine."""
        if self.workspace is None:
            return []
        uris = [folder.uri for folder in self.workspace.folders.values()]
        uris = uris or [uri for uri in (self.workspace.root_uri,) if uri]
        paths = map(from_proto.path_of_uri, uris)
        return [path for path in paths if path]

    def roots_of(self, file: str) -> tuple[str, ...]:
        """Return the workspace folder of `file`, then the other folders that the user trusts: code is imported from
        them, and interpreters are found in them.
        """
        own = self.folder_of(file)
        return own, *(folder for folder in self._nested(file) if folder != own and self.trust_of_folder(folder))

    def folder_of(self, file: str) -> str:
        """Return the innermost workspace folder of a file; without any, the folder that the file is imported from."""
        from fx_lsp.tracing.source.parsing import module_name

        return next((f for f in self._nested(file) if _is_inside(file, f)), None) or module_name(file)[2]

    def trusts(self, file: str) -> bool:
        """Return True if the code of a file may run."""
        return bool(self.trust_of_folder(self.folder_of(file)))

    def trust_of_folder(self, folder: str) -> bool | None:
        """Return True if code of a folder may run, False if it must not, None if the user has not answered yet."""
        from fx_lsp.tracing.trust import folder_trust

        if self.settings.trusted is not None:
            return self.settings.trusted
        if self.settings.trust != "ask":
            return self.settings.trust == "always"
        answer = self.unstored_trust.get(folder) or folder_trust(folder)
        return None if answer is None else answer == "trusted"

    def engine_settings(self) -> EngineSettings:
        """Return the part of the settings for an engine."""
        settings = self.settings if self.picked is None else replace(self.settings, interpreter=self.picked)
        return engine_settings(settings, self.trusts)

    def interpreter(self, folder: str) -> PythonChoice:
        """Return the interpreter for the files of a folder, with the reason for it. Starts none."""
        from fx_lsp.tracing.workers.find_python import choose

        roots = self.roots_of(str(Path(folder) / "file.py"))
        choice = choose(self.engine_settings().interpreter_of(roots), roots, os.environ)
        if choice.reason.kind != "setting" or (self.picked is None and self.settings.interpreter):
            return choice
        return replace(choice, reason=replace(choice.reason, kind="editor" if self.picked is None else "picked"))

    def _nested(self, file: str) -> list[str]:
        """Return the workspace folders, the innermost folder of `file` first."""
        inside = sorted((folder for folder in self.roots() if _is_inside(file, folder)), key=len, reverse=True)
        return [*inside, *(folder for folder in self.roots() if folder not in inside)]

    def state(self, uri: str) -> FileState | None:
        """Return the engine's state of an open document, or None. Never waits. Outcomes in a notebook name cells."""
        document = self.documents.get(uri)
        state = None if document is None or self.engine is None else self.engine.state(document.file)
        if document is None or state is None or not document.cells:
            return state
        targets = (replace(each, outcome=self.with_cells(document.file, each.outcome)) for each in state.targets)
        return replace(state, targets=tuple(targets))

    def with_cells(self, file: str, outcome: T) -> T:
        """Return an outcome in a file with the names of cells for the places in it, if the file is a notebook."""
        document = self.documents.of_file(file)
        if outcome is None or document is None or not document.cells:
            return outcome
        return with_places(outcome, file, document.place_name)

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

    def location(self, span: Span, lines: Sequence[str] | None = None) -> types.Location:
        """Return the place of a span in a document of the client: a file, or a cell of a notebook.

        `lines` are those of the file, if they were read before. Only the client can name the cells of a notebook: the
        place in one that is not open is the notebook.
        """
        document = self.documents.of_file(span.file)
        if document is not None:
            return document.location(to_proto.range_(document.lines, span, self.encoding))
        if span.file.endswith(files.NOTEBOOK):
            span = Span(span.file, 1, 0, 1, 0)
        if lines is None:
            lines = from_proto.split_lines(self.source(span.file) or "")
        return types.Location(self.uri_of_file(span.file), to_proto.range_(lines, span, self.encoding))

    def line_start(self, file: str, line: int) -> types.Location:
        """Return the beginning of a line in a document of the client. Reads no file."""
        at = types.Position(line - 1, 0)
        document, range_ = self.documents.of_file(file), types.Range(at, at)
        return types.Location(self.uri_of_file(file), range_) if document is None else document.location(range_)

    def uri_of_file(self, file: str) -> str:
        """Return the URI that the client uses for a file."""
        document = self.documents.of_file(file)
        return document.uri if document is not None else from_fs_path(file) or Path(file).as_uri()


def _is_inside(file: str, folder: str) -> bool:
    return file.startswith(folder.rstrip(os.sep) + os.sep)


def _read(file: str) -> str | None:
    from fx_lsp.tracing.calls.documents import notebook_code

    try:
        return (
            notebook_code(files.read_text(file)) if file.endswith(files.NOTEBOOK) else files.read_python_leniently(file)
        )
    except (OSError, ValueError):
        return None
