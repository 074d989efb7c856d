"""Handle requests on lines of views: of a compiled kernel, of a kernel or of a graph, and their origins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.costs.benchmark import kernel_facts
from fx_lsp.features.kernel_files import check_title, save_lens
from fx_lsp.features.kernels import (
    RESOURCES,
    RenderedView,
    Thread,
    chip_of,
    choices_of,
    facts_at,
    hover_line,
    kernel_at,
    kernel_lenses,
    kernels_of,
    lines_on,
    related_lines,
    spans_at,
    thread_of_line,
    thread_of_spans,
)
from fx_lsp.features.lenses import again_lenses, benchmark_lens
from fx_lsp.features.values import definition_of, value_facts
from fx_lsp.features.wording.uris import BENCHMARK, View, format_uri
from fx_lsp.model import Span, Stage, Trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.display.rendering import rendered_at_once, source_lines
from fx_lsp.server.session import Session
from fx_lsp.server.view_requests import graph_values

RELATED = "fxLsp/related"


async def hover(session: Session, benchmarks: Benchmarks, view: View, params: types.HoverParams) -> types.Hover | None:
    """Return the hover with the origin of a view's line, or of the value that it names; for a kernel's line, also the
    results of compiling it, if known.
    """
    uri, position = params.text_document.uri, params.position
    shown, above = session.views.rendered(view), session.views.above(view)
    number = position.line + 1 - above
    if shown is None or not 0 < number <= len(shown.document.lines):
        return None
    kernels, facts = await kernels_behind(session, view), list[str]()
    if view == kernels_of(view):
        resources = await _resources(session, view)
        facts = facts_at(resources, number) if resources is not None else []
        facts += _measured(benchmarks, view, shown, number)
    graph = graph_values.graph_of(session, uri)
    mention = None if graph is None else graph.mention_at(position)
    if mention is not None:
        facts += value_facts(shown, mention.name)
        place = definition_of(shown, mention.name)
        number = number if place is None else place.line
    text = await asyncio.to_thread(hover_line, shown, number, source_lines(session), kernels, facts)
    if text is None:
        return None
    text = text if mention is None else replace(text, span=mention.span)
    lines = await asyncio.to_thread(from_proto.split_lines, shown.document.text)
    shown_hover = to_proto.hover(text, lines, session.encoding, session.capabilities.markdown)
    if shown_hover.range is not None:
        shown_hover.range = to_proto.below(shown_hover.range, above)
    return shown_hover


async def document_highlight(
    session: Session, params: types.DocumentHighlightParams
) -> list[types.DocumentHighlight] | None:
    """Answer `textDocument/documentHighlight` in a view: the lines with the same origin as the one at the cursor."""
    view = session.views.find(params.text_document.uri)
    shown = session.views.rendered(view) if view is not None else None
    if view is None or shown is None:
        return None
    above = session.views.above(view)
    number = params.position.line + 1 - above
    if not 0 < number <= len(shown.document.lines):
        return None
    ranges = await asyncio.to_thread(_related_ranges, session, shown, number)
    return [types.DocumentHighlight(to_proto.below(range_, above)) for range_ in ranges]


def _related_ranges(session: Session, shown: RenderedView, number: int) -> list[types.Range]:
    lines = from_proto.split_lines(shown.document.text)
    return [_whole(lines, n, session) for n in related_lines(shown.document, number)]


async def definition(session: Session, params: types.DefinitionParams) -> list[types.Location] | None:
    """Answer `textDocument/definition` in a view: the line that computes a value which a graph's line reads, the kernel
    line of a listing's line, the user's expression of any other.
    """
    view = session.views.find(params.text_document.uri)
    shown = session.views.rendered(view) if view is not None else None
    if view is None or shown is None:
        return None
    computed = graph_values.definition_at(session, params.text_document.uri, params.position)
    if computed is not None:
        return [computed]
    number = params.position.line + 1 - session.views.above(view)
    if not 0 < number <= len(shown.document.lines):
        return None
    spans = shown.document.lines[number - 1].spans[:1]
    places = [await asyncio.to_thread(_location, session, view, span) for span in spans]
    return [place for place in places if place is not None] or None


async def related(session: Session, params: Any) -> list[dict[str, Any]] | None:
    """Answer `fxLsp/related`: the ranges in the open source and views that are related to a place in one of them."""
    uri, line, character = _place(params)
    view, document = session.views.find(uri), session.documents.get(uri)
    if view is not None:
        thread = await _thread_of_view(session, view, line + 1 - session.views.above(view))
        return None if thread is None else await _ranges(session, thread, kernels_of(view))
    shown = [rendered for open_view in session.views if (rendered := session.views.rendered(open_view)) is not None]
    if document is None or not shown:
        return None
    at, col = from_proto.position(document.lines, types.Position(line, character), session.encoding)
    documents = [rendered.document for rendered in shown]
    spans = await asyncio.to_thread(spans_at, document.file, at, col, documents)
    return await _ranges(session, Thread(spans=spans))


async def code_lens(session: Session, benchmarks: Benchmarks, view: View, uri: str) -> list[types.CodeLens] | None:
    """Return the lenses of a file of kernels."""
    shown, state = session.views.rendered(view), session.engine and session.engine.state(view.file)
    if view.work == BENCHMARK:
        lines = from_proto.split_lines(shown.document.text) if shown is not None else [""]
        return [to_proto.code_lens(lens, uri, lines, session.encoding, 0) for lens in again_lenses(view.name)]
    if shown is None or state is None or view != kernels_of(view):
        return None
    stale = any(t.stale or t.pending for t in state.targets if t.target.name == view.name)
    text, resources = shown.document.text, await _resources(session, view)
    chip = chip_of(session.views.compiled(view)) or session.settings.gpu
    lines, place, lenses = from_proto.split_lines(text), 0, list[types.CodeLens]()
    measured = benchmark_lens(Span("", 1, 0, 1, 0), view.name, benchmarks.last(view.file, view.name), view.work)
    checked, above = check_title(session.checks.get(format_uri(view)), text), session.views.above(view)
    for lens in (save_lens(view.name, checked), measured, *kernel_lenses(view.name, text, chip, resources, stale)):
        place = place + 1 if lenses and lenses[-1].range.start.line == lens.span.line - 1 else 0
        lenses.append(to_proto.code_lens(lens, uri, lines, session.encoding, place))
    for lens in lenses:
        if lens.range.start.line:  # those of the whole file are above the errors of the kernels
            lens.range = to_proto.below(lens.range, above)
    return lenses


def _place(params: Any) -> tuple[str, int, int]:
    try:
        at = types.Position(int(params.position.line), int(params.position.character))  # which checks their size
        return str(params.uri), at.line, at.character
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise JsonRpcInvalidParams("the parameters must be a `uri` and a `position`") from None


async def _thread_of_view(session: Session, view: View, number: int) -> Thread | None:
    shown = session.views.rendered(view)
    if shown is None or not 0 < number <= len(shown.document.lines):
        return None
    kernels = await kernels_behind(session, view, True)
    behind = kernels.document if kernels is not None else None
    return await asyncio.to_thread(thread_of_line, view, shown.document, number, behind)


async def _ranges(session: Session, thread: Thread, kernels: View | None = None) -> list[dict[str, Any]]:
    """Return the ranges of a thread in the open views, and in the client's open files. Its lines, if it has any, are
    those of `kernels`.
    """
    ranges: dict[str, list[types.Range]] = {}
    for view in session.views:
        shown, uri = session.views.rendered(view), session.uri_of_view(view)
        if shown is None or uri is None:
            continue
        own = thread
        if kernels_of(view) != kernels:
            behind = await kernels_behind(session, view, view == kernels_of(view))
            own = thread_of_spans(thread.spans, behind.document if behind is not None else None)
        ranges[uri] = await asyncio.to_thread(_ranges_in, session, view, shown, own)
    for span in thread.spans:
        if session.documents.of_file(span.file) is not None:
            place = session.location(span)
            ranges.setdefault(place.uri, []).append(place.range)
    return [{"uri": uri, "ranges": of_document} for uri, of_document in ranges.items() if of_document]


def _ranges_in(session: Session, view: View, shown: RenderedView, thread: Thread) -> list[types.Range]:
    lines, above = from_proto.split_lines(shown.document.text), session.views.above(view)
    return [to_proto.below(_whole(lines, n, session), above) for n in lines_on(thread, view, shown.document)]


async def kernels_behind(session: Session, view: View, always: bool = False) -> RenderedView | None:
    """Return the kernels that a listing is compiled from; None for another view unless `always`.

    Kernels that the client does not show are rendered, if their trace is available.
    """
    if not chip_of(view.work) and not always:
        return None
    kernels = kernels_of(view)
    return session.views.rendered(kernels) or await rendered_at_once(session, kernels)


def _measured(benchmarks: Benchmarks, view: View, shown: RenderedView, number: int) -> list[str]:
    """Return the last profile of the kernel that a line is in, if it was measured with these kernels."""
    run = benchmarks.last(view.file, view.name)
    if run is None or run.stale or run.report.choices != choices_of(view.work):
        return []
    kernel = kernel_at(shown.document.text, number)
    facts = kernel_facts(run.report.kernels).get(kernel, []) if kernel else []
    return [f"on {run.host}: {fact}" for fact in facts]


async def _resources(session: Session, view: View) -> Stage | None:
    """Return the resources page of a view's target, if its kernels have been compiled."""
    work, engine = session.views.compiled(view), session.engine
    if engine is None or not work or not isinstance(engine.known(view.file, view.name, work), Trace):
        return None
    resources = await engine.stage(view.file, view.name, RESOURCES, work)
    return resources if isinstance(resources, Stage) else None


def _location(session: Session, view: View, span: Span) -> types.Location | None:
    kernels = kernels_of(view)
    if span.file == kernels.title:
        uri, shown = session.uri_of_view(kernels), session.views.rendered(kernels)
        at = types.Position(span.line - 1, 0)
        lines = from_proto.split_lines(shown.document.text) if shown is not None else None
        range_ = types.Range(at, at) if lines is None else _whole(lines, span.line, session)
        return None if uri is None else types.Location(uri, to_proto.below(range_, session.views.above(kernels)))
    source = session.source(span.file) if Path(span.file).is_absolute() else None
    return None if source is None else session.location(span, from_proto.split_lines(source))


def _whole(lines: list[str], number: int, session: Session) -> types.Range:
    text = lines[number - 1].rstrip("\n") if number <= len(lines) else ""
    start = len(text) - len(text.lstrip())
    span = Span("", number, len(text[:start].encode()), number, len(text.encode()))
    return to_proto.range_(lines, span, session.encoding)
