"""Handle `workspace/executeCommand`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.choices import TRITON
from fx_lsp.errors import ProtocolError
from fx_lsp.features.documents.passes import change_text, is_unchanged
from fx_lsp.features.kernels import chip_of, work_of
from fx_lsp.features.lenses import run_of
from fx_lsp.features.wording.problems import describe
from fx_lsp.features.wording.traces import PASSES, RUN, default_stage, executed
from fx_lsp.features.wording.uris import View, format_uri
from fx_lsp.model import MEMORY, Failure, Trace, Work, variant_of, variant_work, write_work
from fx_lsp.server import from_proto
from fx_lsp.server.client import Client
from fx_lsp.server.display.views import Views
from fx_lsp.server.engines import Engines
from fx_lsp.server.session import Session
from fx_lsp.tracing.source.project import project_root

MAX_TARGETS = 12
"""The most targets that are offered to run a pass on."""
_ARGUMENTS = "the arguments must be a document's URI, the name of a target, and a stage"


async def show_stage(session: Session, client: Client, views: Views, arguments: list[Any]) -> dict[str, str] | None:
    """Run `fxLsp.showStage(uri, name, stage?, work?, before?)`: open a stage, or the diff from `before` to it.

    Returns its `uri`, and a file's `path`. The work of kernels and of their compiled forms is implied, except for
    choices (`triton&fuse=no`). A view's `uri` implies its target, whose name may then be "", and its choices.
    """
    file, name, stage, work, before = _target(session, arguments)
    shown = session.views.find(arguments[0])
    if not chip_of(work):
        work = work_of(stage, session.settings.gpu, work or (shown.work if shown is not None else "")) or work
    if work == TRITON:
        work = await kernels_work(session, client, file, name)
    if session.engine is None:
        return None
    if session.engine.state(file) is None and session.source(file) is None:
        raise JsonRpcInvalidParams(f"there is no file {file}")
    if session.engine.state(file) is not None and work != MEMORY:
        outcome = await session.engine.outcome(file, name, variant_work(variant_of(work)))
        partial = executed(outcome)
        if isinstance(outcome, Failure) and (partial is None or partial.name != stage):
            await _show_failure(session, client, outcome)
            return None
        if isinstance(outcome, Trace):
            stage = stage or default_stage(outcome)
    return await open_view(session, client, views, View(file, name, stage or "forward", False, work, before))


async def kernels_work(session: Session, client: Client, file: str, name: str) -> Work:
    """Return the work that generates kernels of a target, with the choices that its project keeps."""
    from fx_lsp.tracing.kernel_files.tuned import MEASURED, kept_parts
    from fx_lsp.tracing.remote.history import source_hash

    if session.engine is None or isinstance(await session.engine.targets(file), Failure):
        return TRITON
    plan = session.engine.plan(file, name)
    if plan is None:
        return TRITON
    try:
        parts = await asyncio.to_thread(kept_parts, project_root(file), file, name, source_hash(plan))
    except (OSError, ProtocolError, ValueError) as error:
        client.tell(f"fx-lsp: {error}", types.MessageType.Warning)
        return TRITON
    return write_work({TRITON: "", **{part: value for part, value in parts.items() if part != MEASURED}})


async def open_view(session: Session, client: Client, views: Views, view: View) -> dict[str, str] | None:
    """Show a view in the editor."""
    if session.opens_uris:
        uri = format_uri(view)
        if session.capabilities.show_document:
            await client.ask(types.WINDOW_SHOW_DOCUMENT, types.ShowDocumentParams(uri=uri, take_focus=True))
        return {"uri": uri}
    try:
        path = await views.write(view)
    except OSError as error:
        client.tell(f"fx-lsp: {view.title} cannot be written: {error}", types.MessageType.Warning)
        return None
    shown = {"uri": path.as_uri(), "path": str(path)}
    if session.capabilities.show_document:
        await client.ask(types.WINDOW_SHOW_DOCUMENT, types.ShowDocumentParams(uri=shown["uri"], take_focus=True))
    else:
        client.tell(f"{view.title} is in {path}")
    return shown


async def passes(session: Session, client: Client, arguments: list[Any]) -> list[dict[str, Any]] | None:
    """Run `fxLsp.passes(uri, name, work?)`: list a target's stages, for a client with its own list.

    Each has `stage`, `title`, `ops`, `change`, `note`, `unchanged`, the stage `before` it, the `uri` of its document,
    and that of its `diff`.
    """
    file, name, work, _, _ = _target(session, arguments)
    work = work or PASSES
    if session.engine is None or session.engine.state(file) is None:
        return None
    outcome = await session.engine.outcome(file, name, work)
    if isinstance(outcome, Failure):
        await _show_failure(session, client, outcome)
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


async def run_pass(session: Session, client: Client, views: Views, arguments: list[Any]) -> dict[str, str] | None:
    """Run `fxLsp.runPass(uri, pass, file?, target?)`: run a pass on a target; ask for the target if it is missing.

    Shows the changes of the pass; returns the same as `fxLsp.showStage`.
    """
    file, name, on_file, on_name, _ = _target(session, arguments)
    if session.engine is None:
        return None
    await session.engine.targets(file)  # afterwards, its current text is parsed
    pass_ = next((p for p in session.engine.passes(file) if p.name == name), None)
    if pass_ is None:
        raise JsonRpcInvalidParams(f"{file} has no pass {name!r}")
    if not on_name:
        recent = session.engine.recent(file)
        if not recent:
            client.tell(f"fx-lsp: open a file with a function or module to run {name} on; none is traced yet")
            return None
        titles = {f"{t.name} · {Path(t.file).name}": t for t in recent[:MAX_TARGETS]}
        actions = [types.MessageActionItem(title=title) for title in titles]
        question = types.ShowMessageRequestParams(types.MessageType.Info, f"Run {name} on …", actions)
        chosen = await client.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
        target = titles.get(getattr(chosen, "title", ""))
        if target is None:
            return None
        on_file, on_name = target.file, target.name
    return await open_view(session, client, views, View(on_file, on_name, RUN, False, run_of(pass_)))


async def show_failure(session: Session, client: Client, arguments: list[Any]) -> None:
    """Run `fxLsp.showFailure(uri, name)`: show why a target is not traced and jump to the cause."""
    file, name, *_ = _target(session, arguments)
    if session.engine is not None and session.engine.state(file) is not None:
        outcome = await session.engine.outcome(file, name)
        if isinstance(outcome, Failure):
            await _show_failure(session, client, session.with_cells(file, outcome))


async def restart(session: Session, arguments: list[Any]) -> None:
    """Run `fxLsp.restart`: end all tracing processes and trace everything again."""
    if session.engine is not None:
        await session.engine.restart()


async def clear_cache(client: Client, engines: Engines, arguments: list[Any]) -> None:
    """Run `fxLsp.clearCache`: remove every stored trace and trace the open files again."""
    try:
        await engines.clear_cache()
    except OSError as error:
        why = f"the cache cannot be removed: {error.filename}: {error.strerror}"
        client.tell(f"fx-lsp: {why}", types.MessageType.Warning)
    else:
        client.tell("fx-lsp: the cache is empty")


async def _show_failure(session: Session, client: Client, failure: Failure) -> None:
    client.tell(f"Not traced: {describe(failure)}")
    span = failure.span
    if span is None or not session.capabilities.show_document:
        return
    if session.source(span.file) is not None:
        place = session.location(span)
        shown = types.ShowDocumentParams(uri=place.uri, take_focus=True, selection=place.range)
        await client.ask(types.WINDOW_SHOW_DOCUMENT, shown)


def _target(session: Session, arguments: list[Any]) -> tuple[str, str, str, str, str]:
    """Return a file, the name of a target, and up to three more words, "" for missing ones."""
    words = [a if isinstance(a, str) else "" for a in arguments] + [""] * 5
    if not 2 <= len(arguments) <= 5:
        raise JsonRpcInvalidParams(_ARGUMENTS)
    return *target_of(session, words[:2]), words[2], words[3], words[4]


def target_of(session: Session, words: Sequence[Any]) -> tuple[str, str]:
    """Return the file and name of a target, or those of a view if the first word is its URI. Raises
    JsonRpcInvalidParams.
    """
    uri, name = [word if isinstance(word, str) else "" for word in (*words, "", "")][:2]
    view = session.views.find(uri)
    if not uri or not (name or view):
        raise JsonRpcInvalidParams(_ARGUMENTS)
    file = view.file if view is not None else from_proto.file_of_uri(uri, session.roots())
    if file is None:
        raise JsonRpcInvalidParams(f"{uri!r} is not a document that is traced")
    return file, name or (view.name if view is not None else "")
