"""The documents made from targets: their text, and which of them are open and have to be kept up to date.

A client either opens `fx-lsp:` URIs (`workspace/textDocumentContent`, or our `fxLsp/document` request), or is given
a read-only file in the user's cache folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.kernels import Shown, chip_of, kernels_of
from fx_lsp.features.uris import BENCHMARK, SCHEME, View, format_uri, parse_uri
from fx_lsp.model import Failure, Outcome, Trace, Work
from fx_lsp.server import from_proto
from fx_lsp.server.documents import read_source, roots_of
from fx_lsp.server.rendering import as_stale, last_good, plain_text, rendered, said

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.open_file import FileState

DOCUMENT = "fxLsp/document"
MARKED_AFTER = 1.0
"""Seconds for which a text does not parse until open views say so: while somebody types it often does not."""


@dataclass
class _Shown:
    """A view that the client may be showing, and the file that it was written to.

    `known` is the trace that it was made from, and whether the work that it shows was done with that; `rendered` what
    the client has of it, and `uri` what it calls the document that it opened. `stale` where it is marked as that, or
    about to be.
    """

    known: tuple[Outcome, bool] | None
    path: Path | None = None
    uri: str = ""
    rendered: Shown | None = None
    stale: bool = False


class Views:
    """The views that were given to the client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._shown: dict[View, _Shown] = {}
        self._compiled: dict[tuple[str, str], Work] = {}

    def opened(self, uri: str) -> None:
        """The client opened a view's document."""
        view = parse_uri(uri)
        if view is not None:
            self._shown.setdefault(view, _Shown(None)).uri = uri
            self._server.problems_of_view(view)

    def closed(self, uri: str) -> None:
        """The client closed a view's document; a file that was only read for it is closed too."""
        view = parse_uri(uri)
        if view is None:
            return
        shown = self._shown.pop(view, None)
        if shown is not None and shown.uri:
            self._server.forget_problems(shown.uri)
        known = [other for other in self._shown if (other.file, other.name) == (view.file, view.name)]
        done = {view.work, self.compiled(view)} - {v.work for v in known}
        if kernels_of(view) in known:  # it shows what compiling the kernels said
            done.discard(self.compiled(view))
        for work in done - {""}:
            if self._server.engine is not None:
                self._server.engine.forget(view.file, view.name, work)
        self.close_unused(view.file)

    def compiled(self, view: View) -> Work:
        """The work that compiled the kernels of a view's target last, "" where none did."""
        return self._compiled.get((view.file, view.name), "")

    def find(self, uri: str) -> View | None:
        """The view that the client has under a URI, that of a document or of a file that a view was written to."""
        if (view := parse_uri(uri)) is not None:
            return view
        file = from_proto.file_of_uri(uri, ())
        return next((v for v, shown in self._shown.items() if shown.path and str(shown.path) == file), None)

    def rendered(self, view: View) -> Shown | None:
        """What the client has of a view; None for one that it does not show."""
        shown = self._shown.get(view)
        return None if shown is None else shown.rendered

    def of_target(self, file: str, name: str) -> dict[View, Shown]:
        """The views of a target that the client shows, as it has them."""
        known = ((v, s.rendered) for v, s in self._shown.items() if (v.file, v.name) == (file, name))
        return {view: shown for view, shown in known if shown is not None}

    async def made(self, view: View) -> Shown | None:
        """A view that the client does not show, if all that it takes is known; else None, at once."""
        engine = self._server.engine
        outcome = engine.known(view.file, view.name, view.work) if engine is not None else None
        return await rendered(self._server, engine, view, outcome) if engine is not None and outcome else None

    def uri(self, view: View) -> str | None:
        """How the client reads a view; None where it reads files, and this one is not written."""
        server, shown = self._server, self._shown.get(view)
        if shown and shown.uri:
            return shown.uri
        if shown and shown.path:
            return shown.path.as_uri()
        if server.client.text_document_content or server.settings.virtual_documents:
            return f"{SCHEME}://{format_uri(view).removeprefix(f'{SCHEME}:')}"  # editors take others for paths
        return None

    def of_kernels(self, file: str) -> list[View]:
        """The files of kernels of a file's targets that the client shows."""
        return [view for view in self._shown if view.file == file and view == kernels_of(view)]

    def close_unused(self, file: str) -> None:
        """Have a file that was only read for views no longer traced, once the client shows none of them."""
        server = self._server
        unused = server.documents.of_file(file) is None and not any(v.file == file for v in self._shown)
        if unused and server.engine is not None:
            server.engine.close(file)

    async def text(self, view: View) -> str:
        """The text of a view, once its target is traced. What cannot be shown says so in a comment."""
        shown = await self._rendered(view)
        if view in self._shown:
            self._shown[view].rendered = shown
            for other in (view, kernels_of(view)):
                self._server.problems_of_view(other)
        return shown.document.text

    async def _rendered(self, view: View) -> Shown:
        server = self._server
        engine = server.engine
        if engine is None:
            return said("fx-lsp is restarting; open this again in a moment.")
        if engine.state(view.file) is None:
            source = read_source(server, view.file)
            if source is None:
                return said(f"There is no file {view.file}.")
            engine.open(view.file, source, roots_of(server.roots(), view.file))
        if view.work == BENCHMARK:
            self._shown.setdefault(view, _Shown(None))
            return plain_text(await server.benchmarks.page(view))
        if chip_of(view.work):
            self._compiled[view.file, view.name] = view.work
        try:
            outcome = await engine.outcome(view.file, view.name)
            known = outcome, True
            if view.work and isinstance(outcome, Trace):
                outcome = await engine.outcome(view.file, view.name, view.work)
            noted = self._shown.setdefault(view, _Shown(None))
            noted.known = known
            if isinstance(outcome, Failure) and outcome.kind == "syntax":
                last = noted.rendered or last_good(server, engine, view)
                if last is not None:
                    return as_stale(last)  # the last graph stays while the text does not parse
        except asyncio.CancelledError:
            self.close_unused(view.file)
            raise
        return await rendered(server, engine, view, outcome)

    async def write(self, view: View) -> Path:
        """Writes a view to its read-only file, in one step, and returns the path. Raises OSError where it cannot."""
        text = await self.text(view)
        rest = "".join(part for part in (view.file, view.work, view.before) if part)
        folder = views_folder() / hashlib.sha256(rest.encode(errors="replace")).hexdigest()[:8]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _file_name(f"{Path(view.file).stem}.{view.title}")
        handle, scratch = tempfile.mkstemp(dir=folder, prefix=".")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as stream:
                stream.write(text)
            Path(scratch).chmod(0o444)
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
        self._shown.setdefault(view, _Shown(None)).path = path
        return path

    async def _rewrite(self, view: View) -> None:
        try:
            await self.write(view)
        except OSError as error:
            self._shown.pop(view, None)  # said once, not at every edit
            message = f"fx-lsp: {view.title} is not kept up to date: {error}"
            self._server.tell(message, types.MessageType.Warning)

    def refresh(self, file: str) -> None:
        """Brings the views of a file up to date where the trace of their target changed."""
        engine = self._server.engine
        state = None if engine is None else engine.state(file)
        if engine is None or state is None:
            return
        outcomes = {t.target.name: t.outcome for t in state.targets if not t.pending and not t.stale}
        for view, shown in tuple(self._shown.items()):
            if view.file == file and _is_broken(state) and shown.rendered is not None and not shown.stale:
                shown.stale = True
                self._server.spawn("views", self._mark(view, shown))
            outcome = outcomes.get(view.name) if view.file == file else None
            if outcome is None:
                continue
            known = outcome, not view.work or engine.known(file, view.name, view.work) is not None
            if known == shown.known:
                continue
            shown.known, shown.stale = known, False
            self.renew(view)

    async def _mark(self, view: View, shown: _Shown) -> None:
        await asyncio.sleep(MARKED_AFTER)
        engine = self._server.engine
        state = None if engine is None else engine.state(view.file)
        shown.stale = state is not None and _is_broken(state)
        if shown.stale and self._shown.get(view) is shown:
            self.renew(view)

    def renew(self, view: View) -> None:
        """Has the client read a view again, if it shows that."""
        shown = self._shown.get(view)
        if shown is not None and shown.path is not None:
            self._server.spawn("views", self._rewrite(view))
        if shown is not None and (shown.uri or shown.path is None):
            params = types.TextDocumentContentRefreshParams(uri=format_uri(view))
            self._server.protocol.send_request(types.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH, params)

    def is_view_file(self, file: str) -> bool:
        """Whether a file is one that a view was written to."""
        return Path(file).is_relative_to(views_folder())


async def text_document_content(
    server: Server, params: types.TextDocumentContentParams
) -> types.TextDocumentContentResult:
    """`workspace/textDocumentContent`."""
    return types.TextDocumentContentResult(text=await server.views.text(_view(params.uri)))


async def document(server: Server, params: Any) -> dict[str, str]:
    """`fxLsp/document`: the same for clients without it."""
    uri = getattr(params, "uri", None)
    view = _view(uri)
    language = "python" if view.is_code else "plaintext"
    return {"uri": str(uri), "text": await server.views.text(view), "languageId": language}


def views_folder() -> Path:
    """Where views are written for clients that open files only."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fx-lsp" / "views"


def _is_broken(state: FileState) -> bool:
    return state.syntax is not None and state.syntax.kind == "syntax"


def _view(uri: object) -> View:
    view = parse_uri(uri) if isinstance(uri, str) else None
    if view is None:
        raise JsonRpcInvalidParams(f"{uri!r} is no URI of a view")
    return view


def _file_name(title: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in title)[-120:]
