"""Render views: a stage, a diff, a page, or comments that explain why there is none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from fx_lsp.features.costs.summary import SUMMARY, render_summary, stages_of_summary
from fx_lsp.features.documents.diffs import render_diff
from fx_lsp.features.documents.document import Document, Line, SourceLine, render_stage
from fx_lsp.features.documents.passes import render_passes, render_run
from fx_lsp.features.hover import failure_text
from fx_lsp.features.kernels import RenderedView, chip_of, render_listing, stages_of_listing
from fx_lsp.features.wording.dimensions import SizeStyle
from fx_lsp.features.wording.traces import PASSES, RUN, shown_trace
from fx_lsp.features.wording.uris import View
from fx_lsp.model import Failure, Outcome, Span, Stage, Trace
from fx_lsp.server import from_proto
from fx_lsp.server.session import Session

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import Engine


STALE = "stale: from the last version that parsed"


async def rendered(session: Session, engine: Engine, view: View, outcome: Outcome) -> RenderedView:
    """Return the rendered view of a target whose work is done."""
    if isinstance(outcome, Failure):
        return await _failed(session, engine, view, outcome)
    if view.stage == PASSES and view.work:
        return RenderedView(render_passes(outcome, view.full))
    names = _stages_of(view, outcome)
    if chip_of(view.work) and not names:
        there = ", ".join(dict.fromkeys(info.name.partition(":")[0] for info in outcome.stages))
        return said(f"There is no {view.stage} for {chip_of(view.work)}; there are: {there}.")
    answers = [await engine.stage(view.file, view.name, name, view.work) for name in names]
    failed = next((stage for stage in answers if isinstance(stage, Failure)), None)
    if failed is not None and view.stage != RUN:
        return said(failure_text(failed))
    stages = [stage for stage in answers if isinstance(stage, Stage)]
    return await asyncio.to_thread(_document, view, outcome, stages, source_lines(session), session.settings.sizes)


async def rendered_at_once(session: Session, view: View) -> RenderedView | None:
    """Return a view that the client does not show, if its trace is available; None otherwise."""
    engine = session.engine
    outcome = engine.known(view.file, view.name, view.work) if engine is not None else None
    return await rendered(session, engine, view, outcome) if engine is not None and outcome else None


def _stages_of(view: View, trace: Trace) -> list[str]:
    """Return the names of the stages that a view shows; empty for a listing that its chip does not have."""
    if view.stage == RUN and view.work:
        return [info.name for info in trace.stages if info.change is None or info.change]
    if chip_of(view.work):
        return stages_of_listing(view.stage, (info.name for info in trace.stages))
    if view.stage == SUMMARY:
        return [*stages_of_summary(trace)]
    return [name for name in (view.before, view.stage) if name]


async def _failed(session: Session, engine: Engine, view: View, failure: Failure) -> RenderedView:
    """Return the view of a failing target: the partial graph, if the view shows that, or the failure."""
    trace = shown_trace(failure, view.file)
    if trace is None or trace.info(view.stage) is None:
        return said(failure_text(failure))
    stage = await engine.stage(view.file, view.name, view.stage, view.work)
    if not isinstance(stage, Stage):
        return said(failure_text(failure))
    return await asyncio.to_thread(_document, view, trace, [stage], source_lines(session), session.settings.sizes)


async def last_good(session: Session, engine: Engine, view: View) -> RenderedView | None:
    """Return the stage of the last text that parsed, if available; None for stages of other work."""
    state = None if view.work or view.before else engine.state(view.file)
    outcomes = (t.outcome for t in state.targets if t.target.name == view.name) if state is not None else ()
    trace = shown_trace(next(iter(outcomes), None), view.file)
    stage = engine.stage_now(view.file, view.name, view.stage) if trace is not None else None
    if trace is None or stage is None:
        return None
    return await asyncio.to_thread(_document, view, trace, [stage], source_lines(session), session.settings.sizes)


def as_stale(shown: RenderedView) -> RenderedView:
    """Return a view with a note at the end of its title that it shows an earlier text. No line moves."""
    title, *lines = shown.document.lines
    if not title.text.startswith("# ") or title.text.endswith(STALE):
        return shown
    title = title._replace(text=f"{title.text} · {STALE}")
    return replace(shown, document=replace(shown.document, lines=(title, *lines)))


def said(text: str) -> RenderedView:
    """Return a text as comments."""
    return RenderedView(Document(tuple(Line(f"# {row}".rstrip()) for row in text.replace("\r", "").split("\n"))))


def plain_text(text: str) -> RenderedView:
    """Return a text unchanged."""
    return RenderedView(Document(tuple(map(Line, text.split("\n")))))


def source_lines(session: Session) -> SourceLine:
    """Return a function that maps spans to the text of their first line, in the client's version. Each file is read
    once.
    """
    lines: dict[str, list[str]] = {}

    def source_line(span: Span) -> str | None:
        if span.file not in lines:
            lines[span.file] = from_proto.split_lines(session.source(span.file) or "")
        rows = lines[span.file]
        return rows[span.line - 1] if 0 < span.line <= len(rows) else None

    return source_line


def _document(view: View, trace: Trace, stages: list[Stage], source_line: SourceLine, sizes: SizeStyle) -> RenderedView:
    shown = _rendered(view, trace, stages, source_line, sizes)
    assert shown.document.text  # joined here, where it delays nothing
    return shown


def _rendered(view: View, trace: Trace, stages: list[Stage], source_line: SourceLine, sizes: SizeStyle) -> RenderedView:
    nodes = {node.name: node for stage in stages for node in stage.nodes}
    if view.stage == RUN and view.work:
        return RenderedView(render_run(trace, {stage.name: stage for stage in stages}), nodes)
    if chip_of(view.work):
        return RenderedView(render_listing(stages, view.name))
    if view.stage == SUMMARY:
        return RenderedView(render_summary(trace, stages, source_line, view.full), nodes)
    *before, stage = stages
    if before:
        return RenderedView(render_diff(trace, before[0], stage), nodes)
    return RenderedView(render_stage(trace, stage, source_line, view.full, sizes), nodes)
