"""Map requests to handlers, and start and end a connection."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from fx_lsp import __version__
from fx_lsp.features.wording.uris import SCHEME
from fx_lsp.server import progress
from fx_lsp.server.client import Client
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.display.kernel_checks import KernelChecks
from fx_lsp.server.display.redraw import redraw
from fx_lsp.server.display.views import Views
from fx_lsp.server.display.watchers import FIRST_GLOBS, FileWatchers, watching
from fx_lsp.server.engines import Engines
from fx_lsp.server.progress import Progresses
from fx_lsp.server.protocol import Protocol, claim_stdio, run
from fx_lsp.server.refresh import RefreshTimer
from fx_lsp.server.requests import (
    actions,
    commands,
    completion,
    hints,
    hover,
    inline_values,
    interpreters,
    kernel_files,
    lenses,
    notebooks,
    text_sync,
    trust,
    workspace,
)
from fx_lsp.server.session import Capabilities, Session
from fx_lsp.server.settings import SECTION, Settings, read_settings
from fx_lsp.server.status import StatusReporter
from fx_lsp.server.tasks import QuietCollector, Tasks
from fx_lsp.server.view_requests import compared, graph_values, line_costs, panels, view_documents, view_lines

if TYPE_CHECKING:
    from fx_lsp.server.engines import MakeEngine
    from fx_lsp.tracing.engine import Engine, EngineSettings, EngineStatus

log = logging.getLogger(__name__)

CONFIGURATION_SECONDS = 2.0
PARENT_SECONDS = 2.0
CLOSE_SECONDS = 5.0
SWITCH_SECONDS = 0.001
"""The longest time that a thread reading a long file may delay a response, in seconds."""

Handler = Callable[..., Any]
"""A function of parts of a connection (`session`, `client`, `views`, …), and of the client's parameters."""


def real_engine(
    settings: EngineSettings, on_update: Callable[[str], None], on_status: Callable[[EngineStatus], None]
) -> Engine:
    """Return the engine that traces. Imported here, after the client has its response to `initialize`."""
    from fx_lsp.tracing.engine import Engine

    return Engine(settings, on_update, on_status)


def serve(make_engine: MakeEngine = real_engine, trust_always: bool = False) -> int:
    """Serve one client over standard input and output; return the exit code. With `trust_always`, code runs in every
    folder, and nobody is asked.
    """
    stdin, stdout = claim_stdio()
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("pygls").setLevel(logging.CRITICAL)

    async def main() -> int:
        protocol = create_server(make_engine, trust_always).protocol
        protocol.on_message = QuietCollector().heard
        return await run(protocol, stdin, stdout)

    return asyncio.run(main())


class _Server(LanguageServer):
    """Receive messages from pygls."""

    protocol: Protocol  # pyright: ignore[reportIncompatibleVariableOverride]

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Report errors inside pygls that are not responses to a request."""
        if getattr(source, "__name__", "") != "FeatureRequestError":
            self.protocol.on_error(getattr(source, "__name__", "the protocol"), error)


def create_server(make_engine: MakeEngine = real_engine, trust_always: bool = False) -> _Server:
    """Return a server with its handlers, not yet connected."""
    server = _Server(  # pyright: ignore[reportUnknownMemberType]
        "fx-lsp", __version__, protocol_cls=cast("Any", Protocol), notebook_document_sync=notebooks.SYNC
    )
    session = Session(settings=Settings(trust="always" if trust_always else "ask"))
    client = Client(server.protocol)
    tasks = Tasks(client.internal_error)
    refresh, watchers = RefreshTimer(lambda files: show(files)), FileWatchers(session, client)
    progresses = Progresses(session, client)
    benchmarks = Benchmarks(session, tasks, refresh)
    status = StatusReporter(session, client, tasks, progresses)

    def updated(file: str) -> None:
        refresh.updated(file)
        trust.ask_if_needed(session, client, tasks, engines, file)

    engines = Engines(session, client, make_engine, updated, status.update)

    checks = KernelChecks(session, client, tasks, progresses, engines, refresh)
    engines.on_trust = checks.trust_changed
    views = Views(session, client, tasks, benchmarks, checks)

    def show(files: Set[str]) -> None:
        redraw(session, client, views, files)
        watchers.update()

    async def close() -> None:
        session.closed = True
        await tasks.cancel(CLOSE_SECONDS)
        await engines.end()

    async def run(name: str, arguments: list[Any]) -> Any:
        return await _COMMANDS[name](*_used(_COMMANDS[name], parts), arguments)

    server.protocol.on_shutdown, server.protocol.on_error = close, client.internal_error
    parts: dict[str, Any] = {
        "protocol": server.protocol,
        "session": session,
        "client": client,
        "tasks": tasks,
        "refresh": refresh,
        "progresses": progresses,
        "benchmarks": benchmarks,
        "checks": checks,
        "views": views,
        "engines": engines,
    }
    parts["parts"] = parts  # for a command whose handler is imported at its first use
    parts["run"] = run
    for method, handler in _HANDLERS.items():
        bound = _guard(session, client, method, handler, _used(handler, parts))
        server.feature(method, _OPTIONS.get(method))(bound)
    for name, handler in _COMMANDS.items():
        server.command(name)(_guard(session, client, name, handler, _used(handler, parts)))
    return server


def _used(handler: Handler, parts: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a connection that a handler uses: all its parameters except the last, by name."""
    return [parts[name] for name in [*inspect.signature(handler).parameters][:-1]]


