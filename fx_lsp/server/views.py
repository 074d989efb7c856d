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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.diffs import render_diff
from fx_lsp.features.documents import render_stage
from fx_lsp.features.hover import failure_text
from fx_lsp.features.lenses import PASSES, RUN
from fx_lsp.features.passes import render_passes, render_run
from fx_lsp.features.uris import View, format_uri, parse_uri
from fx_lsp.model import Failure, Outcome, Span, Stage, Trace
from fx_lsp.server import from_proto
from fx_lsp.server.documents import read_source, roots_of

if TYPE_CHECKING:
    from fx_lsp.server.session import Server

DOCUMENT = "fxLsp/document"


@dataclass
class _Shown:
    """A view that the client may be showing, and the file that it was written to.

    `known` is the trace that it was made from, and whether the work that it shows was done with that.
    """

    known: tuple[Outcome, bool] | None
    path: Path | None = None
    open: bool = False


class Views:
    """The views that were given to the client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._shown: dict[View, _Shown] = {}

    def opened(self, uri: str) -> None:
        """The client opened a view's document."""
        view = parse_uri(uri)
        if view is not None:
            self._shown.setdefault(view, _Shown(None)).open = True

    def closed(self, uri: str) -> None:
        """The client closed a view's document; a file that was only read for it is closed too."""
        view = parse_uri(uri)
        if view is None:
            return
        self._shown.pop(view, None)
        done = view.file, view.name, view.work
        if view.work and self._server.engine and not any((v.file, v.name, v.work) == done for v in self._shown):
            self._server.engine.forget(*done)
        self._close_unused(view.file)

    def _close_unused(self, file: str) -> None:
        """Have a file that was only read for views no longer traced, once the client shows none of them."""
        server = self._server
        unused = server.documents.of_file(file) is None and not any(v.file == file for v in self._shown)
        if unused and server.engine is not None:
            server.engine.close(file)

    async def text(self, view: View) -> str:
        """The text of a view, once its target is traced. What cannot be shown says so in a comment."""
        server = self._server
        if server.engine is None:
            return _comment("fx-lsp is restarting; open this again in a moment.")
        if server.engine.state(view.file) is None:
            source = read_source(server, view.file)
            if source is None:
                return _comment(f"There is no file {view.file}.")
            server.engine.open(view.file, source, roots_of(server.roots(), view.file))
        try:
            outcome = await server.engine.outcome(view.file, view.name)
            known = outcome, True
            if view.work and isinstance(outcome, Trace):
                outcome = await server.engine.outcome(view.file, view.name, view.work)
            self._shown.setdefault(view, _Shown(None)).known = known
        except asyncio.CancelledError:
            self._close_unused(view.file)
            raise
        if isinstance(outcome, Failure):
            return _comment(failure_text(outcome))
        if view.stage == PASSES and view.work:
            return render_passes(outcome, view.full).text
        if view.stage == RUN and view.work:
            return await self._run(view, outcome)
        found = [
            await server.engine.stage(view.file, view.name, name, view.work)
            for name in (view.before, view.stage)
            if name
        ]
        for stage in found:
            if isinstance(stage, Failure):
                return _comment(failure_text(stage))
        *before, stage = [s for s in found if isinstance(s, Stage)]
        if before:
            return render_diff(outcome, before[0], stage).text
        return render_stage(outcome, stage, self._source_lines(), view.full).text

    async def _run(self, view: View, trace: Trace) -> str:
        """Everything about the run of a pass."""
        assert self._server.engine is not None
        stages: dict[str, Stage] = {}
        for info in trace.stages:
            if info.change is None or info.change:
                stage = await self._server.engine.stage(view.file, view.name, info.name, view.work)
                if isinstance(stage, Stage):
                    stages[info.name] = stage
        return render_run(trace, stages).text

    def _source_lines(self) -> Callable[[Span], str | None]:
        lines: dict[str, list[str]] = {}

        def source_line(span: Span) -> str | None:
            if span.file not in lines:
                lines[span.file] = from_proto.split_lines(read_source(self._server, span.file) or "")
            known = lines[span.file]
            return known[span.line - 1] if 0 < span.line <= len(known) else None

        return source_line

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
        server, engine = self._server, self._server.engine
        state = None if engine is None else engine.state(file)
        if engine is None or state is None:
            return
        outcomes = {t.target.name: t.outcome for t in state.targets if not t.pending and not t.stale}
        for view, shown in tuple(self._shown.items()):
            outcome = outcomes.get(view.name) if view.file == file else None
            if outcome is None:
                continue
            known = outcome, not view.work or engine.known(file, view.name, view.work) is not None
            if known == shown.known:
                continue
            shown.known = known
            if shown.path is not None:
                server.spawn("views", self._rewrite(view))
            if shown.open or shown.path is None:
                params = types.TextDocumentContentRefreshParams(uri=format_uri(view))
                server.protocol.send_request(types.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH, params)

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
    return {"uri": str(uri), "text": await server.views.text(view), "languageId": "python"}


def views_folder() -> Path:
    """Where views are written for clients that open files only."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fx-lsp" / "views"


def _view(uri: object) -> View:
    view = parse_uri(uri) if isinstance(uri, str) else None
    if view is None:
        raise JsonRpcInvalidParams(f"{uri!r} is no URI of a view")
    return view


def _file_name(title: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in title)[-120:]


def _comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.replace("\r", "").split("\n"))
