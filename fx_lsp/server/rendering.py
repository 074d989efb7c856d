"""What views show: a stage, a comparison, a page, or comments that say why there is none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from fx_lsp.features.diffs import render_diff
from fx_lsp.features.dimensions import SizeStyle
from fx_lsp.features.documents import Document, Line, SourceLine, render_stage
from fx_lsp.features.hover import failure_text
from fx_lsp.features.kernels import Shown, chip_of, render_listing, stages_of_listing
from fx_lsp.features.lenses import PASSES, RUN
from fx_lsp.features.partial import shown_trace
from fx_lsp.features.passes import render_passes, render_run
from fx_lsp.features.uris import View
from fx_lsp.model import Failure, Outcome, Span, Stage, Trace
from fx_lsp.server import from_proto
from fx_lsp.server.documents import read_source

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import Engine


STALE = "stale: of the last version that could be read"


async def rendered(server: Server, engine: Engine, view: View, outcome: Outcome) -> Shown:
    """A view of a target whose work is done."""
    if isinstance(outcome, Failure):
        return await _failed(server, engine, view, outcome)
    if view.stage == PASSES and view.work:
        return Shown(render_passes(outcome, view.full))
    names = [view.before, view.stage]
    if view.stage == RUN and view.work:
        names = [info.name for info in outcome.stages if info.change is None or info.change]
    elif chip_of(view.work):
        names = stages_of_listing(view.stage, (info.name for info in outcome.stages))
        if not names:
            there = ", ".join(dict.fromkeys(info.name.partition(":")[0] for info in outcome.stages))
            return said(f"There is no {view.stage} for {chip_of(view.work)}; there are: {there}.")
    found = [await engine.stage(view.file, view.name, name, view.work) for name in names if name]
    failed = next((stage for stage in found if isinstance(stage, Failure)), None)
    if failed is not None and view.stage != RUN:
        return said(failure_text(failed))
    stages = [stage for stage in found if isinstance(stage, Stage)]
    return await asyncio.to_thread(_document, view, outcome, stages, source_lines(server), server.settings.sizes)


async def _failed(server: Server, engine: Engine, view: View, failure: Failure) -> Shown:
    """A view of a target that fails: the graph of what ran, if that is what it is of, or why."""
    trace = shown_trace(failure, view.file)
    if trace is None or trace.info(view.stage) is None:
        return said(failure_text(failure))
    stage = await engine.stage(view.file, view.name, view.stage, view.work)
    if not isinstance(stage, Stage):
        return said(failure_text(failure))
    return await asyncio.to_thread(_document, view, trace, [stage], source_lines(server), server.settings.sizes)


def last_good(server: Server, engine: Engine, view: View) -> Shown | None:
    """The stage of the last text that parsed, if it is at hand; None for what other work would have to make."""
    state = None if view.work or view.before else engine.state(view.file)
    outcomes = (t.outcome for t in state.targets if t.target.name == view.name) if state is not None else ()
    trace = shown_trace(next(iter(outcomes), None), view.file)
    stage = engine.stage_now(view.file, view.name, view.stage) if trace is not None else None
    if trace is None or stage is None:
        return None
    return _document(view, trace, [stage], source_lines(server), server.settings.sizes)


def as_stale(shown: Shown) -> Shown:
    """What is shown with a note, at the end of its title, that it is of an earlier text: no line moves."""
    title, *lines = shown.document.lines
    if not title.text.startswith("# ") or title.text.endswith(STALE):
        return shown
    title = title._replace(text=f"{title.text} · {STALE}")
    return replace(shown, document=replace(shown.document, lines=(title, *lines)))


def said(text: str) -> Shown:
    """A text as comments."""
    return Shown(Document(tuple(Line(f"# {row}".rstrip()) for row in text.replace("\r", "").split("\n"))))


def plain_text(text: str) -> Shown:
    """A text as it is."""
    return Shown(Document(tuple(map(Line, text.split("\n")))))


def source_lines(server: Server) -> SourceLine:
    """The lines that spans start on, as the client has their files; each file is read once."""
    lines: dict[str, list[str]] = {}

    def source_line(span: Span) -> str | None:
        if span.file not in lines:
            lines[span.file] = from_proto.split_lines(read_source(server, span.file) or "")
        known = lines[span.file]
        return known[span.line - 1] if 0 < span.line <= len(known) else None

    return source_line


def _document(view: View, trace: Trace, stages: list[Stage], source_line: SourceLine, sizes: SizeStyle) -> Shown:
    nodes = {node.name: node for stage in stages for node in stage.nodes}
    if view.stage == RUN and view.work:
        return Shown(render_run(trace, {stage.name: stage for stage in stages}), nodes)
    if chip_of(view.work):
        return Shown(render_listing(stages, view.name))
    *before, stage = stages
    if before:
        return Shown(render_diff(trace, before[0], stage), nodes)
    return Shown(render_stage(trace, stage, source_line, view.full, sizes), nodes)
