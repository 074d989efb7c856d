"""Change texts of the user: in the editor if they are open there, so that the change can be undone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types

from fx_lsp.features.kernel_files import edits
from fx_lsp.features.source.pin import TextChange
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.client import Client
from fx_lsp.server.documents import OpenText
from fx_lsp.server.session import Session

SEEN_SECONDS = 1.0
"""Seconds that the client may take to confirm a requested edit of a text."""


async def put_text(session: Session, client: Client, file: Path, text: str, label: str) -> str:
    """Replace a file's text; return why that is not possible, or "". Raises OSError."""
    from fx_lsp.tracing.kernel_files.generated import read, write

    document = session.documents.of_file(str(file))
    if document is None or (not session.capabilities.apply_edit and document.text == read(file)):
        write(file, text)
        return ""
    if not session.capabilities.apply_edit:
        return f"save {file.name} first"
    changes = edits(document.lines, from_proto.split_lines(text))
    edit = types.ApplyWorkspaceEditParams(workspace_edit(session, document, changes), label=label)
    answer = await client.ask(types.WORKSPACE_APPLY_EDIT, edit)
    if not getattr(answer, "applied", False):
        return f"{file.name} could not be changed by the editor"
    until = asyncio.get_running_loop().time() + SEEN_SECONDS
    while session.documents.get(document.uri) == document and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.01)
    return ""


def workspace_edit(session: Session, document: OpenText, changes: Sequence[TextChange]) -> types.WorkspaceEdit:
    """Return an edit of one document, or of cells of a notebook, with versions if the client supports that."""
    edits = document.edits(to_proto.text_edit(change, document.lines, session.encoding) for change in changes)
    if session.capabilities.document_changes:
        versioned = [
            types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri, version), own)
            for uri, version, own in edits
        ]
        return types.WorkspaceEdit(document_changes=versioned)
    return types.WorkspaceEdit(changes={uri: own for uri, _, own in edits})
