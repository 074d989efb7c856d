"""What is known of a target that failed: the values and the torch calls of what ran before."""

from __future__ import annotations

import ast
import logging
from dataclasses import dataclass, field

import torch

from fx_lsp.model import InputSpec, Stage, StageInfo, Trace, TraceRequest
from fx_lsp.tracer.branches import unreached
from fx_lsp.tracer.call import RUN_CODE, Call
from fx_lsp.tracer.graphs import Names
from fx_lsp.tracer.observe import Run, Statements, watched_run
from fx_lsp.tracer.provenance import Sources
from fx_lsp.tracer.stages.executed import FAILS, executed_stage

log = logging.getLogger(__name__)

TITLE = "as written, as far as it ran"


@dataclass
class Partials:
    """The stages of what ran of targets that failed, each under its partial trace."""

    stages: dict[Trace, Stage] = field(default_factory=dict[Trace, Stage])

    def of_call(
        self, request: TraceRequest, sources: Sources, tree: ast.Module, call: Call, inputs: tuple[InputSpec, ...]
    ) -> Trace | None:
        """Return what a call shows that runs, though it cannot be captured, and keep its graph."""
        run = watched_run(sources, call.run, RUN_CODE, Statements(tree, request.file), Run(recorded=[]))
        return self.note(request, sources, tree, run, call, inputs)

    def note(
        self,
        request: TraceRequest,
        sources: Sources,
        tree: ast.Module,
        run: Run,
        call: Call,
        inputs: tuple[InputSpec, ...],
    ) -> Trace | None:
        """Return what a recorded run showed before it failed, and keep the graph of that; None where nothing ran."""
        if not run.recorded:
            return None
        stage = None
        try:
            stage = executed_stage(run, call, sources, Names(sources, {request.file: tree}))
        except Exception:
            log.exception("the torch calls of %s make no graph", request.name)
        stopped = sources.traceback_chain(run.error.__traceback__) if run.error is not None else ()
        partial = Trace(
            target=f"{request.file}::{request.name}",
            inputs=inputs,
            stages=() if stage is None else (StageInfo(stage.name, _ops(stage), len(stage.nodes), TITLE),),
            saved=(),
            values=tuple(run.values),
            outputs=(),
            seconds=0.0,
            torch=torch.__version__,
            unreached=unreached(tree, request.file, run.coverage, stopped),
        )
        if stage is not None:
            self.stages[partial] = stage
        return partial


def _ops(stage: Stage) -> int:
    return sum(node.op.startswith("call_") and node.comment != FAILS for node in stage.nodes)