def initialize(
    protocol: Protocol, session: Session, client: Client, tasks: Tasks, params: types.InitializeParams
) -> None:
    """Record the client's capabilities. Settings sent along apply until the client sends others."""
    session.workspace = protocol.workspace
    session.capabilities = _capabilities(params.capabilities)
    session.encoding = str(session.workspace.position_encoding or "utf-16")
    settings = _read(session, client, params.initialization_options, session.settings)
    session.settings = session.first_settings = settings
    if params.process_id is not None and sys.platform != "win32" and _alive(params.process_id):
        tasks.spawn("the client's process", _watch(protocol, params.process_id))


async def initialized(
    session: Session, client: Client, tasks: Tasks, engines: Engines, params: types.InitializedParams
) -> None:
    """Ask the client for its settings, if it supports that, then start tracing."""
    if registrations := list(_registrations(session.capabilities)):
        parameters = types.RegistrationParams(registrations=registrations)
        tasks.spawn("registration", client.ask(types.CLIENT_REGISTER_CAPABILITY, parameters))
    await engines.apply_settings(trust.later_settings(session, client, await _pull(session, client)))


async def did_change_configuration(
    session: Session, client: Client, engines: Engines, params: types.DidChangeConfigurationParams
) -> None:
    """Apply new settings: those in the notification, or those that the client returns."""
    if session.capabilities.configuration:
        settings = await _pull(session, client)
    else:
        settings = _read(session, client, params.settings, session.settings)
    await engines.apply_settings(trust.later_settings(session, client, settings))


def _registrations(can: Capabilities) -> Iterator[types.Registration]:
    """Yield registrations for changed settings, files changed outside of the client, and requests on views."""
    if can.register_configuration:
        yield types.Registration(
            id="fx-lsp-configuration",
            method=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
            register_options=types.DidChangeConfigurationRegistrationOptions(section=SECTION),
        )
    selector = [types.TextDocumentFilterScheme(scheme=SCHEME)]
    for method in can.register_in_views:
        options = types.TextDocumentRegistrationOptions(document_selector=selector)
        if method == _SEMANTIC_TOKENS:
            options = types.SemanticTokensRegistrationOptions(graph_values.LEGEND, selector, full=True)
        yield types.Registration(id=f"fx-lsp-{method}", method=method, register_options=options)
    if can.register_watchers:
        yield watching("fx-lsp-files", FIRST_GLOBS)


def _benchmark(name: str) -> Handler:
    """Return a command of `benchmark`, imported at its first use: the client's start does not wait for it."""

    async def handler(parts: Mapping[str, Any], arguments: list[Any]) -> Any:
        from fx_lsp.server.requests import benchmark

        command: Handler = getattr(benchmark, name)
        return await command(*_used(command, parts), arguments)

    return handler


