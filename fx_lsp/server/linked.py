"""Requests about views: a line of a compiled kernel, of a kernel or of a graph, and what it is from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.benchmark import kernel_facts
from fx_lsp.features.kernels import (
    RESOURCES,
    Shown,
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
    thread_of_line,
    thread_of_source,
)
from fx_lsp.features.lenses import again_lenses, benchmark_lens
from fx_lsp.features.uris import BENCHMARK, View
from fx_lsp.features.written import save_lens
from fx_lsp.model import Span, Stage, Trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.documents import read_source, uri_of_file
from fx_lsp.server.rendering import source_lines

RELATED = "fxLsp/related"

if TYPE_CHECKING:
    from fx_lsp.server.session import Server


async def hover(server: Server, view: View, position: types.Position) -> types.Hover | None:
    """What a line of a view is from, and of a kernel's line what compiling it gave, where that is known."""
    shown, number = server.views.rendered(view), position.line + 1
    if shown is None or not 0 < number <= len(shown.document.lines):
        return None
    kernels, facts = await kernels_behind(server, view), list[str]()
    if view == kernels_of(view):
        resources = await _resources(server, view)
        facts = facts_at(resources, number) if resources is not None else []
        facts += _measured(server, view, shown, number)
    found = hover_line(shown, number, source_lines(server), kernels, facts)
    if found is None:
        return None
    lines = from_proto.split_lines(shown.document.text)
    return to_proto.hover(found, lines, server.encoding, server.client.markdown)


async def document_highlight(
    server: Server, params: types.DocumentHighlightParams
) -> list[types.DocumentHighlight] | None:
    """`textDocument/documentHighlight` in a view: the lines that are from what the line at the cursor is from."""
    view = server.views.find(params.text_document.uri)
    shown, number = server.views.rendered(view) if view is not None else None, params.position.line + 1
    if shown is None or not 0 < number <= len(shown.document.lines):
        return None
    lines = from_proto.split_lines(shown.document.text)
    return [types.DocumentHighlight(_whole(lines, n, server)) for n in related_lines(shown.document, number)]


async def definition(server: Server, params: types.DefinitionParams) -> list[types.Location] | None:
    """`textDocument/definition` in a view: the kernel's line of a listing, the user's expression of everything else."""
    view = server.views.find(params.text_document.uri)
    shown, number = server.views.rendered(view) if view is not None else None, params.position.line + 1
    if view is None or shown is None or not 0 < number <= len(shown.document.lines):
        return None
    places = [_location(server, view, span) for span in shown.document.lines[number - 1].spans[:1]]
    return [place for place in places if place is not None] or None


async def related(server: Server, params: Any) -> list[dict[str, Any]] | None:
    """`fxLsp/related`: the ranges in the source and in all views of a target that belong to a place in one of them."""
    uri, line, character = _place(params)
    view, document = server.views.find(uri), server.documents.get(uri)
    if view is not None:
        found = await _thread_of_view(server, view, line + 1)
        return None if found is None else _ranges(server, view, found)
    if document is None:
        return None
    at, col = from_proto.position(document.lines, types.Position(line, character), server.encoding)
    state = server.state(uri)
    around = [t.target for t in state.targets if t.target.span.line <= at <= t.target.span.end_line] if state else []
    for target in around:
        views = server.views.of_target(document.file, target.name)
        if views:
            kernels = await kernels_behind(server, next(iter(views)), True)
            known = [shown.document for shown in (*views.values(), *([kernels] if kernels is not None else []))]
            thread = thread_of_source(document.file, at, col, known, kernels.document if kernels is not None else None)
            return _ranges(server, next(iter(views)), thread)
    return None


async def code_lens(server: Server, view: View, uri: str) -> list[types.CodeLens] | None:
    """The lenses of a file of kernels."""
    shown, state = server.views.rendered(view), server.engine and server.engine.state(view.file)
    if view.work == BENCHMARK:
        lines = from_proto.split_lines(shown.document.text) if shown is not None else [""]
        return [to_proto.code_lens(lens, uri, lines, server.encoding, 0) for lens in again_lenses(view.name)]
    if shown is None or state is None or view != kernels_of(view):
        return None
    stale = any(t.stale or t.pending for t in state.targets if t.target.name == view.name)
    text, resources = shown.document.text, await _resources(server, view)
    chip = chip_of(server.views.compiled(view)) or server.settings.gpu
    lines, place, found = from_proto.split_lines(text), 0, list[types.CodeLens]()
    known = server.benchmarks.last(view.file, view.name)
    measured = benchmark_lens(Span("", 1, 0, 1, 0), view.name, known, view.work)
    for lens in (save_lens(view.name), measured, *kernel_lenses(view.name, text, chip, resources, stale)):
        place = place + 1 if found and found[-1].range.start.line == lens.span.line - 1 else 0
        found.append(to_proto.code_lens(lens, uri, lines, server.encoding, place))
    return found


