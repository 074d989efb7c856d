"""Handle requests on the values in a graph's document: references, the outline, folds, tokens, and who reads whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from lsprotocol import types

from fx_lsp.features.kernels import RenderedView, chip_of, kernels_of
from fx_lsp.features.values import (
    TOKEN_KINDS,
    Mention,
    Symbol,
    definition_of,
    folds,
    mention_at,
    mentions_of,
    outline,
    readers_of,
    sources_of,
    tokens,
)
from fx_lsp.model import Span
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.session import Session

LEGEND = types.SemanticTokensLegend(token_types=list(TOKEN_KINDS), token_modifiers=[])
_SYMBOLS = {
    "function": types.SymbolKind.Function,
    "line": types.SymbolKind.Namespace,
    "value": types.SymbolKind.Variable,
}


class ShownGraph:
    """Hold the document of a graph as the client shows it, and convert places in it."""

    def __init__(self, session: Session, uri: str, shown: RenderedView, above: int) -> None:
        self.uri, self.shown, self.above = uri, shown, above
        self._lines, self._encoding = from_proto.split_lines(shown.document.text), session.encoding

    def range_(self, span: Span) -> types.Range:
        return to_proto.below(to_proto.range_(self._lines, span, self._encoding), self.above)

    def mention_at(self, position: types.Position) -> Mention | None:
        """Return the value at a position of the client."""
        line = position.line - self.above
        if not 0 <= line < len(self.shown.document.lines):
            return None
        number, col = from_proto.position(self._lines, types.Position(line, position.character), self._encoding)
        return mention_at(self.shown, number, col)


def graph_of(session: Session, uri: str) -> ShownGraph | None:
    """Return the graph that the client shows under a URI; None for another document."""
    view = session.views.find(uri)
    shown = None if view is None else session.views.rendered(view)
    if view is None or shown is None or view == kernels_of(view) or chip_of(view.work):
        return None
    return ShownGraph(session, uri, shown, session.views.above(view))


def definition_at(session: Session, uri: str, position: types.Position) -> types.Location | None:
    """Return where the value at a position is computed, unless that is the line of the position."""
    graph = graph_of(session, uri)
    mention = None if graph is None else graph.mention_at(position)
    span = None if graph is None or mention is None else definition_of(graph.shown, mention.name)
    if graph is None or mention is None or span is None or span.line == mention.span.line:
        return None
    return types.Location(uri, graph.range_(span))


async def references(session: Session, params: types.ReferenceParams) -> list[types.Location] | None:
    """Answer `textDocument/references` in a graph: where the value at the cursor is computed and read."""
    graph = graph_of(session, params.text_document.uri)
    mention = None if graph is None else graph.mention_at(params.position)
    if graph is None or mention is None:
        return None
    every = await asyncio.to_thread(mentions_of, graph.shown, mention.name)
    wanted = [m for m in every if params.context.include_declaration or not m.defines]
    return [types.Location(graph.uri, graph.range_(mention.span)) for mention in wanted]


async def document_symbol(session: Session, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol] | None:
    """Answer `textDocument/documentSymbol` in a graph: the lines of the code, with the values that they compute."""
    graph = graph_of(session, params.text_document.uri)
    if graph is None:
        return None
    return [_symbol(symbol, graph.range_) for symbol in await asyncio.to_thread(outline, graph.shown)]


def _symbol(symbol: Symbol, range_: Callable[[Span], types.Range]) -> types.DocumentSymbol:
    whole = range_(symbol.span)
    return types.DocumentSymbol(
        name=symbol.name or " ",
        kind=_SYMBOLS[symbol.kind],
        range=whole,
        selection_range=types.Range(whole.start, whole.start),
        detail=symbol.detail or None,
        children=[_symbol(child, range_) for child in symbol.children],
    )


async def folding_range(session: Session, params: types.FoldingRangeParams) -> list[types.FoldingRange] | None:
    """Answer `textDocument/foldingRange` in a view: comments at its top, functions, and the lines of the code."""
    view = session.views.find(params.text_document.uri)
    shown = None if view is None else session.views.rendered(view)
    if view is None or shown is None:
        return None
    above = session.views.above(view)
    return [
        types.FoldingRange(
            start_line=first - 1 + above,
            end_line=last - 1 + above,
            kind=types.FoldingRangeKind.Comment if is_comment else None,
        )
        for first, last, is_comment in await asyncio.to_thread(folds, [line.text for line in shown.document.lines])
    ]


async def semantic_tokens(session: Session, params: types.SemanticTokensParams) -> types.SemanticTokens | None:
    """Answer `textDocument/semanticTokens/full` in a graph."""
    graph = graph_of(session, params.text_document.uri)
    if graph is None:
        return None
    return types.SemanticTokens(data=await asyncio.to_thread(lambda: [*_encoded(graph)]))


def _encoded(graph: ShownGraph) -> Iterator[int]:
    """Yield five integers for each token: its line and column relative to the one before, its length and kind."""
    line = column = 0
    for token in tokens(graph.shown):
        range_ = graph.range_(Span("", token.line, token.col, token.line, token.end_col))
        start = range_.start
        yield start.line - line
        yield start.character - (column if start.line == line else 0)
        yield range_.end.character - start.character
        yield TOKEN_KINDS.index(token.kind)
        yield 0
        line, column = start.line, start.character


async def prepare_call_hierarchy(
    session: Session, params: types.CallHierarchyPrepareParams
) -> list[types.CallHierarchyItem] | None:
    """Answer `textDocument/prepareCallHierarchy` in a graph: the value at the cursor."""
    graph = graph_of(session, params.text_document.uri)
    mention = None if graph is None else graph.mention_at(params.position)
    return None if graph is None or mention is None else _items(graph, [mention.name]) or None


async def incoming_calls(
    session: Session, params: types.CallHierarchyIncomingCallsParams
) -> list[types.CallHierarchyIncomingCall] | None:
    """Answer `callHierarchy/incomingCalls` in a graph: the values that are computed from one."""
    readers = _related(session, params.item, readers_of)
    return (
        None if readers is None else [types.CallHierarchyIncomingCall(item, [item.selection_range]) for item in readers]
    )


async def outgoing_calls(
    session: Session, params: types.CallHierarchyOutgoingCallsParams
) -> list[types.CallHierarchyOutgoingCall] | None:
    """Answer `callHierarchy/outgoingCalls` in a graph: the values that one is computed from."""
    sources, here = _related(session, params.item, sources_of), [params.item.selection_range]
    return None if sources is None else [types.CallHierarchyOutgoingCall(item, here) for item in sources]


def _related(
    session: Session, item: types.CallHierarchyItem, names_of: Callable[[RenderedView, str], list[str]]
) -> list[types.CallHierarchyItem] | None:
    graph = graph_of(session, item.uri)
    return None if graph is None else _items(graph, names_of(graph.shown, item.name))


def _items(graph: ShownGraph, names: Iterable[str]) -> list[types.CallHierarchyItem]:
    items: list[types.CallHierarchyItem] = []
    for name in names:
        span, node = definition_of(graph.shown, name), graph.shown.nodes.get(name)
        if span is not None and node is not None:
            range_ = graph.range_(span)
            kind, detail = types.SymbolKind.Variable, " · ".join(filter(None, [node.target, node.spec]))
            items.append(types.CallHierarchyItem(name, kind, graph.uri, range_, range_, detail=detail))
    return items
