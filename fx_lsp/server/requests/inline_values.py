"""Handle `textDocument/inlineValue`, which editors send while a debugger has stopped."""

from __future__ import annotations

from lsprotocol import types

from fx_lsp.features.inline_values import inline_values
from fx_lsp.model import Trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.session import Session


async def inline_value(
    session: Session, params: types.InlineValueParams
) -> list[types.InlineValueEvaluatableExpression] | None:
    """Return the expressions for the debugger in the visible lines of the function at which it has stopped. There are
    none in notebooks.
    """
    document, state = session.documents.get(params.text_document.uri), session.state(params.text_document.uri)
    if document is None or document.cells or state is None:
        return None
    stopped, (first, last) = params.context.stopped_location.start.line + 1, from_proto.line_range(params.range)
    around = [t for t in state.targets if t.target.span.line <= stopped <= t.target.span.end_line]
    if not around or not isinstance(outcome := around[-1].outcome, Trace):
        return None
    shown = (value for value in inline_values(around[-1].target, outcome, stopped) if first <= value.span.line <= last)
    return [
        types.InlineValueEvaluatableExpression(
            to_proto.range_(document.lines, value.span, session.encoding), value.expression
        )
        for value in shown
    ]
