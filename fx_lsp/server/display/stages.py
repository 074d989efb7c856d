"""Read the stages of traced targets for what is drawn over the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fx_lsp.model import Stage, known_trace

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import Engine, TargetState

MAX_READ_OPS = 2_000
"""The largest graph, in operations, that is decoded because a file is open."""


async def decoded_stage(
    engine: Engine, target_state: TargetState, name: str, limit: int | None = MAX_READ_OPS
) -> Stage | None:
    """Return a stage of a traced target; one of more than `limit` operations only if it is decoded already."""
    target, trace = target_state.target, target_state.outcome and known_trace(target_state.outcome)
    ops = trace.ops(name) if trace is not None else None
    if ops is None:
        return None
    decoded = engine.stage_now(target.file, target.name, name)
    if decoded is not None or target_state.pending or target_state.stale or (limit is not None and ops > limit):
        return decoded
    stage = await engine.stage(target.file, target.name, name)
    return stage if isinstance(stage, Stage) else None
