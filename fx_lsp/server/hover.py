"""`textDocument/hover`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from lsprotocol import types

from fx_lsp.features import hover as features
from fx_lsp.features.benchmark import hover as benchmark_hover
from fx_lsp.features.lenses import default_stage
from fx_lsp.features.partial import EXECUTED
from fx_lsp.model import Span, Stage, Trace, known_trace, variant_work
from fx_lsp.server import from_proto, linked, to_proto

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import TargetState


_STAGES = ("forward", "inference", "backward", "graph", EXECUTED)


async def hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    """What is known of the name or the expression under the cursor."""
    uri = params.text_document.uri
    document, state = server.documents.get(uri), server.state(uri)
    view = server.views.find(uri) if document is None else None
    if view is not None:
        return await linked.hover(server, view, params.position)
    if document is None or state is None or server.engine is None:
        return None
    line, col = from_proto.position(document.lines, params.position, server.encoding)
    server.engine.focus(document.file, line)
    place = Span(document.file, line, col, line, col)
    found = await _hover(server, state.targets, document.text, uri, place)
    return None if found is None else to_proto.hover(found, document.lines, server.encoding, server.client.markdown)


async def _hover(
    server: Server, targets: tuple[TargetState, ...], text: str, uri: str, place: Span
) -> features.Hover | None:
    problems, names = server.settings.diagnostics, server.settings.sizes != "numbers"
    for state in targets:
        if state.target.name_span.contains(place) and state.outcome is not None:
            trace = known_trace(state.outcome)
            stage = default_stage(trace) if trace is not None else ""
            shown = await server.known_stage(state, stage)
            link = _link(uri) if server.settings.command_links else None
            found = features.hover_name(state.target, state.outcome, state.stale, shown, link, problems, names)
            measured = server.benchmarks.last(state.target.file, state.target.name)
            if measured is not None:
                found = replace(found, markdown=f"{found.markdown}\n\n---\n\n{benchmark_hover(measured)}")
            return found
    around = [state for state in targets if state.target.span.contains(place)]
    for state in sorted(around, key=lambda s: s.target.span.end_line - s.target.span.line):
        if state.outcome is None:
            continue
        stages = [await server.known_stage(state, name) for name in _STAGES]
        known = [stage for stage in stages if isinstance(stage, Stage)]
        at = place.line, place.col
        variants = _variant_stages(server, state)
        found = features.hover_expression(text, state.target, state.outcome, known, *at, problems, variants, names)
        if found is not None:
            return found
    return None


def _variant_stages(server: Server, state: TargetState) -> dict[str, list[Stage]]:
    """The stages of the variants of a target that are at hand."""
    trace = state.outcome if isinstance(state.outcome, Trace) else None
    if trace is None or server.engine is None:
        return {}
    by_variant: dict[str, list[Stage]] = {}
    for variant in trace.variants:
        work = variant_work(variant.name)
        stages = (server.engine.stage_now(state.target.file, state.target.name, name, work) for name in _STAGES)
        by_variant[variant.name] = [stage for stage in stages if stage is not None]
    return by_variant


_LINKS = {features.PIN: "fxLsp.pinInputs", features.SAVED: "fxLsp.showMemory"}
"""Commands of the client, each with a document's URI and the name of a target."""


def _link(uri: str) -> features.Link:
    def link(name: str, stage: str) -> str:
        words = [uri, name] if stage in _LINKS else [uri, name, stage]
        return f"command:{_LINKS.get(stage, to_proto.SHOW_STAGE)}?{quote(json.dumps(words), safe='')}"

    return link
