"""`textDocument/inlayHint`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.hints import TracedTarget, hints
from fx_lsp.features.lenses import default_stage
from fx_lsp.model import known_trace
from fx_lsp.server import from_proto, to_proto

if TYPE_CHECKING:
    from fx_lsp.server.session import Server


async def inlay_hint(server: Server, params: types.InlayHintParams) -> list[types.InlayHint] | None:
    """The hints in a range, of what is traced so far."""
    uri = params.text_document.uri
    document, state, engine = server.documents.get(uri), server.state(uri), server.engine
    if document is None or state is None or engine is None or not server.settings.inlay_hints:
        return None
    traced = [
        TracedTarget(t.target, t.outcome, engine.stage_now(document.file, t.target.name, default_stage(trace)))
        for t in state.targets
        if t.outcome is not None and (trace := known_trace(t.outcome)) is not None
    ]
    first, last = from_proto.line_range(params.range)
    return [
        to_proto.inlay_hint(hint, document.lines, server.encoding)
        for hint in hints(document.text, traced, first, last, server.settings.sizes)
    ]
