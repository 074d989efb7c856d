"""Handle `textDocument/codeLens`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.lenses import Lens, benchmark_lens, is_empty, lenses, pass_lenses
from fx_lsp.model import Trace
from fx_lsp.server import to_proto
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.requests import kernel_files, view_lines
from fx_lsp.server.session import Session

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import TargetState


async def code_lens(
    session: Session, benchmarks: Benchmarks, params: types.CodeLensParams
) -> list[types.CodeLens] | None:
    """Return the lenses of the traces so far; a refresh follows later traces."""
    uri = params.text_document.uri
    document, state = session.documents.get(uri), session.state(uri)
    view = session.views.find(uri) if document is None and session.settings.code_lens else None
    if view is not None:
        return await view_lines.code_lens(session, benchmarks, view, uri)
    if document is None or state is None or not session.settings.code_lens:
        return None
    shown = [
        to_proto.code_lens(lens, uri, document.lines, session.encoding, place)
        for target in state.targets
        for place, lens in enumerate(
            [*lenses(target.target, target.outcome, target.stale), *_measured(benchmarks, target)]
        )
    ]
    engine = session.engine
    passes = () if engine is None or state.text != document.text else engine.passes(document.file)
    recent = engine.recent(document.file) if engine is not None and passes else []
    shown += [
        to_proto.code_lens(lens, uri, document.lines, session.encoding, place)
        for pass_ in passes
        for place, lens in enumerate(pass_lenses(pass_, recent))
    ]
    return [*await kernel_files.lenses(session, document), *shown]


def _measured(benchmarks: Benchmarks, state: TargetState) -> list[Lens]:
    """Return the lens with the last measurement of a target, or the lens that measures it."""
    target = state.target
    if not isinstance(state.outcome, Trace) or target.kind == "graph" or is_empty(state.outcome):
        return []
    return [benchmark_lens(target.name_span, target.name, benchmarks.last(target.file, target.name))]
