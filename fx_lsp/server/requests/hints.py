"""Handle `textDocument/inlayHint`."""

from __future__ import annotations

import asyncio

import attrs
from lsprotocol import types

from fx_lsp.features.hints import HintStyle, TracedTarget, hints
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
    """Return the hints in a range, from the traces so far; outside of notebooks without tooltips, if the client
    resolves them.
    """
    uri = params.text_document.uri
    shown = await _hints(session, benchmarks, uri, params.range)
    document = session.documents.get(uri)
    if shown and session.capabilities.resolves_tooltips and document is not None and not document.cells:
        return [attrs.evolve(hint, tooltip=None, data=uri if hint.tooltip else None) for hint in shown]
    return shown


async def resolve(session: Session, benchmarks: Benchmarks, hint: types.InlayHint) -> types.InlayHint:
    """Return a hint of `inlay_hint` with its tooltip, if it is still shown at its place."""
    at = hint.position
    same = await _hints(session, benchmarks, hint.data, types.Range(at, at)) if isinstance(hint.data, str) else None
    whole = next((other for other in same or () if (other.position, other.label) == (at, hint.label)), hint)
    return attrs.evolve(hint, tooltip=whole.tooltip)


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
