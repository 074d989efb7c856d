"""Write and update a user's file of kernels: the command, and the lens over such a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp import files
from fx_lsp.choices import TRITON
from fx_lsp.features.kernel_files import check_title, conflicts_lens, written_lens
from fx_lsp.features.kernels import work_of
from fx_lsp.features.wording.problems import describe
from fx_lsp.model import Failure, Work
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.client import Client
from fx_lsp.server.display.kernel_checks import KernelChecks
from fx_lsp.server.display.text_edits import put_text
from fx_lsp.server.display.views import close_unused
from fx_lsp.server.documents import OpenText
from fx_lsp.server.refresh import RefreshTimer
from fx_lsp.server.requests.commands import kernels_work, target_of
from fx_lsp.server.session import Session

if TYPE_CHECKING:
    from fx_lsp.tracing.kernel_files.generated import Generated, Update


async def write_kernel(
    session: Session, client: Client, refresh: RefreshTimer, checks: KernelChecks, arguments: list[Any]
) -> dict[str, Any] | None:
    """Run `fxLsp.writeKernel(uri, name, path?)`: write the kernels of a target to a file that the user may edit.

    An existing file is updated, and edits are kept. `uri` may be that of a view, or of the file. The file is then
    checked in the background.

    Returns its `uri` and `path`, the number of `kept` edits, and the lines (from 0) of `conflicts`; null if the file is
    left unchanged.
    """
    from fx_lsp.tracing.kernel_files import generated

    source, name, work, file = _arguments(session, arguments)
    if work == TRITON:
        work = await kernels_work(session, client, source, name)
    kernels = await _generate(session, client, source, name, work)
    if kernels is None:
        return None
    document = session.documents.of_file(str(file))
    try:
        present = generated.read(file) if document is None else document.text
        update = generated.update(generated.record_of(file), present, kernels)
        if isinstance(update, generated.Refusal):
            client.tell(f"fx-lsp: {file.name} {update.reason}", types.MessageType.Warning)
            if update.conflicts:
                await _show(session, client, file, update.conflicts)
            return None
        if update.text != present and (reason := await put_text(session, client, file, update.text, "Update kernels")):
            client.tell(f"fx-lsp: {reason}", types.MessageType.Warning)
            return None
        generated.keep(file, kernels, present if update.text != present else None)
    except OSError as error:
        client.tell(f"fx-lsp: {file} cannot be written: {error.strerror or error}", types.MessageType.Warning)
        return None
    checks.written(str(file), kernels, update.text)
    refresh.updated(str(file))
    await _tell(session, client, file, update, present)
    lines = [line - 1 for line in update.conflicts]
    return {"uri": session.uri_of_file(str(file)), "path": str(file), "kept": update.kept, "conflicts": lines}


async def lenses(session: Session, document: OpenText) -> list[types.CodeLens]:
    """Return the lens over a file of kernels: its target, and whether it is up to date."""
    from fx_lsp.tracing.kernel_files import generated

    if not generated.is_known(document.file):
        return []
    texts = {other.file: other.text for other in session.documents}

    def look() -> tuple[Generated, str] | None:
        record = generated.undone(document.file, document.text)
        if record is None:
            return None
        source = texts.get(record.last.source)
        text = session.source(record.last.source) if source is None else source
        return record.last, generated.standing(record.last, text, texts)

    last_and_standing = await asyncio.to_thread(look)
    if last_and_standing is None:
        return []
    last, standing = last_and_standing
    _, text = generated.without_failure(document.text.replace("\r\n", "\n"))
    if conflicts := len(generated.conflicts_in(document.text)):
        lens = conflicts_lens(last.title, last.name, conflicts)
    else:
        lens = written_lens(last.title, last.name, standing, check_title(session.checks.get(document.file), text))
    return [to_proto.code_lens(lens, document.uri, document.lines, session.encoding, 0)]


def _arguments(session: Session, arguments: list[Any]) -> tuple[str, str, Work, Path]:
    """Return a target's file and name, the work of its kernels, and the file to write. Raises JsonRpcInvalidParams."""
    from fx_lsp.tracing.kernel_files.generated import record_of

    if not 1 <= len(arguments) <= 3 or not all(isinstance(argument, str) for argument in arguments):
        raise JsonRpcInvalidParams("the arguments must be a document's URI, the name of a target, and a path")
    uri, path = arguments[0], (arguments[2] if len(arguments) > 2 else "")
    file = from_proto.file_of_uri(uri, session.roots())
    document = session.documents.of_file(file) if file is not None else None
    record = record_of(file) if file is not None else None
    if file is not None and record is not None:
        kernels = record.of(document.text) if document is not None else record.last
        return kernels.source, kernels.name, kernels.work, Path(file).parent / _local(path) if path else Path(file)
    source, name = target_of(session, arguments[:2])
    output = Path(source).parent / _local(path) if path else _beside(source, name)
    view, record = session.views.find(uri), record_of(output)
    if view is not None:
        return source, name, work_of(TRITON, "", view.work), output
    is_ours = record is not None and record.last.is_of(source, name)
    return source, name, record.last.work if record is not None and is_ours else TRITON, output


def _local(path: str) -> str:
    """Return a path that may be given as a URI. Raises JsonRpcInvalidParams if it is not a valid path."""
    local = from_proto.path_of_uri(path) or path
    try:
        files.status_of(local)
    except OSError as error:
        raise JsonRpcInvalidParams(f"{path!r} is not a path: {error.strerror}") from error
    return local


def _beside(source: str, name: str) -> Path:
    """Return a file next to the source that has its kernels already, or that does not exist."""
    from fx_lsp.tracing.kernel_files.generated import record_of

    stem, number = f"{Path(source).stem}_{name.replace('.', '_')}_kernels", 1
    while True:
        file = Path(source).with_name(f"{stem}{'' if number == 1 else f'_{number}'}.py")
        record = record_of(file)
        if not file.exists() or (record is not None and record.last.is_of(source, name)):
            return file
        number += 1


async def _generate(session: Session, client: Client, source: str, name: str, work: Work) -> Generated | None:
    """Return the kernels of a target, whose file may be closed; None after reporting a failure to the user."""
    from fx_lsp.tracing.kernel_files.generated import generate

    engine = session.engine
    if engine is None:
        return None
    if engine.state(source) is None:
        text = session.source(source)
        if text is None:
            client.tell(f"fx-lsp: there is no file {source}", types.MessageType.Warning)
            return None
        engine.open(source, text, session.roots_of(source))
    try:
        kernels = await generate(engine, source, name, work)
    finally:
        close_unused(session, source)
    if isinstance(kernels, Failure):
        client.tell(f"No kernels for {name}: {describe(kernels)}", types.MessageType.Warning)
        return None
    return kernels


async def _tell(session: Session, client: Client, file: Path, update: Update, present: str | None) -> None:
    said = f"{file.name}: {update.said(present)}"
    if update.conflicts:
        client.tell(said, types.MessageType.Warning)
    elif present is not None or not session.capabilities.show_document:
        client.tell(said)
    await _show(session, client, file, update.conflicts)


async def _show(session: Session, client: Client, file: Path, conflicts: tuple[int, ...]) -> None:
    """Show the file in the editor, at its first conflict."""
    if session.capabilities.show_document:
        at = types.Position(conflicts[0] - 1, 0) if conflicts else None
        selection = types.Range(at, at) if at is not None else None
        uri = session.uri_of_file(str(file))
        await client.ask(
            types.WINDOW_SHOW_DOCUMENT, types.ShowDocumentParams(uri=uri, take_focus=True, selection=selection)
        )
