"""Handle requests of clients that draw: a graph, memory, the functions of a file, the origins of a view's lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from fx_lsp.features.costs.memory import MemoryStep, memory
from fx_lsp.features.kernels import RenderedView, chip_of
from fx_lsp.features.picture import Box, Group, picture
from fx_lsp.features.wording.dimensions import SizeNames, SizeStyle
from fx_lsp.features.wording.guesses import Guesses
from fx_lsp.features.wording.inputs import input_data, variant_title
from fx_lsp.features.wording.problems import describe
from fx_lsp.features.wording.text import span_text
from fx_lsp.features.wording.traces import EXECUTED, default_stage, summarize, until
from fx_lsp.features.wording.uris import View, format_uri
from fx_lsp.messages.requests import NO_SUCH_GRAPH, RESTARTING
from fx_lsp.model import Failure, Outcome, Pass, Span, Stage, Trace, known_trace, plain_work, variant_of, variant_work
from fx_lsp.server import from_proto
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.session import Session
from fx_lsp.server.view_requests.view_documents import view_of
from fx_lsp.server.view_requests.view_lines import kernels_behind

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import TargetState

GRAPH = "fxLsp/graph"
MEMORY = "fxLsp/memory"
FUNCTIONS = "fxLsp/functions"
ORIGINS = "fxLsp/origins"
BENCHMARK = "fxLsp/benchmark"
_GRAPHS = ("forward", "backward", "joint", "inference", "graph", EXECUTED)
Json = dict[str, Any]


async def graph(session: Session, params: Any) -> Json:
    """Answer `fxLsp/graph`: the stage of a view's URI as nodes, edges and groups, or `{"failure": text}`."""
    view = view_of(params)
    outcome = await _outcome(session, view, view.work)
    trace = known_trace(outcome)
    stage = await _stage(session, view, view.stage, view.work) if trace is not None else outcome
    if trace is None or not isinstance(stage, Stage):
        return {"failure": describe(_failure(stage))}
    return await asyncio.to_thread(_graph, session, view, outcome, trace, stage)


def _graph(session: Session, view: View, outcome: Outcome, trace: Trace, stage: Stage) -> Json:
    places = Places(session)
    drawn = picture(trace, stage, places.text, session.settings.sizes)
    plain = plain_work(view.work)
    others = [s for s in trace.stages if s.name in _GRAPHS] if not plain else [*trace.stages]
    summary = f"partial: {until(outcome, view.file)}" if isinstance(outcome, Failure) else summarize(trace)
    return {
        "title": f"{view.name} · {view.stage}",
        "summary": summary if not plain else "",
        "stage": view.stage,
        "stages": [
            {"name": s.name, "ops": s.ops, "uri": format_uri(View(view.file, view.name, s.name, work=view.work))}
            for s in others
            if s.nodes
        ],
        "nodes": [places.placed(box) for box in drawn.boxes],
        "edges": [list(edge) for edge in drawn.edges],
        "groups": [places.placed(group) for group in drawn.groups],
    }


async def memory_of(session: Session, params: Any) -> Json:
    """Answer `fxLsp/memory`: the memory of the target of a view's URI, or `{"failure": text}`."""
    view = view_of(params)
    work = variant_work(variant_of(view.work))
    outcome = await _outcome(session, view, work)
    if isinstance(outcome, Failure):
        return {"failure": describe(outcome)}
    forward = await _stage(session, view, default_stage(outcome), work)
    backward = await _stage(session, view, "backward", work) if outcome.info("backward") is not None else None
    if isinstance(forward, Failure) or isinstance(backward, Failure):
        return {"failure": describe(_failure(forward if isinstance(forward, Failure) else backward))}
    return await asyncio.to_thread(_memory, session, view, outcome, forward, backward)


def _memory(session: Session, view: View, outcome: Trace, forward: Stage, backward: Stage | None) -> Json:
    places, use = Places(session), memory(outcome, forward, backward)
    return {
        "title": view.name,
        "summary": summarize(outcome),
        "steps": [places.placed(step) for step in use.steps],
        "saved": [
            {
                "name": k.saved.name,
                "spec": k.saved.spec,
                "bytes": k.saved.bytes,
                "kind": k.saved.kind,
                "usedBy": list(k.saved.used_by),
                "made": k.made,
                "last": k.last,
                "place": places.location(k.saved.span),
            }
            for k in use.kept
        ],
        "peak": use.peak,
        "unknown": use.unknown,
    }


async def functions(session: Session, params: Any) -> Json | None:
    """Answer `fxLsp/functions`: the known targets and passes of an open document. Never waits."""
    document = session.documents.get(str(getattr(params, "uri", "")))
    state = session.state(document.uri) if document is not None else None
    if document is None or state is None or session.engine is None:
        return None

    passes = session.engine.passes(document.file) if state.text == document.text else ()
    return {
        "functions": [_function(t, session.location, session.settings.sizes) for t in state.targets],
        "passes": [_pass(p, session.location) for p in passes],
        "failure": "" if state.syntax is None else describe(state.syntax),
    }


