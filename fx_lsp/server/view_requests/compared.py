"""Handle `fxLsp/compare`: several graphs beside each other, for clients that draw them in columns."""

from __future__ import annotations

import asyncio
from typing import Any

from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.documents.comparison import AlignedRow, align
from fx_lsp.features.documents.document import render_node
from fx_lsp.features.wording.dimensions import SizeNames
from fx_lsp.features.wording.problems import describe
from fx_lsp.features.wording.text import basename
from fx_lsp.features.wording.uris import View, format_uri, parse_uri
from fx_lsp.messages.requests import NO_SUCH_GRAPH, RESTARTING
from fx_lsp.model import Failure, Node, Stage, known_trace, variant_of
from fx_lsp.server.session import Session
from fx_lsp.server.view_requests.panels import Places

COMPARE = "fxLsp/compare"
Json = dict[str, Any]


async def compare(session: Session, params: Any) -> Json:
    """Answer `fxLsp/compare`: the graphs of the views' URIs in aligned rows, or `{"failure": text}`."""
    views = [parse_uri(str(uri)) for uri in getattr(params, "uris", None) or ()]
    views = [view for view in views if view is not None]
    if len(views) < 2 or len(views) != len(params.uris):
        raise JsonRpcInvalidParams("`uris` must be the URIs of two views or more")
    stages: list[Stage] = []
    for view in views:
        stage = await _stage(session, view)
        if isinstance(stage, Failure):
            return {"failure": f"{view.name} · {view.stage}: {describe(stage)}"}
        stages.append(stage)
    return await asyncio.to_thread(_comparison, session, views, stages)


async def _stage(session: Session, view: View) -> Stage | Failure:
    """Return the stage of a view, with sizes in the style of the settings."""
    if session.engine is None:
        return RESTARTING.failure()
    outcome = await session.engine.outcome(view.file, view.name, view.work)
    trace = known_trace(outcome)
    if trace is None:
        return outcome if isinstance(outcome, Failure) else NO_SUCH_GRAPH.failure()
    stage = await session.engine.stage(view.file, view.name, view.stage, view.work)
    if isinstance(stage, Failure) or not stage.nodes:
        return stage if isinstance(stage, Failure) else NO_SUCH_GRAPH.failure()
    names = SizeNames(trace, session.settings.sizes)
    return Stage(stage.name, tuple(map(names.renamed, stage.nodes)))


def _comparison(session: Session, views: list[View], stages: list[Stage]) -> Json:
    places = Places(session)
    return {
        "graphs": [{"title": _title(view), "uri": format_uri(view)} for view in views],
        "rows": [_row(places, row) for row in align(stages)],
    }


def _title(view: View) -> str:
    variant = variant_of(view.work)
    return f"{basename(view.file)}::{view.name}{f' with {variant}' if variant else ''} · {view.stage}"


def _row(places: Places, row: AlignedRow) -> list[Json]:
    return [_cell(places, node, unlike) for node, unlike in zip(row.nodes, row.unlike, strict=True)]


def _cell(places: Places, node: Node | None, unlike: bool) -> Json:
    if node is None:
        return {"text": "", "unlike": unlike, "place": None}
    return {"text": render_node(node), "unlike": unlike, "place": places.location(node.span)}
