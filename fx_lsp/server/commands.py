"""`workspace/executeCommand`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.kernels import chip_of, work_of
from fx_lsp.features.lenses import PASSES, RUN, default_stage, run_of
from fx_lsp.features.partial import executed
from fx_lsp.features.passes import change_text, is_unchanged
from fx_lsp.features.problems import describe
from fx_lsp.features.uris import View, format_uri
from fx_lsp.model import Failure, Trace, variant_of, variant_work
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.documents import read_source, uri_of_file

if TYPE_CHECKING:
    from fx_lsp.server.session import Server


MOST = 12
"""How many targets are offered to run a pass on."""
_ARGUMENTS = "the arguments are a document's URI, the name of a target, and a stage"


async def show_stage(server: Server, arguments: list[Any]) -> dict[str, str] | None:
    """`fxLsp.showStage(uri, name, stage?, work?, before?)`: opens a stage in the editor, or what changed from `before`
    to it. Returns its `uri`, and a file's `path`. The work of kernels and of their compiled forms goes without saying,
    but for choices (`triton&fuse=no`); a view's `uri` stands for its target, whose name may then be "", and choices.
    """
    file, name, stage, work, before = _target(server, arguments)
    shown = server.views.find(arguments[0])
    if not chip_of(work):
        work = work_of(stage, server.settings.gpu, work or (shown.work if shown is not None else "")) or work
    if server.engine is None:
        return None
    if server.engine.state(file) is None and read_source(server, file) is None:
        raise JsonRpcInvalidParams(f"there is no file {file}")
    if server.engine.state(file) is not None:
        outcome = await server.engine.outcome(file, name, variant_work(variant_of(work)))
        partial = executed(outcome)
        if isinstance(outcome, Failure) and (partial is None or partial.name != stage):
            await _show_failure(server, outcome)
            return None
        if isinstance(outcome, Trace):
            stage = stage or default_stage(outcome)
    return await open_view(server, View(file, name, stage or "forward", False, work, before))


async def open_view(server: Server, view: View) -> dict[str, str] | None:
    """Shows a view in the editor."""
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


async def passes(server: Server, arguments: list[Any]) -> list[dict[str, Any]] | None:
    """`fxLsp.passes(uri, name, work?)`: the stages of a target, for a client that lets its user choose among them.

    Each has `stage`, `title`, `ops`, `change`, `note`, `unchanged`, the stage `before` it, the `uri` of its document,
    and (`diff`) that of what it changed.
    """
    file, name, work, _, _ = _target(server, arguments)
    work = work or PASSES
    if server.engine is None or server.engine.state(file) is None:
        return None
    outcome = await server.engine.outcome(file, name, work)
    if isinstance(outcome, Failure):
        await _show_failure(server, outcome)
        return None
    return [
        {
            "stage": info.name,
            "title": info.title,
            "ops": info.ops,
            "change": change_text(info.change),
            "note": info.note,
            "unchanged": is_unchanged(info),
            "before": info.before,
            "uri": format_uri(View(file, name, info.name, False, work)),
            "diff": format_uri(View(file, name, info.name, False, work, info.before)) if info.before else None,
        }
        for info in outcome.stages
    ]


async def run_pass(server: Server, arguments: list[Any]) -> dict[str, str] | None:
    """`fxLsp.runPass(uri, pass, file?, target?)`: runs a pass on a target, and asks which where none is given.

    Shows what the pass did; returns what `fxLsp.showStage` does.
    """
    file, name, on_file, on_name, _ = _target(server, arguments)
    if server.engine is None:
        return None
    await server.engine.targets(file)  # its present text is read by then
    found = next((p for p in server.engine.passes(file) if p.name == name), None)
    if found is None:
        raise JsonRpcInvalidParams(f"{file} has no pass {name!r}")
    if not on_name:
        recent = server.engine.recent(file)
        if not recent:
            server.tell(f"fx-lsp: open a file with a function or module to run {name} on; none is traced yet")
            return None
        titles = {f"{t.name} · {Path(t.file).name}": t for t in recent[:MOST]}
        actions = [types.MessageActionItem(title=title) for title in titles]
        question = types.ShowMessageRequestParams(types.MessageType.Info, f"Run {name} on …", actions)
        chosen = await server.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
        target = titles.get(getattr(chosen, "title", ""))
        if target is None:
            return None
        on_file, on_name = target.file, target.name
    return await open_view(server, View(on_file, on_name, RUN, False, run_of(found)))


async def show_failure(server: Server, arguments: list[Any]) -> None:
    """`fxLsp.showFailure(uri, name)`: says why a target is not traced and goes to the cause."""
    file, name, *_ = _target(server, arguments)
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


def _target(server: Server, arguments: list[Any]) -> tuple[str, str, str, str, str]:
    """A file, the name of a target, and up to three more words, "" where they are missing."""
    words = [a if isinstance(a, str) else "" for a in arguments] + [""] * 5
    if not 2 <= len(arguments) <= 5:
        raise JsonRpcInvalidParams(_ARGUMENTS)
    return *target_of(server, words[:2]), words[2], words[3], words[4]


def target_of(server: Server, words: Sequence[Any]) -> tuple[str, str]:
    """The file and the name of a target, a view's where the first word is its URI. Raises JsonRpcInvalidParams."""
    uri, name = [word if isinstance(word, str) else "" for word in (*words, "", "")][:2]
    view = server.views.find(uri)
    if not uri or not (name or view):
        raise JsonRpcInvalidParams(_ARGUMENTS)
    file = view.file if view is not None else from_proto.file_of_uri(uri, server.roots())
    if file is None:
        raise JsonRpcInvalidParams(f"{uri!r} is no document that is traced")
    return file, name or (view.name if view is not None else "")
