"""Provide the documents of targets: their text, and updates to those that are open.

A client either opens `fx-lsp:` URIs (`workspace/textDocumentContent`, or the `fxLsp/document` request), or gets a
read-only file in the user's cache folder.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp import files, folders
from fx_lsp.features.costs.fit import fit_page
from fx_lsp.features.kernels import RenderedView, chip_of, kernels_of
from fx_lsp.features.wording.uris import BENCHMARK, View, format_uri, parse_uri
from fx_lsp.model import MEMORY, Failure, Outcome, Trace
from fx_lsp.server.client import Client
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.display.diagnostics import publish_kernels
from fx_lsp.server.display.kernel_checks import KernelChecks
from fx_lsp.server.display.rendering import as_stale, last_good, plain_text, rendered, said
from fx_lsp.server.open_views import OpenView
from fx_lsp.server.session import Session
from fx_lsp.server.tasks import Tasks
from fx_lsp.tracing.fitting import measured_fit

if TYPE_CHECKING:
    from fx_lsp.tracing.open_file import FileState

MARKED_AFTER = 1.0
"""Seconds for which a text fails to parse until open views show it: during typing, a text often does not parse."""


class Views:
    """Render the texts of views, and update those that the client shows."""

    def __init__(
        self, session: Session, client: Client, tasks: Tasks, benchmarks: Benchmarks, checks: KernelChecks
    ) -> None:
        self._session = session
        self._client = client
        self._tasks = tasks
        self._benchmarks = benchmarks
        self._checks = checks
        self._writing = asyncio.Lock()

    def opened(self, uri: str) -> None:
        """Record that the client opened a view's document."""
        view = parse_uri(uri)
        if view is not None:
            self._session.views.note(view).uri = uri
            publish_kernels(self._session, self._client, view)

    def closed(self, uri: str) -> None:
        """Forget a view whose document the client closed; close its source file too, if it was only read for
        the view.
        """
        view = parse_uri(uri)
        if view is None:
            return
        session = self._session
        self._checks.stop(format_uri(view))
        shown = session.views.remove(view)
        if shown is not None and shown.uri:
            self._client.withdraw(shown.uri)
        others = [other for other in session.views if (other.file, other.name) == (view.file, view.name)]
        unused_works = {view.work, session.views.compiled(view)} - {v.work for v in others}
        if kernels_of(view) in others:  # it shows the diagnostics of compiling the kernels
            unused_works.discard(session.views.compiled(view))
        for work in unused_works - {""}:
            if session.engine is not None:
                session.engine.forget(view.file, view.name, work)
        close_unused(session, view.file)

    async def text(self, view: View) -> str:
        """Return the text of a view, once its target is traced. A view that cannot be shown is a comment with the
        reason.
        """
        shown, head = await self._rendered(view), ""
        if (open_view := self._session.views.get(view)) is not None:
            open_view.rendered, open_view.head = shown, (head := self._checked(view, shown))
            for other in (view, kernels_of(view)):
                publish_kernels(self._session, self._client, other)
        return head + shown.document.text

    def _checked(self, view: View, shown: RenderedView) -> str:
        """Check the kernels that a view shows, and return the errors of their check so far, as comments."""
        engine = self._session.engine
        if engine is None or view != kernels_of(view):
            return ""
        if isinstance(engine.known(view.file, view.name, view.work), Trace):
            self._checks.shown(view, shown.document.text, self.renew)
        check = self._session.checks.get(format_uri(view))
        if check is None or check.output is None or check.text != shown.document.text:
            return ""
        from fx_lsp.tracing.kernel_files.checking import Checked, failure_comments

        return failure_comments(Checked(check.output, check.wrong))

    async def _rendered(self, view: View) -> RenderedView:
        session, engine = self._session, self._session.engine
        if engine is None:
            return said("fx-lsp is restarting; open this again in a moment.")
        if engine.state(view.file) is None:
            source = session.source(view.file)
            if source is None:
                return said(f"There is no file {view.file}.")
            engine.open(view.file, source, session.roots_of(view.file))
        if view.work == BENCHMARK:
            session.views.note(view)
            return plain_text(await self._benchmarks.page(view))
        if view.work == MEMORY:
            session.views.note(view)
            return plain_text(fit_page(await measured_fit(engine, view.file, view.name), view.file))
        if chip_of(view.work):
            session.views.note_compiled(view)
        try:
            outcome = await engine.outcome(view.file, view.name)
            origin = outcome, True
            if view.work and isinstance(outcome, Trace):
                outcome = await engine.outcome(view.file, view.name, view.work)
            open_view = session.views.note(view)
            open_view.origin = origin
            if isinstance(outcome, Failure) and outcome.kind == "syntax":
                last = await last_good(session, engine, view) or open_view.rendered
                if last is not None:
                    return as_stale(last)  # the last graph stays while the text does not parse
            return await rendered(session, engine, view, outcome)
        except asyncio.CancelledError:
            session.views.remove_unshown(view)
            close_unused(session, view.file)
            raise

    async def write(self, view: View) -> Path:
        """Write a view to its read-only file, in one step, and return the path. Raises OSError on failure."""
        text = await self.text(view)
        rest = "".join(part for part in (view.file, view.work, view.before) if part)
        folder = views_folder() / hashlib.sha256(rest.encode(errors="replace")).hexdigest()[:8]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / _file_name(f"{Path(view.file).stem}.{view.title}")
        async with self._writing:  # one at a time, so that the newest text is written last
            await asyncio.to_thread(files.write, path, text.encode(errors="replace"), 0o444)
        self._session.views.note(view).path = path
        return path

    async def _rewrite(self, view: View) -> None:
        try:
            await self.write(view)
        except OSError as error:
            self._session.views.remove(view)  # reported once, not at every edit
            message = f"fx-lsp: {view.title} cannot be updated: {error}"
            self._client.tell(message, types.MessageType.Warning)

    def refresh(self, file: str) -> None:
        """Update the views of a file whose target's trace changed."""
        engine = self._session.engine
        state = None if engine is None else engine.state(file)
        if engine is None or state is None:
            return
        outcomes = {t.target.name: t.outcome for t in state.targets if not t.pending and not t.stale}
        for view in self._session.views:
            shown = self._session.views.get(view)
            if view.file != file or shown is None:
                continue
            if _is_broken(state) and shown.rendered is not None and not shown.stale:
                shown.stale = True
                self._tasks.spawn("views", self._mark(view, shown))
            outcome = outcomes.get(view.name)
            if outcome is None:
                continue
            origin = outcome, not view.work or engine.known(file, view.name, view.work) is not None
            if shown.origin is None or origin[0] is not shown.origin[0] or origin[1] != shown.origin[1]:
                self._tasks.spawn("views", self._update(view, shown, origin))

    async def _update(self, view: View, shown: OpenView, origin: tuple[Outcome, bool]) -> None:
        """Renew a view if its new origin differs; the comparison of large traces takes a while."""
        if await asyncio.to_thread(origin.__ne__, shown.origin) and self._session.views.get(view) is shown:
            shown.origin, shown.stale = origin, False
            self.renew(view)

    async def _mark(self, view: View, shown: OpenView) -> None:
        await asyncio.sleep(MARKED_AFTER)
        engine = self._session.engine
        state = None if engine is None else engine.state(view.file)
        shown.stale = state is not None and _is_broken(state)
        if shown.stale and self._session.views.get(view) is shown:
            self.renew(view)

    def renew(self, view: View) -> None:
        """Ask the client to read a view again, if it shows it."""
        shown = self._session.views.get(view)
        if shown is not None and shown.path is not None:
            self._tasks.spawn("views", self._rewrite(view))
        if shown is not None and (shown.uri or shown.path is None):
            params = types.TextDocumentContentRefreshParams(uri=format_uri(view))
            self._client.request_soon(types.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH, params)


def close_unused(session: Session, file: str) -> None:
    """Stop tracing a file that was only read for views, once the client shows none of them."""
    unused = session.documents.of_file(file) is None and not any(view.file == file for view in session.views)
    if unused and session.engine is not None:
        session.engine.close(file)


def is_view_file(file: str) -> bool:
    """Return True if a view was written to this file."""
    return Path(file).is_relative_to(views_folder())


def views_folder() -> Path:
    """Return the folder of views for clients that only open files."""
    return folders.cache_folder() / "views"


def _is_broken(state: FileState) -> bool:
    return state.syntax is not None and state.syntax.kind == "syntax"


def _file_name(title: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in title)[-120:]
