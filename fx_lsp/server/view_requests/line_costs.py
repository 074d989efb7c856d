"""Handle `fxLsp/lineCosts`: what each line of a file costs, for clients that draw it beside the code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fx_lsp.features.costs.line_costs import LineCost, LineCosts, line_costs
from fx_lsp.features.wording.guesses import Guesses
from fx_lsp.features.wording.traces import default_stage
from fx_lsp.model import Stage, Target, Trace
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.display.stages import decoded_stage
from fx_lsp.server.session import Session

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import Engine, TargetState

LINE_COSTS = "fxLsp/lineCosts"
Json = dict[str, Any]


async def costs(session: Session, benchmarks: Benchmarks, params: Any) -> list[Json] | None:
    """Answer `fxLsp/lineCosts`: the costs of the lines of each traced target of an open document. A line of a nested
    target is one of that target alone. Waits for no trace.
    """
    document = session.documents.get(str(getattr(params, "uri", "")))
    state = session.state(document.uri) if document is not None else None
    if document is None or state is None or session.engine is None:
        return None
    answers: list[Json] = []
    shown = set[int]()
    for target_state in sorted(state.targets, key=lambda t: t.target.span.end_line - t.target.span.line):
        target, trace = target_state.target, target_state.outcome
        stages = await _stages(session.engine, target_state)
        if not isinstance(trace, Trace) or not stages:
            continue
        run = benchmarks.last(target.file, target.name)
        measured = None if run is None or run.stale else run
        of_lines = await asyncio.to_thread(line_costs, target, trace, stages, measured)
        own = [] if of_lines is None else [cost for cost in of_lines.lines if cost.line not in shown]
        if of_lines is not None and own:
            answers.append(_target(session, target, trace, of_lines, own))
            shown |= {cost.line for cost in own}
    return answers


async def _stages(engine: Engine, target_state: TargetState) -> list[Stage]:
    """Return forward and backward of a traced target, or inference; none if one of them cannot be read now."""
    trace = target_state.outcome
    if not isinstance(trace, Trace) or not trace.stages:
        return []
    names = [default_stage(trace), *(["backward"] if trace.ops("backward") is not None else [])]
    stages = [await decoded_stage(engine, target_state, name, limit=None) for name in names]
    return [stage for stage in stages if stage is not None] if None not in stages else []


def _target(session: Session, target: Target, trace: Trace, costs: LineCosts, lines: list[LineCost]) -> Json:
    return {
        "name": target.name,
        "measure": costs.measure,
        "where": costs.where,
        "guessed": bool(Guesses(trace.inputs)),
        "lines": [_line(session, target.file, cost) for cost in lines],
    }


def _line(session: Session, file: str, cost: LineCost) -> Json:
    place, totals, times = session.line_start(file, cost.line), cost.totals, cost.times
    return {
        "uri": place.uri,
        "line": place.range.start.line,
        "endLine": place.range.start.line + cost.end_line - cost.line,
        "share": cost.share,
        "savedShare": cost.saved_share,
        "flops": totals.flops.sum,
        "moved": totals.moved_bytes.sum,
        "saved": totals.saved_bytes,
        "live": totals.peak_bytes,
        "times": None if times is None else {"forward": times.forward, "backward": times.backward},
    }
