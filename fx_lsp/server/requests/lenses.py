"""Handle `textDocument/codeLens`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from fx_lsp.features.lenses import (
    Lens,
    benchmark_lens,
    by_line_lens,
    in_menu,
    is_empty,
    lenses,
    memory_lens,
    pass_lenses,
    with_menu,
)
from fx_lsp.features.wording.traces import shown_trace
from fx_lsp.model import MEMORY, Failure, Span, Trace
from fx_lsp.server import to_proto
from fx_lsp.server.client import Client
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.documents import OpenText
from fx_lsp.server.requests import kernel_files
from fx_lsp.server.requests.commands import target_of
from fx_lsp.server.session import Session
from fx_lsp.server.view_requests import view_lines

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import TargetState

Run = Callable[[str, list[Any]], Awaitable[Any]]
"""Run a command of the server by its name, with arguments."""


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
        to_proto.code_lens(replace(lens, span=span), uri, document.lines, session.encoding, place)
        for target in state.targets
        for span in (target.target.name_span, *_cells_of(document, target, state.targets))
        for place, lens in enumerate((*_shown(session, benchmarks, target), *_memory(session, target, state.program)))
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


async def commands(session: Session, benchmarks: Benchmarks, arguments: list[Any]) -> list[types.Command]:
    """Run `fxLsp.commands(uri, name)`: list the commands of a target that the lens "graphs" offers."""
    file, name = target_of(session, arguments)
    state = None if session.engine is None else session.engine.state(file)
    targets = () if state is None else (target for target in state.targets if target.target.name == name)
    return [
        to_proto.command(lens, session.uri_of_file(file)) for target in targets for lens in _in_menu(benchmarks, target)
    ]


async def menu(session: Session, client: Client, benchmarks: Benchmarks, run: Run, arguments: list[Any]) -> Any:
    """Run `fxLsp.menu(uri, name)`: ask which command of a target to run, run it, and return its result."""
    offered = {command.title: command for command in await commands(session, benchmarks, arguments)}
    actions = [types.MessageActionItem(title=title) for title in offered]
    if not actions:
        return None
    question = types.ShowMessageRequestParams(types.MessageType.Info, f"{arguments[1]}: show …", actions)
    answer = await client.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
    command = offered.get(getattr(answer, "title", ""))
    return None if command is None else await run(command.command, list(command.arguments or []))


def _cells_of(document: OpenText, state: TargetState, every: Iterable[TargetState]) -> list[Span]:
    """Return the first line of each further cell in which the top level of a notebook computes with tensors."""
    trace, failure, target = shown_trace(state.outcome), state.outcome, state.target
    if target.kind != "script" or not document.cells:
        return []
    inner = [other.target.span for other in every if other.target.kind != "script"]
    places = [value.span for value in trace.values] if trace is not None else []
    places += [failure.span] if isinstance(failure, Failure) and failure.span is not None else []
    lines = sorted({place.line for place in places if not any(span.contains(place) for span in inner)})
    own, *cells = (document.cell_at(types.Position(line - 1, 0)) for line in (target.name_span.line, *lines))
    firsts = dict.fromkeys(cell.above + 1 for cell in cells if cell is not None and cell is not own)
    return [Span(target.file, first, 0, first, 0) for first in firsts]


def _shown(session: Session, benchmarks: Benchmarks, state: TargetState) -> Sequence[Lens]:
    every = _all(benchmarks, state)
    return every if session.settings.all_lenses else with_menu(every)


def _memory(session: Session, state: TargetState, program: str) -> list[Lens]:
    """Return the lens with the memory of the program that a step belongs to."""
    target = state.target
    if session.engine is None or not program or target.kind != "step" or state.outcome is None:
        return []
    return [memory_lens(target.name_span, program, session.engine.known(target.file, program, MEMORY))]


def _in_menu(benchmarks: Benchmarks, state: TargetState) -> list[Lens]:
    """Return the rows of the menu of a target: its lenses, and a benchmark by line if it can be measured."""
    measured = _measured(benchmarks, state)
    by_line = [by_line_lens(state.target.name_span, state.target.name)] if measured else []
    return [*in_menu(_all(benchmarks, state)), *by_line]


def _all(benchmarks: Benchmarks, state: TargetState) -> list[Lens]:
    return [*lenses(state.target, state.outcome, state.stale, state.pending), *_measured(benchmarks, state)]


def _measured(benchmarks: Benchmarks, state: TargetState) -> list[Lens]:
    """Return the lens with the last measurement of a target, or the lens that measures it."""
    target = state.target
    if not isinstance(state.outcome, Trace) or target.kind == "graph" or is_empty(state.outcome):
        return []
    return [benchmark_lens(target.name_span, target.name, benchmarks.last(target.file, target.name))]
