"""Kernels as a file of the user, which is edited and brought up to date: the command, and the lens over such a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.choices import TRITON
from fx_lsp.features.kernels import work_of
from fx_lsp.features.problems import describe
from fx_lsp.features.written import edits, written_lens
from fx_lsp.model import Failure, Work
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.actions import workspace_edit
from fx_lsp.server.commands import target_of
from fx_lsp.server.documents import Document, read_source, roots_of, uri_of_file

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.kernel_files.generated import Generated, Update

SEEN_SECONDS = 1.0
"""How long the client may take to tell that it has changed a text as it was asked to."""


async def write_kernel(server: Server, arguments: list[Any]) -> dict[str, Any] | None:
    """`fxLsp.writeKernel(uri, name, path?)`: writes the kernels of a target to a file that its user may edit, or brings
    that up to date with them: edits stay. `uri` may be that of a view, or of the file itself.

    Returns its `uri` and `path`, how many edits are `kept`, and the lines (from 0) of `conflicts`; null where it
    is left as it is.
    """
    from fx_lsp.tracing.kernel_files import generated

    source, name, work, file = _asked(server, arguments)
    made = await _generate(server, source, name, work)
    if made is None:
        return None
    document = server.documents.of_file(str(file))
    try:
        present = generated.read(file) if document is None else document.text
        found = generated.update(generated.record_of(file), present, made)
        if isinstance(found, generated.Refusal):
            server.tell(f"fx-lsp: {file.name} {found.reason}", types.MessageType.Warning)
            if found.conflicts:
                await _show(server, file, found.conflicts)
            return None
        if found.text != present and not await _put(server, document, file, found.text):
            return None
        generated.keep(file, made, present if found.text != present else None)
    except OSError as error:
        server.tell(f"fx-lsp: {file} cannot be written: {error.strerror or error}", types.MessageType.Warning)
        return None
    server.updated(str(file))
    await _tell(server, file, found, present)
    lines = [line - 1 for line in found.conflicts]
    return {"uri": uri_of_file(server, str(file)), "path": str(file), "kept": found.kept, "conflicts": lines}


async def lenses(server: Server, document: Document) -> list[types.CodeLens]:
    """Over a file of kernels: whose they are, and whether they are up to date."""
    from fx_lsp.tracing.kernel_files import generated

    if not generated.is_known(document.file):
        return []
    texts = {other.file: other.text for other in server.documents}

    def look() -> tuple[Generated, str] | None:
        known = generated.undone(document.file, document.text)
        if known is None:
            return None
        source = texts.get(known.last.source)
        text = read_source(server, known.last.source) if source is None else source
        return known.last, generated.standing(known.last, text, texts)

    found = await asyncio.to_thread(look)
    if found is None:
        return []
    made, standing = found
    lens = written_lens(made.title, made.name, standing, len(generated.conflicts_in(document.text)))
    return [to_proto.code_lens(lens, document.uri, document.lines, server.encoding, 0)]


def _asked(server: Server, arguments: list[Any]) -> tuple[str, str, Work, Path]:
    """The target, how its kernels are made, and the file. Raises JsonRpcInvalidParams."""
    from fx_lsp.tracing.kernel_files.generated import record_of

    if not 1 <= len(arguments) <= 3 or not all(isinstance(argument, str) for argument in arguments):
        raise JsonRpcInvalidParams("the arguments are a document's URI, the name of a target, and a path")
    uri, path = arguments[0], (arguments[2] if len(arguments) > 2 else "")
    file = from_proto.file_of_uri(uri, server.roots())
    document = server.documents.of_file(file) if file is not None else None
    known = record_of(file) if file is not None else None
    if file is not None and known is not None:
        made = known.of(document.text) if document is not None else known.last
        return made.source, made.name, made.work, Path(file).parent / _local(path) if path else Path(file)
    source, name = target_of(server, arguments[:2])
    output = Path(source).parent / _local(path) if path else _beside(source, name)
    view, known = server.views.find(uri), record_of(output)
    if view is not None:
        return source, name, work_of(TRITON, "", view.work), output
    is_ours = known is not None and known.last.is_of(source, name)
    return source, name, known.last.work if known is not None and is_ours else TRITON, output


def _local(path: str) -> str:
    """A path that may be a URI."""
    return from_proto.file_of_uri(path, ()) or path


def _beside(source: str, name: str) -> Path:
    """A file beside the source that holds its kernels already, or that nobody has."""
    from fx_lsp.tracing.kernel_files.generated import record_of

    stem, number = f"{Path(source).stem}_{name.replace('.', '_')}_kernels", 1
    while True:
        file = Path(source).with_name(f"{stem}{'' if number == 1 else f'_{number}'}.py")
        known = record_of(file)
        if not file.exists() or (known is not None and known.last.is_of(source, name)):
            return file
        number += 1


async def _generate(server: Server, source: str, name: str, work: Work) -> Generated | None:
    """The kernels of a target, whose file may be closed; None once it was said why there are none."""
    from fx_lsp.tracing.kernel_files.generated import generate

    engine = server.engine
    if engine is None:
        return None
    if engine.state(source) is None:
        text = read_source(server, source)
        if text is None:
            server.tell(f"fx-lsp: there is no file {source}", types.MessageType.Warning)
            return None
        engine.open(source, text, roots_of(server.roots(), source))
    try:
        made = await generate(engine, source, name, work)
    finally:
        server.views.close_unused(source)
    if isinstance(made, Failure):
        server.tell(f"No kernels of {name}: {describe(made)}", types.MessageType.Warning)
        return None
    return made


async def _put(server: Server, document: Document | None, file: Path, text: str) -> bool:
    """Give the file its new text: in the editor where that has it open, so that it can be undone. Raises OSError."""
    from fx_lsp.tracing.kernel_files.generated import read, write

    if document is None or (not server.client.apply_edit and document.text == read(file)):
        write(file, text)
        return True
    if not server.client.apply_edit:
        server.tell(f"fx-lsp: save {file.name} first", types.MessageType.Warning)
        return False
    changes = edits(document.lines, from_proto.split_lines(text))
    edit = types.ApplyWorkspaceEditParams(workspace_edit(server, document, changes), label="Bring kernels up to date")
    answer = await server.ask(types.WORKSPACE_APPLY_EDIT, edit)
    if not getattr(answer, "applied", False):
        server.tell(f"fx-lsp: {file.name} was not changed by the editor", types.MessageType.Warning)
        return False
    until = asyncio.get_running_loop().time() + SEEN_SECONDS
    while server.documents.get(document.uri) == document and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.01)
    return True


async def _tell(server: Server, file: Path, found: Update, present: str | None) -> None:
    said = f"{file.name}: {found.said(present)}"
    if found.conflicts:
        server.tell(said, types.MessageType.Warning)
    elif present is not None or not server.client.show_document:
        server.tell(said)
    await _show(server, file, found.conflicts)


async def _show(server: Server, file: Path, conflicts: tuple[int, ...]) -> None:
    """Shows the file in the editor, at its first conflict."""
    if server.client.show_document:
        at = types.Position(conflicts[0] - 1, 0) if conflicts else None
        selection = types.Range(at, at) if at is not None else None
        uri = uri_of_file(server, str(file))
        await server.ask(
            types.WINDOW_SHOW_DOCUMENT, types.ShowDocumentParams(uri=uri, take_focus=True, selection=selection)
        )
