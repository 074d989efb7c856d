"""What is known of a target that failed: the values and the torch calls of what ran before."""

from __future__ import annotations

import ast
import logging

import torch

from fx_lsp.model import Stage, StageInfo, Trace, TraceRequest
from fx_lsp.tracer.capture.executed import FAILS, executed_stage
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.run.branches import unreached
from fx_lsp.tracer.run.observation import Stopped
from fx_lsp.tracer.source.provenance import Sources

log = logging.getLogger(__name__)

TITLE = "as written, as far as it ran"


def partial_trace(
    request: TraceRequest, sources: Sources, tree: ast.Module, stopped: Stopped
) -> tuple[Trace, Stage | None] | None:
    """Return what a recorded run showed before it failed, and the graph of that; None where no operation ran."""
    run = stopped.run
    if not run.recorded:
        return None
    stage = None
    try:
        stage = executed_stage(run, stopped.call, sources, Names(sources, {request.file: tree}))
    except Exception:
        log.exception("the torch calls of %s make no graph", request.name)
    ended = sources.traceback_chain(run.error.__traceback__) if run.error is not None else ()
    trace = Trace(
        target=f"{request.file}::{request.name}",
        inputs=stopped.inputs,
        stages=() if stage is None else (StageInfo(stage.name, _ops(stage), len(stage.nodes), TITLE),),
        saved=(),
        values=tuple(run.values),
        outputs=(),
        seconds=0.0,
        torch=torch.__version__,
        unreached=unreached(tree, request.file, run.coverage, ended),
    )
    return trace, stage


def _ops(stage: Stage) -> int:
    return sum(node.op.startswith("call_") and node.comment != FAILS for node in stage.nodes)
