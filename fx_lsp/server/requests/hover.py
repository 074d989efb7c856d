"""Handle `textDocument/hover`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from lsprotocol import types

from fx_lsp.features import hover as features
from fx_lsp.features.costs.benchmark import hover as benchmark_hover
from fx_lsp.features.wording.traces import EXECUTED, default_stage
from fx_lsp.model import Span, Stage, Trace, known_trace, variant_work
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.documents import OpenText
from fx_lsp.server.session import Session
from fx_lsp.server.view_requests import view_lines

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import TargetState


_STAGES = ("forward", "inference", "backward", "graph", EXECUTED)


async def hover(session: Session, benchmarks: Benchmarks, params: types.HoverParams) -> types.Hover | None:
    """Return the hover on the name or the expression under the cursor."""
    uri = params.text_document.uri
    document, state = session.documents.get(uri), session.state(uri)
    view = session.views.find(uri) if document is None else None
    if view is not None:
        return await view_lines.hover(session, benchmarks, view, params)
    if document is None or state is None or session.engine is None:
        return None
    line, col = from_proto.position(document.lines, params.position, session.encoding)
    session.engine.focus(document.file, line)
    place = Span(document.file, line, col, line, col)
    shown = await _hover(session, benchmarks, document, state.targets, place)
    if shown is None:
        return None
    return to_proto.hover(shown, document.lines, session.encoding, session.capabilities.markdown)


async def _hover(
    session: Session, benchmarks: Benchmarks, document: OpenText, targets: tuple[TargetState, ...], place: Span
) -> features.Hover | None:
    settings = session.settings
    link = _link(document.uri) if settings.command_links else None
    style = features.HoverStyle(settings.diagnostics, settings.sizes != "numbers", link, settings.gpu)
    for state in targets:
        if state.target.name_span.contains(place) and state.outcome is not None:
            trace = known_trace(state.outcome)
            stage = default_stage(trace) if trace is not None else ""
            graph = await _stage(session, state, stage)
            about = state.target, state.outcome, state.stale, graph, style
            shown = await asyncio.to_thread(features.hover_name, *about)
            measured = benchmarks.last(state.target.file, state.target.name)
            if measured is not None:
                shown = replace(shown, markdown=f"{shown.markdown}\n\n---\n\n{benchmark_hover(measured)}")
            return shown
    around = [state for state in targets if state.target.span.contains(place)]
    for state in sorted(around, key=lambda s: s.target.span.end_line - s.target.span.line):
        if state.outcome is None:
            continue
        graphs = [await _stage(session, state, name) for name in _STAGES]
        stages = [graph for graph in graphs if graph is not None]
        variants = _variant_stages(session, state)
        requested = session.engine.remarks(document.file) if session.engine is not None else ()
        subject = features.HoverSubject(document.text, state.target, state.outcome, stages, variants, requested)
        shown = await asyncio.to_thread(features.hover_expression, subject, place.line, place.col, style)
        if shown is not None:
            return shown
    return None


async def _stage(session: Session, state: TargetState, name: str) -> Stage | None:
    """Return a stage of a target that is traced already. Decodes it if needed, but never waits for a trace."""
    trace = None if state.outcome is None else known_trace(state.outcome)
    if session.engine is None or trace is None or trace.ops(name) is None:
        return None
    target = state.target
    decoded = session.engine.stage_now(target.file, target.name, name)
    if decoded is not None or state.pending or state.stale:
        return decoded
    stage = await session.engine.stage(target.file, target.name, name)
    return stage if isinstance(stage, Stage) else None


def _variant_stages(session: Session, state: TargetState) -> dict[str, list[Stage]]:
    """Return the decoded stages of the variants of a target."""
    trace = state.outcome if isinstance(state.outcome, Trace) else None
    if trace is None or session.engine is None:
        return {}
    by_variant: dict[str, list[Stage]] = {}
    for variant in trace.variants:
        work = variant_work(variant.name)
        stages = (session.engine.stage_now(state.target.file, state.target.name, name, work) for name in _STAGES)
        by_variant[variant.name] = [stage for stage in stages if stage is not None]
    return by_variant


_LINKS = {features.PIN: "fxLsp.pinInputs", features.SAVED: "fxLsp.showMemory"}
"""Commands of the client, each called with a document's URI and the name of a target."""


def _link(uri: str) -> features.Link:
    def link(name: str, stage: str) -> str:
        words = [uri, name] if stage in _LINKS else [uri, name, stage]
        return f"command:{_LINKS.get(stage, to_proto.SHOW_STAGE)}?{quote(json.dumps(words), safe='')}"

    return link
