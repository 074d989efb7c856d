"""`textDocument/codeLens`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.lenses import Lens, benchmark_lens, is_empty, lenses, pass_lenses
from fx_lsp.model import Trace
from fx_lsp.server import linked, to_proto, writing

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import TargetState


async def code_lens(server: Server, params: types.CodeLensParams) -> list[types.CodeLens] | None:
    """The lenses of what is traced so far; a refresh follows when there is more."""
    uri = params.text_document.uri
    document, state = server.documents.get(uri), server.state(uri)
    view = server.views.find(uri) if document is None and server.settings.code_lens else None
    if view is not None:
        return await linked.code_lens(server, view, uri)
    if document is None or state is None or not server.settings.code_lens:
        return None
    found = [
        to_proto.code_lens(lens, uri, document.lines, server.encoding, place)
        for target in state.targets
        for place, lens in enumerate([*lenses(target.target, target.outcome, target.stale), *_measured(server, target)])
    ]
    engine = server.engine
    passes = () if engine is None or state.text != document.text else engine.passes(document.file)
    recent = engine.recent(document.file) if engine is not None and passes else []
    found += [
        to_proto.code_lens(lens, uri, document.lines, server.encoding, place)
        for pass_ in passes
        for place, lens in enumerate(pass_lenses(pass_, recent))
    ]
    return [*await writing.lenses(server, document), *found]


def _measured(server: Server, state: TargetState) -> list[Lens]:
    """What was measured of a target, or the way to measure it."""
    target = state.target
    if not isinstance(state.outcome, Trace) or target.kind == "graph" or is_empty(state.outcome):
        return []
    known = server.benchmarks.last(target.file, target.name)
    return [benchmark_lens(target.name_span, target.name, known)]
