"""`textDocument/codeLens`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.lenses import lenses, pass_lenses
from fx_lsp.server import linked, to_proto

if TYPE_CHECKING:
    from fx_lsp.server.session import Server


async def code_lens(server: Server, params: types.CodeLensParams) -> list[types.CodeLens] | None:
    """The lenses of what is traced so far; a refresh follows when there is more."""
    uri = params.text_document.uri
    document, state = server.documents.get(uri), server.state(uri)
    view = server.views.find(uri) if document is None and server.settings.code_lens else None
    if view is not None:
        return await linked.code_lens(server, view, uri)
    if document is None or state is None or not server.settings.code_lens:
        return None
    found = [
        to_proto.code_lens(lens, uri, document.lines, server.encoding, place)
        for target in state.targets
        for place, lens in enumerate(lenses(target.target, target.outcome, target.stale))
    ]
    engine = server.engine
    passes = () if engine is None or state.text != document.text else engine.passes(document.file)
    recent = engine.recent(document.file) if engine is not None and passes else []
    return found + [
        to_proto.code_lens(lens, uri, document.lines, server.encoding, place)
        for pass_ in passes
        for place, lens in enumerate(pass_lenses(pass_, recent))
    ]
