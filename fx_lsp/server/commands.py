"""`workspace/executeCommand`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.lenses import default_stage
from fx_lsp.features.problems import describe
from fx_lsp.features.uris import View, format_uri
from fx_lsp.model import Failure
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.documents import read_source, uri_of_file

if TYPE_CHECKING:
    from fx_lsp.server.session import Server


async def show_stage(server: Server, arguments: list[Any]) -> dict[str, str] | None:
    """`fxLsp.showStage(uri, name, stage?)`: opens a stage in the editor. Returns its `uri`, and a file's `path`."""
    file, name, stage = _target(server, arguments)
    if server.engine is None:
        return None
    if server.engine.state(file) is None and read_source(server, file) is None:
        raise JsonRpcInvalidParams(f"there is no file {file}")
    if server.engine.state(file) is not None:
        outcome = await server.engine.outcome(file, name)
        if isinstance(outcome, Failure):
            await _show_failure(server, outcome)
            return None
        stage = stage or default_stage(outcome)
    view = View(file, name, stage or "forward")
    if server.client.text_document_content or server.settings.virtual_documents:
        uri = format_uri(view)
        if server.client.show_document:
            await server.ask(types.WINDOW_SHOW_DOCUMENT, types.ShowDocumentParams(uri=uri, take_focus=True))
        return {"uri": uri}
    try:
        path = await server.views.write(view)
    except OSError as error:
        server.tell(f"fx-lsp: {view.title} cannot be written: {error}", types.MessageType.Warning)
        return None
    shown = {"uri": path.as_uri(), "path": str(path)}
    if server.client.show_document:
        await server.ask(types.WINDOW_SHOW_DOCUMENT, types.ShowDocumentParams(uri=shown["uri"], take_focus=True))
    else:
        server.tell(f"{view.title} is in {path}")
    return shown


async def show_failure(server: Server, arguments: list[Any]) -> None:
    """`fxLsp.showFailure(uri, name)`: says why a target is not traced and goes to the cause."""
    file, name, _ = _target(server, arguments)
    if server.engine is not None and server.engine.state(file) is not None:
        outcome = await server.engine.outcome(file, name)
        if isinstance(outcome, Failure):
            await _show_failure(server, outcome)


async def restart(server: Server, arguments: list[Any]) -> None:
    """`fxLsp.restart`: ends all tracing processes and starts again."""
    await server.restart()


async def clear_cache(server: Server, arguments: list[Any]) -> None:
    """`fxLsp.clearCache`: forgets every stored trace and traces what is open again."""
    try:
        await server.clear_cache()
    except OSError as error:
        server.tell(f"fx-lsp: the cache cannot be removed: {error}", types.MessageType.Warning)
    else:
        server.tell("fx-lsp: the cache is empty")


async def _show_failure(server: Server, failure: Failure) -> None:
    server.tell(f"Not traced: {describe(failure)}")
    span = failure.span
    if span is None or not server.client.show_document:
        return
    source = read_source(server, span.file)
    if source is not None:
        selection = to_proto.range_(from_proto.split_lines(source), span, server.encoding)
        uri = uri_of_file(server, span.file)
        await server.ask(
            types.WINDOW_SHOW_DOCUMENT, types.ShowDocumentParams(uri=uri, take_focus=True, selection=selection)
        )


def _target(server: Server, arguments: list[Any]) -> tuple[str, str, str]:
    if not 2 <= len(arguments) <= 3 or not all(isinstance(a, str) and a for a in arguments[:2]):
        raise JsonRpcInvalidParams("the arguments are a document's URI, the name of a target, and a stage")
    file = from_proto.file_of_uri(arguments[0], server.roots())
    if file is None:
        raise JsonRpcInvalidParams(f"{arguments[0]!r} is no document that is traced")
    stage = arguments[2] if len(arguments) == 3 and isinstance(arguments[2], str) else ""
    return file, arguments[1], stage