_HANDLERS: dict[str, Handler] = {
    types.INITIALIZE: initialize,
    types.INITIALIZED: initialized,
    types.TEXT_DOCUMENT_DID_OPEN: text_sync.did_open,
    types.TEXT_DOCUMENT_DID_CHANGE: text_sync.did_change,
    types.TEXT_DOCUMENT_DID_SAVE: text_sync.did_save,
    types.TEXT_DOCUMENT_DID_CLOSE: text_sync.did_close,
    types.NOTEBOOK_DOCUMENT_DID_OPEN: notebooks.did_open,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE: notebooks.did_change,
    types.NOTEBOOK_DOCUMENT_DID_SAVE: notebooks.did_save,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE: notebooks.did_close,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: text_sync.did_change_watched_files,
    types.TEXT_DOCUMENT_DIAGNOSTIC: workspace.document_diagnostic,
    types.WORKSPACE_DIAGNOSTIC: workspace.workspace_diagnostic,
    types.WORKSPACE_SYMBOL: workspace.workspace_symbol,
    types.TEXT_DOCUMENT_CODE_LENS: lenses.code_lens,
    types.TEXT_DOCUMENT_HOVER: hover.hover,
    types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: view_lines.document_highlight,
    types.TEXT_DOCUMENT_DEFINITION: view_lines.definition,
    types.TEXT_DOCUMENT_REFERENCES: graph_values.references,
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: graph_values.document_symbol,
    types.TEXT_DOCUMENT_FOLDING_RANGE: graph_values.folding_range,
    types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: graph_values.semantic_tokens,
    types.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY: graph_values.prepare_call_hierarchy,
    types.CALL_HIERARCHY_INCOMING_CALLS: graph_values.incoming_calls,
    types.CALL_HIERARCHY_OUTGOING_CALLS: graph_values.outgoing_calls,
    types.TEXT_DOCUMENT_INLAY_HINT: hints.inlay_hint,
    types.TEXT_DOCUMENT_INLINE_VALUE: inline_values.inline_value,
    types.INLAY_HINT_RESOLVE: hints.resolve,
    types.TEXT_DOCUMENT_CODE_ACTION: actions.code_action,
    types.TEXT_DOCUMENT_COMPLETION: completion.completion,
    types.WORKSPACE_TEXT_DOCUMENT_CONTENT: view_documents.text_document_content,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: did_change_configuration,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL: progress.on_cancel,
    view_documents.DOCUMENT: view_documents.document,
    view_lines.RELATED: view_lines.related,
    panels.GRAPH: panels.graph,
    panels.MEMORY: panels.memory_of,
    panels.FUNCTIONS: panels.functions,
    panels.ORIGINS: panels.origins,
    panels.BENCHMARK: panels.benchmark,
    line_costs.LINE_COSTS: line_costs.costs,
    compared.COMPARE: compared.compare,
}

_SEMANTIC_TOKENS = "textDocument/semanticTokens"
_VIEW_METHODS = (
    (types.TEXT_DOCUMENT_DEFINITION, "definition"),
    (types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, "document_highlight"),
    (types.TEXT_DOCUMENT_REFERENCES, "references"),
    (types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, "document_symbol"),
    (types.TEXT_DOCUMENT_FOLDING_RANGE, "folding_range"),
    (types.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY, "call_hierarchy"),
    (_SEMANTIC_TOKENS, "semantic_tokens"),
)
"""Requests that only views support, with the client's capability: they are registered for the scheme of views alone."""

_OPTIONS = {
    types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: graph_values.LEGEND,
    types.TEXT_DOCUMENT_CODE_ACTION: actions.OPTIONS,
    types.TEXT_DOCUMENT_COMPLETION: completion.OPTIONS,
    types.TEXT_DOCUMENT_DIAGNOSTIC: workspace.OPTIONS,
    types.TEXT_DOCUMENT_INLAY_HINT: hints.OPTIONS,
}

