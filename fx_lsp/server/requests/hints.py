"""`textDocument/inlayHint`."""

from __future__ import annotations

from lsprotocol import types

from fx_lsp.features.hints import TracedTarget, hints
from fx_lsp.features.lenses import default_stage
from fx_lsp.model import known_trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.session import Session


async def inlay_hint(session: Session, params: types.InlayHintParams) -> list[types.InlayHint] | None:
    """Return the hints in a range, of what is traced so far."""
    uri = params.text_document.uri
    document, state, engine = session.documents.get(uri), session.state(uri), session.engine
    if document is None or state is None or engine is None or not session.settings.inlay_hints:
        return None
    traced = [
        TracedTarget(t.target, t.outcome, engine.stage_now(document.file, t.target.name, default_stage(trace)))
        for t in state.targets
        if t.outcome is not None and (trace := known_trace(t.outcome)) is not None
    ]
    first, last = from_proto.line_range(params.range)
    return [
        to_proto.inlay_hint(hint, document.lines, session.encoding)
        for hint in hints(document.text, traced, first, last, session.settings.sizes)
    ]
