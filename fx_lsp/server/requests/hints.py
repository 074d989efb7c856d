"""Handle `textDocument/inlayHint`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs
from lsprotocol import types

from fx_lsp.features.hints import HintStyle, TracedTarget, hints
from fx_lsp.features.lenses import default_stage
from fx_lsp.model import Stage, Trace, known_trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.session import Session

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import Engine, TargetState

MAX_READ_OPS = 2_000
"""The largest graph, in operations, that is decoded for hints."""


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
            stage = await _stage(engine, target_state, default_stage(trace))
            reading = settings.hint_kinds & {"savedForBackward", "costs"} and isinstance(target_state.outcome, Trace)
            backward = await _stage(engine, target_state, "backward") if reading and trace.ops("backward") else None
            run = benchmarks.last(target.file, target.name) if "costs" in settings.hint_kinds else None
            measured = None if run is None or run.stale else run
            traced.append(TracedTarget(target, target_state.outcome, stage, backward, measured))
    style = HintStyle(settings.sizes, settings.hint_kinds, settings.strides)
    shown = await asyncio.to_thread(hints, document.text, traced, first, last, style)
    return [to_proto.inlay_hint(hint, document.lines, session.encoding) for hint in shown]


async def _stage(engine: Engine, target_state: TargetState, name: str) -> Stage | None:
    """Return a stage of a traced target; a large one only if it is decoded already."""
    target, trace = target_state.target, target_state.outcome and known_trace(target_state.outcome)
    ops = trace.ops(name) if trace is not None else None
    if ops is None:
        return None
    decoded = engine.stage_now(target.file, target.name, name)
    if decoded is not None or target_state.pending or target_state.stale or ops > MAX_READ_OPS:
        return decoded
    stage = await engine.stage(target.file, target.name, name)
    return stage if isinstance(stage, Stage) else None
