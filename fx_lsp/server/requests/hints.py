"""Handle `textDocument/inlayHint`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import attrs
from lsprotocol import types

from fx_lsp.features.hints import HintStyle, TracedTarget, hints
from fx_lsp.features.source.annotations import annotating
from fx_lsp.features.source.expressions import bindings
from fx_lsp.features.source.pin import TextChange, pin
from fx_lsp.features.wording.traces import default_stage
from fx_lsp.model import Trace, known_trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.display.stages import decoded_stage
from fx_lsp.server.session import Session

OPTIONS = types.InlayHintOptions(resolve_provider=True)


async def inlay_hint(
    session: Session, benchmarks: Benchmarks, params: types.InlayHintParams
) -> list[types.InlayHint] | None:
    """Return the hints in a range, from the traces so far; outside of notebooks without what the client resolves."""
    uri = params.text_document.uri
    shown = await _hints(session, benchmarks, uri, params.range)
    document, resolved = session.documents.get(uri), session.capabilities.resolved_in_hints
    if shown and resolved and document is not None and not document.cells:
        left_out = {"tooltip": None} if "tooltip" in resolved else {}
        return [attrs.evolve(hint, data=uri, **left_out) for hint in shown]
    return shown


async def resolve(session: Session, benchmarks: Benchmarks, hint: types.InlayHint) -> types.InlayHint:
    """Return a hint of `inlay_hint` with its tooltip, and the edits that write it down, if it is still shown there."""
    at, uri = hint.position, hint.data if isinstance(hint.data, str) else ""
    same = await _hints(session, benchmarks, uri, types.Range(at, at)) if uri else None
    whole = next((other for other in same or () if (other.position, other.label) == (at, hint.label)), None)
    if whole is None:
        return attrs.evolve(hint, tooltip=None)
    has_edits = "textEdits" in session.capabilities.resolved_in_hints
    edits = await asyncio.to_thread(_edits, session, uri, whole) if has_edits else None
    return attrs.evolve(hint, tooltip=whole.tooltip, text_edits=edits or None)


def _edits(session: Session, uri: str, hint: types.InlayHint) -> list[types.TextEdit]:
    """Return the edits that write a hint down: as an annotation or a comment; for an input, as a `# fx:` comment."""
    document, state = session.documents.get(uri), session.state(uri)
    if document is None or state is None or state.text != document.text or not isinstance(hint.label, str):
        return []
    text, (line, col) = document.text, from_proto.position(document.lines, hint.position, session.encoding)
    change = annotating(text, line, col, hint.label)
    changes: Sequence[TextChange] = () if change is None else (change,)
    for target, outcome in [(s.target, s.outcome) for s in state.targets] if change is None else ():
        ends = [(b.end_line, b.end_col) for b in bindings(text, target.span) if b.kind == "parameter"]
        comment = pin(text, target, outcome, line) if isinstance(outcome, Trace) and (line, col) in ends else None
        changes = changes if comment is None else comment.edits
    return [to_proto.text_edit(each, document.lines, session.encoding) for each in changes]


async def _hints(
    session: Session, benchmarks: Benchmarks, uri: str, range_: types.Range
) -> list[types.InlayHint] | None:
    document, state, engine = session.documents.get(uri), session.state(uri), session.engine
    if document is None or state is None or engine is None or not session.settings.inlay_hints:
        return None
    settings = session.settings
    first, last = from_proto.line_range(range_)
    traced: list[TracedTarget] = []
    for target_state in state.targets:
        target = target_state.target
        trace = None if target_state.outcome is None else known_trace(target_state.outcome)
        if trace is not None and target.span.line <= last and first <= target.span.end_line:
            stage = await decoded_stage(engine, target_state, default_stage(trace))
            reading = settings.hint_kinds & {"savedForBackward", "costs"} and isinstance(target_state.outcome, Trace)
            reads_backward = reading and trace.ops("backward")
            backward = await decoded_stage(engine, target_state, "backward") if reads_backward else None
            run = benchmarks.last(target.file, target.name) if "costs" in settings.hint_kinds else None
            measured = None if run is None or run.stale else run
            traced.append(TracedTarget(target, target_state.outcome, stage, backward, measured))
    style = HintStyle(settings.sizes, settings.hint_kinds, settings.strides)
    shown = await asyncio.to_thread(hints, document.text, traced, first, last, style)
    return [to_proto.inlay_hint(hint, document.lines, session.encoding) for hint in shown]
