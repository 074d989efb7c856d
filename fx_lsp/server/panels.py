"""Requests of clients that draw: a graph, memory, the functions of a file, which lines of a view are from which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.dimensions import SizeNames, SizeStyle
from fx_lsp.features.guesses import Guesses
from fx_lsp.features.inputs import input_data
from fx_lsp.features.kernels import chip_of
from fx_lsp.features.lenses import default_stage, summarize
from fx_lsp.features.memory import memory
from fx_lsp.features.partial import EXECUTED, until
from fx_lsp.features.picture import picture
from fx_lsp.features.problems import describe
from fx_lsp.features.uris import View, format_uri, parse_uri
from fx_lsp.model import Failure, Outcome, Pass, Span, Stage, Trace, known_trace, plain_work, variant_of, variant_work
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.documents import read_source, uri_of_file
from fx_lsp.server.linked import kernels_behind

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import TargetState

GRAPH = "fxLsp/graph"
MEMORY = "fxLsp/memory"
FUNCTIONS = "fxLsp/functions"
ORIGINS = "fxLsp/origins"
_GRAPHS = ("forward", "backward", "joint", "inference", "graph", EXECUTED)
Json = dict[str, Any]


async def graph(server: Server, params: Any) -> Json:
    """`fxLsp/graph`: the stage of a view's URI as nodes, edges and groups, or `{"failure": text}`."""
    view = _view(params)
    outcome = await _outcome(server, view, view.work)
    trace = known_trace(outcome)
    stage = await _stage(server, view, view.stage, view.work) if trace is not None else outcome
    if trace is None or not isinstance(stage, Stage):
        return {"failure": describe(_failure(stage))}
    places = _Places(server)
    drawn = picture(trace, stage, places.text, server.settings.sizes)
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
        "nodes": [
            {
                "name": box.name,
                "kind": box.kind,
                "label": box.label,
                "spec": box.spec,
                "text": box.text,
                "bytes": box.bytes,
                "saved": box.saved,
                "recomputed": box.recomputed,
                "backward": box.backward,
                "group": box.group,
                "place": places.location(box.span),
            }
            for box in drawn.boxes
        ],
        "edges": [list(edge) for edge in drawn.edges],
        "groups": [
            {"title": g.title, "kind": g.kind, "parent": g.parent, "round": g.round, "place": places.location(g.span)}
            for g in drawn.groups
        ],
    }


async def memory_of(server: Server, params: Any) -> Json:
    """`fxLsp/memory`: what the target of a view's URI holds in memory, or `{"failure": text}`."""
    view = _view(params)
    work = variant_work(variant_of(view.work))
    outcome = await _outcome(server, view, work)
    if isinstance(outcome, Failure):
        return {"failure": describe(outcome)}
    forward = await _stage(server, view, default_stage(outcome), work)
    backward = await _stage(server, view, "backward", work) if outcome.info("backward") is not None else None
    if isinstance(forward, Failure) or isinstance(backward, Failure):
        return {"failure": describe(_failure(forward if isinstance(forward, Failure) else backward))}
    places, found = _Places(server), memory(outcome, forward, backward)
    return {
        "title": view.name,
        "summary": summarize(outcome),
        "steps": [
            {
                "stage": s.stage,
                "name": s.name,
                "spec": s.spec,
                "live": s.live,
                "kept": s.kept,
                "made": s.made,
                "place": places.location(s.span),
            }
            for s in found.steps
        ],
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
            for k in found.kept
        ],
        "peak": found.peak,
        "unknown": found.unknown,
    }


async def functions(server: Server, params: Any) -> Json | None:
    """`fxLsp/functions`: the targets and passes of an open document, as far as they are known; it never waits."""
    document = server.documents.get(str(getattr(params, "uri", "")))
    state = server.state(document.uri) if document is not None else None
    if document is None or state is None or server.engine is None:
        return None

    def range_(span: Span) -> types.Range:
        return to_proto.range_(document.lines, span, server.encoding)

    passes = server.engine.passes(document.file) if state.text == document.text else ()
    return {
        "functions": [_function(t, range_, server.settings.sizes) for t in state.targets],
        "passes": [_pass(p, range_) for p in passes],
        "failure": "" if state.syntax is None else describe(state.syntax),
    }