def _place(params: Any) -> tuple[str, int, int]:
    try:
        return str(params.uri), int(params.position.line), int(params.position.character)
    except (AttributeError, TypeError, ValueError):
        raise JsonRpcInvalidParams("the parameters are a `uri` and a `position`") from None


async def _thread_of_view(server: Server, view: View, number: int) -> Thread | None:
    shown = server.views.rendered(view)
    if shown is None or not 0 < number <= len(shown.document.lines):
        return None
    kernels = await kernels_behind(server, view, True)
    return thread_of_line(view, shown.document, number, kernels.document if kernels is not None else None)


def _ranges(server: Server, view: View, thread: Thread) -> list[dict[str, Any]]:
    """Where a thread goes in the views of a target, and in the files that the client has open."""
    found: dict[str, list[types.Range]] = {}
    for other, shown in server.views.of_target(view.file, view.name).items():
        lines, uri = from_proto.split_lines(shown.document.text), server.views.uri(other)
        if uri is not None:
            found[uri] = [_whole(lines, n, server) for n in lines_on(thread, other, shown.document)]
    for span in thread.spans:
        source = server.documents.of_file(span.file)
        if source is not None:
            found.setdefault(source.uri, []).append(to_proto.range_(source.lines, span, server.encoding))
    return [{"uri": uri, "ranges": ranges} for uri, ranges in found.items() if ranges]


async def kernels_behind(server: Server, view: View, always: bool = False) -> Shown | None:
    """The kernels that a listing is compiled from, None for another view unless `always`.

    They are made where the client does not show them, if all that it takes is known.
    """
    if not chip_of(view.work) and not always:
        return None
    kernels = kernels_of(view)
    return server.views.rendered(kernels) or await server.views.made(kernels)


def _measured(server: Server, view: View, shown: Shown, number: int) -> list[str]:
    """What the last profile says of the kernel that a line is in, where it was of these kernels."""
    run = server.benchmarks.last(view.file, view.name)
    if run is None or run.stale or run.report.choices != choices_of(view.work):
        return []
    kernel = kernel_at(shown.document.text, number)
    facts = kernel_facts(run.report.kernels).get(kernel, []) if kernel else []
    return [f"on {run.host}: {fact}" for fact in facts]


async def _resources(server: Server, view: View) -> Stage | None:
    """What the kernels of a view's target use, if they have been compiled."""
    work, engine = server.views.compiled(view), server.engine
    if engine is None or not work or not isinstance(engine.known(view.file, view.name, work), Trace):
        return None
    found = await engine.stage(view.file, view.name, RESOURCES, work)
    return found if isinstance(found, Stage) else None


def _location(server: Server, view: View, span: Span) -> types.Location | None:
    kernels = kernels_of(view)
    if span.file == kernels.title:
        uri, shown = server.views.uri(kernels), server.views.rendered(kernels)
        at = types.Position(span.line - 1, 0)
        lines = from_proto.split_lines(shown.document.text) if shown is not None else None
        range_ = types.Range(at, at) if lines is None else _whole(lines, span.line, server)
        return None if uri is None else types.Location(uri, range_)
    source = read_source(server, span.file) if Path(span.file).is_absolute() else None
    if source is None:
        return None
    range_ = to_proto.range_(from_proto.split_lines(source), span, server.encoding)
    return types.Location(uri_of_file(server, span.file), range_)


def _whole(lines: list[str], number: int, server: Server) -> types.Range:
    text = lines[number - 1].rstrip("\n") if number <= len(lines) else ""
    start = len(text) - len(text.lstrip())
    span = Span("", number, len(text[:start].encode()), number, len(text.encode()))
    return to_proto.range_(lines, span, server.encoding)
