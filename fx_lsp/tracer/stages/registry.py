"""Register the works that produce further stages of a traced target, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from fx_lsp.model import InputSpec, Stage, TraceRequest, read_work
from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.inputs.outcome import ProgramCall
from fx_lsp.tracer.inputs.plan.plans import Plans
from fx_lsp.tracer.program.devices import OnCpu
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.conditions import Conditions
from fx_lsp.tracer.source.provenance import Sources
from fx_lsp.tracer.stages.ledger import Ledger


@dataclass(frozen=True)
class TracedCall:
    """Hold the traced call of a target, its graphs and their stages, and the conditions of their capture.

    `conditions` are those of the capture; `inputs` are its arguments for the user, `result` is the call's result, `ran`
    the executed part of the file; `options` are those of the work, `constructor` the plans for the constructor of the
    method's object, None if they are unknown; `program_calls` returns the calls that the project makes.
    """

    request: TraceRequest
    call: Call
    captured: Captured
    stages: list[Stage]
    sources: Sources
    mode: FakeTensorMode
    devices: OnCpu | None
    new_names: Callable[[], Names]
    conditions: Conditions
    inputs: tuple[InputSpec, ...] = ()
    result: Any = None
    ran: str = ""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    constructor: Plans | None = None
    program_calls: Callable[[], Iterable[ProgramCall]] = tuple

    @property
    def symbolic(self) -> bool:
        """Return True if sizes of its tensors are symbols, or may become some."""
        return self.conditions.symbols is not None


WORKS = {
    "passes": "passes.pipeline.pipeline",
    "pass": "passes.user_pass.run_pass",
    "breaks": "analyses.breaks.breaks",
    "recompiles": "analyses.recompilations.recompiles",
    "partitions": "analyses.partitions.partitions",
    "checkpoint": "analyses.checkpoint.checkpoint_region",
    "torchscript": "analyses.torchscript.torchscript",
    "debug": "analyses.debug.debug",
    "diverge": "analyses.diverge.diverge",
    "diverge-kernels": "kernels.interpreted.compare_kernels",
    "triton": "kernels.triton.triton",
    "lowered": "kernels.lowered.lowered",
    "rewrites": "kernels.rewrites.rewrites",
    "fusion": "kernels.fusion.fusion",
}
"""The function of each work, below `fx_lsp.tracer`; imported on request."""


def further_stages(traced: TracedCall) -> Ledger:
    """Return the stages of the requested work (`passes&table=core`), in order, including those of the trace.

    The options of a work are all parts of its query, its own name first. Raises ValueError for unknown work.
    """
    options = read_work(traced.request.work)
    name = next(iter(options), "")
    if name not in WORKS:
        raise ValueError(f"there is no work {name!r}")
    module, _, function = WORKS[name].rpartition(".")
    do = getattr(import_module(f"fx_lsp.tracer.{module}"), function)
    return do(replace(traced, options=options))
