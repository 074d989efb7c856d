"""Send updates when the displayed results of a file have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Set

from lsprotocol import types

from fx_lsp.server.client import Client
from fx_lsp.server.display.diagnostics import publish, publish_kernels
from fx_lsp.server.display.views import Views
from fx_lsp.server.session import Session

CHANGED = "fxLsp/changed"


def redraw(session: Session, client: Client, views: Views, files: Set[str]) -> None:
    """Publish diagnostics again, update views, and ask the client to request lenses and hints again."""
    if session.closed:
        return
    session.redrawn.set()
    session.redrawn = asyncio.Event()
    for file in dict.fromkeys((*files, *(d.file for d in session.documents))):  # passes report in other files, too
        try:
            publish(session, client, file)
            if file in files:
                views.refresh(file)
            for view in session.views.of_kernels(file):
                publish_kernels(session, client, view)
        except Exception as error:
            client.internal_error("diagnostics", error)
    if session.settings.changes:
        uris = [document.uri for document in map(session.documents.of_file, files) if document is not None]
        client.notify(CHANGED, {"uris": uris})
    if session.capabilities.code_lens_refresh:
        client.request_soon(types.WORKSPACE_CODE_LENS_REFRESH)
    if session.capabilities.inlay_hint_refresh:
        client.request_soon(types.WORKSPACE_INLAY_HINT_REFRESH)
