"""The server: which request goes to which handler, and how a connection starts and ends."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.capabilities import get_capability
from pygls.exceptions import JsonRpcException

from fx_lsp.features.uris import SCHEME
from fx_lsp.server import (
    actions,
    benchmarks,
    commands,
    completion,
    documents,
    hints,
    hover,
    lenses,
    linked,
    panels,
    progress,
    views,
    writing,
)
from fx_lsp.server.protocol import claim_stdio, run
from fx_lsp.server.session import Client, Server
from fx_lsp.server.settings import SECTION, Settings, read_settings

if TYPE_CHECKING:
    from fx_lsp.server.session import MakeEngine
    from fx_lsp.tracing.engine import Engine, EngineSettings, EngineStatus

log = logging.getLogger(__name__)

CONFIGURATION_SECONDS = 2.0
PARENT_SECONDS = 2.0
SWITCH_SECONDS = 0.001
"""How long a thread that reads a long file may keep an answer waiting at a time."""

Handler = Callable[[Server, Any], Any]


def real_engine(
    settings: EngineSettings, on_update: Callable[[str], None], on_status: Callable[[EngineStatus], None]
) -> Engine:
    """The engine that traces. Imported only here, once the client has its answer to `initialize`."""
    from fx_lsp.tracing.engine import Engine

    return Engine(settings, on_update, on_status)


def serve(make_engine: MakeEngine = real_engine) -> int:
    """Serves one client over standard input and output; returns the exit code."""
    stdin, stdout = claim_stdio()
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("pygls").setLevel(logging.CRITICAL)

    async def main() -> int:
        return await run(create_server(make_engine), stdin, stdout)

    return asyncio.run(main())


def create_server(make_engine: MakeEngine = real_engine) -> Server:
    """A server with its handlers, not yet connected."""
    server = Server(make_engine)
    for method, handler in _HANDLERS.items():
        server.feature(method, _OPTIONS.get(method))(_guard(server, method, handler))
    for name, handler in _COMMANDS.items():
        server.command(name)(_guard(server, name, handler))
    return server


def initialize(server: Server, params: types.InitializeParams) -> None:
    """Notes what the client can do. Settings that it sent along hold until it sends others."""
    server.client = _client(params.capabilities)
    server.encoding = str(server.workspace.position_encoding or "utf-16")
    server.settings = server.first_settings = _read(server, params.initialization_options, server.settings)
    if params.process_id is not None and sys.platform != "win32" and _alive(params.process_id):
        server.spawn("the client's process", _watch(server, params.process_id))


async def initialized(server: Server, params: types.InitializedParams) -> None:
    """Asks for the settings where the client has them to ask for, then starts tracing."""
    if registrations := list(_registrations(server.client)):
        parameters = types.RegistrationParams(registrations=registrations)
        server.spawn("registration", server.ask(types.CLIENT_REGISTER_CAPABILITY, parameters))
    await server.apply_settings(await _pull(server))


async def did_change_configuration(server: Server, params: types.DidChangeConfigurationParams) -> None:
    """New settings: those in the notification, or the ones that the client answers with."""
    if server.client.configuration:
        await server.apply_settings(await _pull(server))
    else:
        await server.apply_settings(_read(server, params.settings, server.settings))


def _registrations(client: Client) -> Iterator[types.Registration]:
    """What the client is asked to tell: other settings, files that are changed outside of it; and to ask of views."""
    if client.register_configuration:
        yield types.Registration(
            id="fx-lsp-configuration",
            method=types.WORKSPACE_DID_CHANGE_CONFIGURATION,
            register_options=types.DidChangeConfigurationRegistrationOptions(section=SECTION),
        )
    selector = [types.TextDocumentFilterScheme(scheme=SCHEME)]
    for method in client.register_links:
        options = types.TextDocumentRegistrationOptions(document_selector=selector)
        yield types.Registration(id=f"fx-lsp-{method}", method=method, register_options=options)
    if client.register_watchers:
        yield types.Registration(
            id="fx-lsp-files",
            method=types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
            register_options=types.DidChangeWatchedFilesRegistrationOptions(
                watchers=[types.FileSystemWatcher(glob) for glob in ("**/*.py", "**/pyproject.toml")]
            ),
        )


def _benching(name: str) -> Handler:
    """A command of `benching`, which is imported when it is first used: a client that starts does not wait for it."""

    async def handler(server: Server, arguments: list[Any]) -> Any:
        from fx_lsp.server import benching

        return await getattr(benching, name)(server, arguments)

    return handler


_HANDLERS: dict[str, Handler] = {
    types.INITIALIZE: initialize,
    types.INITIALIZED: initialized,
    types.TEXT_DOCUMENT_DID_OPEN: documents.did_open,
    types.TEXT_DOCUMENT_DID_CHANGE: documents.did_change,
    types.TEXT_DOCUMENT_DID_SAVE: documents.did_save,
    types.TEXT_DOCUMENT_DID_CLOSE: documents.did_close,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: documents.did_change_watched_files,
    types.TEXT_DOCUMENT_CODE_LENS: lenses.code_lens,
    types.TEXT_DOCUMENT_HOVER: hover.hover,
    types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: linked.document_highlight,
    types.TEXT_DOCUMENT_DEFINITION: linked.definition,
    types.TEXT_DOCUMENT_INLAY_HINT: hints.inlay_hint,
    types.TEXT_DOCUMENT_CODE_ACTION: actions.code_action,
    types.TEXT_DOCUMENT_COMPLETION: completion.completion,
    types.WORKSPACE_TEXT_DOCUMENT_CONTENT: views.text_document_content,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: did_change_configuration,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL: progress.on_cancel,
    views.DOCUMENT: views.document,
    linked.RELATED: linked.related,
    panels.GRAPH: panels.graph,
    panels.MEMORY: panels.memory_of,
    panels.FUNCTIONS: panels.functions,
    panels.ORIGINS: panels.origins,
    benchmarks.BENCHMARK: benchmarks.benchmark,
}

_OPTIONS = {
    types.TEXT_DOCUMENT_CODE_ACTION: actions.OPTIONS,
    types.TEXT_DOCUMENT_COMPLETION: completion.OPTIONS,
}

_COMMANDS: dict[str, Handler] = {
    "fxLsp.showStage": commands.show_stage,
    "fxLsp.passes": commands.passes,
    "fxLsp.runPass": commands.run_pass,
    "fxLsp.showFailure": commands.show_failure,
    "fxLsp.bench": _benching("bench"),
    "fxLsp.stopBench": _benching("stop"),
    "fxLsp.hosts": _benching("hosts"),
    "fxLsp.writeKernel": writing.write_kernel,
    "fxLsp.restart": commands.restart,
    "fxLsp.clearCache": commands.clear_cache,
}


_BEFORE_START = frozenset({types.INITIALIZED, types.WORKSPACE_DID_CHANGE_CONFIGURATION})
"""Every other request waits until the settings are known, and with them the engine."""


def _guard(server: Server, what: str, handler: Handler) -> Callable[[Any], Any]:
    """The handler, bound to the server. An exception that is a bug is reported, and the answer is then null.

    Notifications that change documents stay plain functions: they run in the order in which they arrive.
    """
    if inspect.iscoroutinefunction(handler):

        async def run_async(params: Any) -> Any:
            try:
                if what not in _BEFORE_START:
                    await server.started.wait()
                return await handler(server, params)
            except JsonRpcException:
                raise
            except Exception as error:
                server.internal_error(what, error)
                return None

        return run_async

    def run_now(params: Any) -> Any:
        try:
            return handler(server, params)
        except Exception as error:
            server.internal_error(what, error)
            return None

    return run_now


async def _pull(server: Server) -> Settings:
    if not server.client.configuration:
        return server.settings
    parameters = types.ConfigurationParams(items=[types.ConfigurationItem(section=SECTION)])
    try:
        answer = await asyncio.wait_for(server.ask(types.WORKSPACE_CONFIGURATION, parameters), CONFIGURATION_SECONDS)
    except asyncio.TimeoutError:
        log.warning("the client did not answer workspace/configuration")
        return server.settings
    return _read(server, answer[0] if answer else None, server.first_settings)


def _read(server: Server, raw: object, base: Settings) -> Settings:
    settings, wrong = read_settings(raw, base, server.settings)
    if wrong:
        kept = "; ".join(wrong)
        server.tell(f"fx-lsp: {kept}. What held before stays.", types.MessageType.Warning)
    return settings


def _client(capabilities: types.ClientCapabilities) -> Client:
    def has(path: str) -> bool:
        return bool(get_capability(capabilities, path))

    formats = get_capability(capabilities, "text_document.hover.content_format") or ()
    content = get_capability(capabilities, "workspace.text_document_content")
    tags = get_capability(capabilities, "text_document.publish_diagnostics.tag_support.value_set") or ()
    return Client(
        markdown=not formats or types.MarkupKind.Markdown in formats,
        show_document=has("window.show_document.support"),
        text_document_content=content is not None,
        code_lens_refresh=has("workspace.code_lens.refresh_support"),
        inlay_hint_refresh=has("workspace.inlay_hint.refresh_support"),
        progress=has("window.work_done_progress"),
        configuration=has("workspace.configuration"),
        register_watchers=has("workspace.did_change_watched_files.dynamic_registration"),
        register_configuration=has("workspace.did_change_configuration.dynamic_registration"),
        register_links=tuple(
            method
            for method, path in (
                (types.TEXT_DOCUMENT_DEFINITION, "definition"),
                (types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, "document_highlight"),
            )
            if has(f"text_document.{path}.dynamic_registration")
        ),
        related_information=has("text_document.publish_diagnostics.related_information"),
        code_actions=has("text_document.code_action.code_action_literal_support"),
        document_changes=has("workspace.workspace_edit.document_changes"),
        apply_edit=has("workspace.apply_edit"),
        diagnostic_version=has("text_document.publish_diagnostics.version_support"),
        faded=types.DiagnosticTag.Unnecessary in tags,
    )


async def _watch(server: Server, pid: int) -> None:
    """Ends the server when the client's process does. One that was never here lives in another container."""
    while _alive(pid):
        await asyncio.sleep(PARENT_SECONDS)
    log.warning("the client's process %d is gone", pid)
    server.protocol.finish(1)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