_COMMANDS: dict[str, Handler] = {
    "fxLsp.showStage": commands.show_stage,
    "fxLsp.menu": lenses.menu,
    "fxLsp.commands": lenses.commands,
    "fxLsp.passes": commands.passes,
    "fxLsp.runPass": commands.run_pass,
    "fxLsp.showFailure": commands.show_failure,
    "fxLsp.bench": _benchmark("bench"),
    "fxLsp.stopBench": _benchmark("stop"),
    "fxLsp.hosts": _benchmark("hosts"),
    "fxLsp.writeKernel": kernel_files.write_kernel,
    "fxLsp.interpreters": interpreters.interpreters,
    "fxLsp.pickInterpreter": interpreters.pick_interpreter,
    "fxLsp.restart": commands.restart,
    "fxLsp.clearCache": commands.clear_cache,
    "fxLsp.trust": trust.trust,
    "fxLsp.revokeTrust": trust.revoke_trust,
}


_BEFORE_START = frozenset({types.INITIALIZED, types.WORKSPACE_DID_CHANGE_CONFIGURATION})
"""Requests that run before the settings are known. Every other request waits for them, and for the engine."""


def _guard(session: Session, client: Client, what: str, handler: Handler, used: list[Any]) -> Callable[[Any], Any]:
    """Return the handler, bound to the parts that it uses. An exception that is a bug is reported, and the response is
    null. A request
    about a cell is one about its notebook to the handler.

    Notifications that change documents stay plain functions: they run in order of arrival.
    """
    if inspect.iscoroutinefunction(handler):

        async def run_async(params: Any) -> Any:
            try:
                if what not in _BEFORE_START:
                    await session.started.wait()
                params, cell = notebooks.from_cell(session.documents, params)
                result = await handler(*used, params)
                return result if cell is None else notebooks.to_cell(result, cell)
            except JsonRpcException:
                raise
            except Exception as error:
                client.internal_error(what, error)
                return None

        return run_async

    def run_now(params: Any) -> Any:
        try:
            return handler(*used, params)
        except Exception as error:
            client.internal_error(what, error)
            return None

    return run_now


async def _pull(session: Session, client: Client) -> Settings:
    if not session.capabilities.configuration:
        return session.settings
    parameters = types.ConfigurationParams(items=[types.ConfigurationItem(section=SECTION)])
    try:
        answer = await asyncio.wait_for(client.ask(types.WORKSPACE_CONFIGURATION, parameters), CONFIGURATION_SECONDS)
    except asyncio.TimeoutError:
        log.warning("the client did not answer workspace/configuration")
        return session.settings
    return _read(session, client, answer[0] if answer else None, session.first_settings)


def _read(session: Session, client: Client, raw: object, base: Settings) -> Settings:
    settings, wrong = read_settings(raw, base, session.settings)
    if wrong:
        client.tell(f"fx-lsp: {'; '.join(wrong)}. The previous settings stay in effect.", types.MessageType.Warning)
    return settings


def _capabilities(capabilities: types.ClientCapabilities) -> Capabilities:
    def has(path: str) -> bool:
        return bool(get_capability(capabilities, path))

    formats = get_capability(capabilities, "text_document.hover.content_format") or ()
    tags = get_capability(capabilities, "text_document.publish_diagnostics.tag_support.value_set") or ()
    resolved = get_capability(capabilities, "text_document.inlay_hint.resolve_support.properties") or ()
    return Capabilities(
        **{field.name: has(field.metadata["path"]) for field in fields(Capabilities) if field.metadata},
        markdown=not formats or types.MarkupKind.Markdown in formats,
        text_document_content=get_capability(capabilities, "workspace.text_document_content") is not None,
        resolved_in_hints=tuple(resolved),
        register_in_views=tuple(m for m, path in _VIEW_METHODS if has(f"text_document.{path}.dynamic_registration")),
        pulls=has("text_document.diagnostic") and has("workspace.diagnostics.refresh_support"),
        faded=types.DiagnosticTag.Unnecessary in tags,
    )


async def _watch(protocol: Protocol, pid: int) -> None:
    """End the server when the client's process ends. A process that is not visible lives in another container."""
    try:
        descriptor = os.pidfd_open(pid) if sys.platform == "linux" else -1
    except OSError:
        descriptor = -1
    if descriptor >= 0:
        await _readable(descriptor)
    while _alive(pid):
        await asyncio.sleep(PARENT_SECONDS)
    log.warning("the client's process %d is gone", pid)
    protocol.finish(1)


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read, and close the descriptor."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