async def origins(server: Server, params: Any) -> list[Json] | None:
    """`fxLsp/origins`: for each line of the user's code the lines of a view (from 0) that are from it; null where the
    view is not shown."""
    view = _view(params)
    shown = server.views.rendered(view)
    if shown is None:
        return None
    kernels = await kernels_behind(server, view)
    behind = kernels.document.lines if kernels is not None else ()
    found: dict[tuple[str, int], list[int]] = {}
    for number, line in enumerate(shown.document.lines):
        spans = line.spans[:1]
        if chip_of(view.work):
            at = spans[0].line if spans else 0
            spans = behind[at - 1].spans[:1] if 0 < at <= len(behind) else ()
        for span in spans:
            found.setdefault((span.file, span.line), []).append(number)
    return [
        {"uri": uri_of_file(server, file), "line": line - 1, "lines": lines} for (file, line), lines in found.items()
    ]


def _function(state: TargetState, range_: Callable[[Span], types.Range], sizes: SizeStyle) -> Json:
    target, outcome = state.target, state.outcome
    known: Json = {
        "name": target.name,
        "kind": target.kind,
        "range": range_(target.span),
        "selectionRange": range_(target.name_span),
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
        known["inputs"] = [input_data(i) for i in outcome.inputs]
        shown = [s for s in trace.stages if s.name in _GRAPHS] if trace is not None else []
        known["stages"] = [{"name": s.name, "ops": s.ops} for s in shown]
    if isinstance(outcome, Trace):
        names = SizeNames(outcome, sizes)
        known["inputs"] = [{**input_data(i), "shown": names.of_input(i)} for i in outcome.inputs]
        known["saved"] = outcome.saved_bytes if outcome.info("backward") is not None else None
        known["guessed"] = bool(Guesses(outcome.inputs))
        known["variants"] = [{"name": v.name, "work": variant_work(v.name)} for v in outcome.variants]
    return known


def _state(outcome: Outcome | None, pending: bool) -> str:
    if outcome is None:
        return "tracing" if pending else "unknown"
    return "failed" if isinstance(outcome, Failure) else "traced"


def _pass(found: Pass, range_: Callable[[Span], types.Range]) -> Json:
    return {
        "name": found.name,
        "kind": found.kind,
        "range": range_(found.span),
        "selectionRange": range_(found.name_span),
    }


def _view(params: Any) -> View:
    uri = getattr(params, "uri", None)
    view = parse_uri(uri) if isinstance(uri, str) else None
    if view is None:
        raise JsonRpcInvalidParams(f"{uri!r} is no URI of a view")
    return view


async def _outcome(server: Server, view: View, work: str) -> Outcome:
    if server.engine is None:
        return Failure("unsupported", "fx-lsp is restarting")
    return await server.engine.outcome(view.file, view.name, work)


async def _stage(server: Server, view: View, stage: str, work: str) -> Stage | Failure:
    if server.engine is None:
        return Failure("unsupported", "fx-lsp is restarting")
    return await server.engine.stage(view.file, view.name, stage, work)


def _failure(found: object) -> Failure:
    return found if isinstance(found, Failure) else Failure("unsupported", "there is no such graph")


class _Places:
    """Spans as a client has them; each file is read once."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lines: dict[str, list[str]] = {}
        self._known: dict[Span, Mapping[str, Any]] = {}

    def lines(self, file: str) -> list[str]:
        if file not in self._lines:
            self._lines[file] = from_proto.split_lines(read_source(self._server, file) or "")
        return self._lines[file]

    def text(self, span: Span) -> str | None:
        """The text of a span, or None where its file is not what it was."""
        rows = [line.encode() for line in self.lines(span.file)[span.line - 1 : span.end_line]]
        if len(rows) != span.end_line - span.line + 1:
            return None
        rows[-1] = rows[-1][: span.end_col]
        rows[0] = rows[0][span.col :]
        return b"".join(rows).decode(errors="replace")

    def location(self, span: Span | None) -> Mapping[str, Any] | None:
        """A span as `{"uri", "range"}`."""
        if span is None:
            return None
        if span not in self._known:
            range_ = to_proto.range_(self.lines(span.file), span, self._server.encoding)
            self._known[span] = {"uri": uri_of_file(self._server, span.file), "range": range_}
        return self._known[span]