async def origins(session: Session, params: Any) -> list[Json] | None:
    """Answer `fxLsp/origins`: for each line of the user's code, the lines of a view (from 0) that come from it. If the
    view lists kernels, they are separate for each kernel.

    Null if the view is not shown.
    """
    view = view_of(params)
    shown = session.views.rendered(view)
    if shown is None:
        return None
    return await asyncio.to_thread(_origins, session, view, shown, await kernels_behind(session, view))


def _origins(session: Session, view: View, shown: RenderedView, kernels: RenderedView | None) -> list[Json]:
    above = session.views.above(view)
    is_listing, behind = bool(chip_of(view.work)), kernels.document.lines if kernels is not None else ()
    lines_by_origin: dict[tuple[str, int, int], list[int]] = {}
    for number, line in enumerate(shown.document.lines):
        spans = line.spans[:1]
        if is_listing:
            at = spans[0].line if spans else 0
            spans = behind[at - 1].spans[:1] if 0 < at <= len(behind) else ()
        for span in spans:
            lines_by_origin.setdefault((span.file, span.line, line.kernel), []).append(number + above)
    origins: list[Json] = []
    for (file, source_line, kernel), lines in lines_by_origin.items():
        place = session.line_start(file, source_line)
        origin = {"uri": place.uri, "line": place.range.start.line, "lines": lines}
        origins.append({**origin, "kernel": kernel} if kernel else origin)
    return origins


async def benchmark(benchmarks: Benchmarks, params: Any) -> Json:
    """Answer `fxLsp/benchmark`: the finished and running measurements of the target of a view's URI."""
    return await benchmarks.data(view_of(params))


def _function(state: TargetState, location: Callable[[Span], types.Location], sizes: SizeStyle) -> Json:
    target, outcome, place = state.target, state.outcome, location(state.target.span)
    data: Json = {
        "name": target.name,
        "kind": target.kind,
        "uri": place.uri,
        "range": place.range,
        "selectionRange": location(target.name_span).range,
        "state": _state(outcome, state.pending),
        "stale": state.stale,
        "message": "" if outcome is None else describe(outcome) if isinstance(outcome, Failure) else summarize(outcome),
        "stages": [],
        "saved": None,
        "guessed": False,
        "inputs": [],
        "variants": [],
    }
    if outcome is not None:
        trace = known_trace(outcome)
        data["inputs"] = [input_data(i) for i in outcome.inputs]
        shown = [s for s in trace.stages if s.name in _GRAPHS] if trace is not None else []
        data["stages"] = [{"name": s.name, "ops": s.ops} for s in shown]
    if isinstance(outcome, Trace):
        names = SizeNames(outcome, sizes)
        data["inputs"] = [{**input_data(i), "shown": names.of_input(i)} for i in outcome.inputs]
        data["saved"] = outcome.activation_bytes if outcome.info("backward") is not None else None
        data["guessed"] = bool(Guesses(outcome.inputs))
        data["variants"] = [
            {"name": v.name, "title": variant_title(v), "work": variant_work(v.name)} for v in outcome.variants
        ]
    return data


def _state(outcome: Outcome | None, pending: bool) -> str:
    if outcome is None:
        return "tracing" if pending else "unknown"
    return "failed" if isinstance(outcome, Failure) else "traced"


def _pass(pass_: Pass, location: Callable[[Span], types.Location]) -> Json:
    place = location(pass_.span)
    return {
        "name": pass_.name,
        "kind": pass_.kind,
        "uri": place.uri,
        "range": place.range,
        "selectionRange": location(pass_.name_span).range,
    }


async def _outcome(session: Session, view: View, work: str) -> Outcome:
    if session.engine is None:
        return RESTARTING.failure()
    return await session.engine.outcome(view.file, view.name, work)


async def _stage(session: Session, view: View, stage: str, work: str) -> Stage | Failure:
    if session.engine is None:
        return RESTARTING.failure()
    return await session.engine.stage(view.file, view.name, stage, work)


def _failure(answer: object) -> Failure:
    return answer if isinstance(answer, Failure) else NO_SUCH_GRAPH.failure()


class Places:
    """Convert spans to the client's terms; each file is read once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lines: dict[str, list[str]] = {}
        self._locations: dict[Span, Mapping[str, Any]] = {}

    def lines(self, file: str) -> list[str]:
        if file not in self._lines:
            self._lines[file] = from_proto.split_lines(self._session.source(file) or "")
        return self._lines[file]

    def text(self, span: Span) -> str | None:
        """Return the text of a span, or None if its file has changed."""
        lines = self.lines(span.file)
        return span_text(lines, span, "") if span.line <= span.end_line <= len(lines) else None

    def placed(self, part: Box | Group | MemoryStep) -> Json:
        """Return the fields of a part of a picture, with its place in the client's terms instead of its span."""
        fields = {name: value for name, value in vars(part).items() if name != "span"}
        return {**fields, "place": self.location(part.span)}

    def location(self, span: Span | None) -> Mapping[str, Any] | None:
        """Return a span as `{"uri", "range"}`."""
        if span is None:
            return None
        if span not in self._locations:
            place = self._session.location(span, self.lines(span.file))
            ends = {"start": _position(place.range.start), "end": _position(place.range.end)}  # encoded quickly
            self._locations[span] = {"uri": place.uri, "range": ends}
        return self._locations[span]


def _position(position: types.Position) -> Json:
    return {"line": position.line, "character": position.character}
