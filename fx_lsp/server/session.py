"""What one connection knows: the client, its settings and documents, and the engine that traces them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from fx_lsp import __version__
from fx_lsp.model import Stage, known_trace
from fx_lsp.server.benchmarks import Benchmarks
from fx_lsp.server.documents import Document, Documents, folder_paths, roots_of
from fx_lsp.server.progress import Progresses
from fx_lsp.server.protocol import Protocol
from fx_lsp.server.settings import Settings, engine_settings
from fx_lsp.server.status import Reporter
from fx_lsp.server.views import Views

if TYPE_CHECKING:
    from fx_lsp.features.uris import View
    from fx_lsp.tracing.engine import Engine, EngineSettings, EngineStatus, FileState, TargetState

    MakeEngine = Callable[[EngineSettings, Callable[[str], None], Callable[[EngineStatus], None]], Engine]

log = logging.getLogger(__name__)

REFRESH_SECONDS = 0.02
PAUSE_SECONDS = 0.15
"""After a key, what is shown of the text waits that long for the next one: to draw it costs more than a key may."""
MOST_PAUSE_SECONDS = 1.0
"""How long it waits at most while somebody types on."""
CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Client:
    """What the client can do, as far as it matters here."""

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
    diagnostic_version: bool = False
    faded: bool = False
    code_actions: bool = False
    document_changes: bool = False
    apply_edit: bool = False


class Server(LanguageServer):
    """One connection. The engine starts once the settings are known; documents opened before wait for it."""

    protocol: Protocol  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, make_engine: MakeEngine) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            "fx-lsp", __version__, protocol_cls=cast("Any", Protocol)
        )
        self.client = Client()
        self.settings = Settings()
        self.first_settings = Settings()
        self.encoding = str(types.PositionEncodingKind.Utf16.value)
        self.documents = Documents()
        self.views = Views(self)
        self.progresses = Progresses(self)
        self.reporter = Reporter(self)
        self.benchmarks = Benchmarks(self)
        self.engine: Engine | None = None
        self.started = asyncio.Event()
        self.make_engine = make_engine
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed: set[str] = set()
        self._due = self._typed = 0.0
        self._published: dict[str, Any] = {}
        self._reported: set[tuple[str, str]] = set()
        self.closed = False

    def roots(self) -> list[str]:
        """The paths of the workspace folders."""
        uris = [folder.uri for folder in self.workspace.folders.values()]
        return folder_paths(uris or [uri for uri in (self.workspace.root_uri,) if uri])

    def state(self, uri: str) -> FileState | None:
        """What the engine knows of an open document; never waits."""
        document = self.documents.get(uri)
        return None if document is None or self.engine is None else self.engine.state(document.file)

    async def known_stage(self, state: TargetState, stage: str) -> Stage | None:
        """A stage of a target that is traced already; it may have to be decoded, and is never waited for otherwise."""
        trace = None if state.outcome is None else known_trace(state.outcome)
        if self.engine is None or trace is None or trace.ops(stage) is None:
            return None
        file, name = state.target.file, state.target.name
        decoded = self.engine.stage_now(file, name, stage)
        if decoded is not None or state.pending or state.stale:
            return decoded
        found = await self.engine.stage(file, name, stage)
        return found if isinstance(found, Stage) else None

    async def apply_settings(self, settings: Settings) -> None:
        """Takes new settings; what depends on them is started again."""
        before, self.settings = self.settings, settings
        if self.engine is None:
            self._start_engine()
        elif before != settings:
            await self.engine.configure(engine_settings(settings))
            self._published.clear()
            for document in self.documents:
                self.updated(document.file)

    async def restart(self) -> None:
        """Ends the engine's processes and traces everything again."""
        if self.engine is not None:
            await self.engine.restart()

    async def clear_cache(self) -> None:
        """Removes every stored trace and traces what is open again. Raises OSError where a file cannot be removed."""
        engine, self.engine = self.engine, None
        if engine is not None:
            await engine.shutdown()
        path = engine_settings(self.settings).cache_path
        try:
            for suffix in ("", "-wal", "-shm") if path else ():
                Path(f"{path}{suffix}").unlink(missing_ok=True)
        finally:
            self._start_engine()

    def _start_engine(self) -> None:
        if self.closed:
            return
        self.engine = self.make_engine(engine_settings(self.settings), self.updated, self.reporter.update)
        for document in self.documents:
            self.engine.open(document.file, document.text, roots_of(self.roots(), document.file))
        self.started.set()

    async def close(self) -> None:
        """Ends the engine and everything that runs in the background."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:  # a benchmark ends what it runs elsewhere
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        engine, self.engine = self.engine, None
        if engine is not None:
            await engine.shutdown()

    def spawn(self, what: str, work: Coroutine[Any, Any, Any]) -> None:
        """Runs `work` in the background; an exception in it is an internal error of `what`."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.internal_error(what, error)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ask(self, method: str, params: Any) -> Any:
        """A request to the client; None where it answers with an error."""
        try:
            return await self.protocol.send_request_async(method, params)
        except Exception as error:
            log.info("the client refused %s: %s", method, error)
            return None

    def tell(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Shows a message to the user."""
        self.window_show_message(types.ShowMessageParams(type=kind, message=message))

    def internal_error(self, what: str, error: BaseException) -> None:
        """A bug of ours: logged and shown once for each place that it comes from."""
        key = what, f"{type(error).__name__}: {_place(error)}"
        if key in self._reported:
            return
        self._reported.add(key)
        log.error("internal error in %s", what, exc_info=error)
        self.tell(f"fx-lsp: internal error in {what}; see the log", types.MessageType.Error)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """What pygls reports: errors that are no answer to a request."""
        if getattr(source, "__name__", "") != "FeatureRequestError":
            self.internal_error(getattr(source, "__name__", "the protocol"), error)

    def published(self, uri: str, diagnostics: Any) -> bool:
        """Notes what is about to be published for a document; False where the client has it already."""
        if self._published.get(uri) == diagnostics:
            return False
        self._published[uri] = diagnostics
        return True

    def forget(self, document: Document) -> None:
        """Drops what was noted of a document that is closed."""
        self._changed.discard(document.file)
        self._published.pop(document.uri, None)
        self.benchmarks.forget(document.file)

    def problems_of_view(self, view: View) -> None:
        """Publishes what there is to say of a file of kernels, once its compiled forms are known."""
        from fx_lsp.server.diagnostics import publish_kernels

        publish_kernels(self, view)

    def forget_problems(self, uri: str) -> None:
        """Withdraws what was published for a view that is closed."""
        if self._published.pop(uri, None):
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

    def updated(self, file: str) -> None:
        """Something that is shown of a file has changed."""
        if not self._changed:
            loop = asyncio.get_running_loop()
            self._due = loop.time() + MOST_PAUSE_SECONDS
            loop.call_later(REFRESH_SECONDS, self._flush)
        self._changed.add(file)

    def typed(self) -> None:
        """The user has edited something."""
        self._typed = asyncio.get_running_loop().time()

    def _flush(self) -> None:
        from fx_lsp.server.diagnostics import publish

        loop = asyncio.get_running_loop()
        quiet = min(self._typed + PAUSE_SECONDS, self._due)
        if loop.time() < quiet and not self.closed:
            loop.call_at(quiet, self._flush)
            return
        files, self._changed = self._changed, set()
        if self.closed or not files:
            return
        for file in dict.fromkeys((*files, *(d.file for d in self.documents))):  # a pass speaks of other files, too
            try:
                publish(self, file)
                if file in files:
                    self.views.refresh(file)
                for view in self.views.of_kernels(file):
                    self.problems_of_view(view)
            except Exception as error:
                self.internal_error("diagnostics", error)
        if self.settings.changes:
            uris = [document.uri for document in map(self.documents.of_file, files) if document is not None]
            self.protocol.notify("fxLsp/changed", {"uris": uris})
        if self.client.code_lens_refresh:
            self.protocol.send_request(types.WORKSPACE_CODE_LENS_REFRESH)
        if self.client.inlay_hint_refresh:
            self.protocol.send_request(types.WORKSPACE_INLAY_HINT_REFRESH)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
