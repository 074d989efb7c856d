"""What else is made of a traced target, by the name of the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl

from fx_lsp.model import Stage, TraceRequest
from fx_lsp.tracer.call import Call
from fx_lsp.tracer.capture import Captured
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.devices import OnCpu
from fx_lsp.tracer.graphs import Names
from fx_lsp.tracer.provenance import Sources
from fx_lsp.tracer.stages.ledger import Ledger


@dataclass(frozen=True)
class Traced:
    """A target that was traced: its call, the graphs and their stages, and what made them.

    `symbolic` where sizes are symbols; `options` are those of the work.
    """

    request: TraceRequest
    call: Call
    captured: Captured
    stages: list[Stage]
    sources: Sources
    mode: FakeTensorMode
    devices: OnCpu | None
    new_names: Callable[[], Names]
    symbolic: bool
    options: Mapping[str, str] = field(default_factory=dict[str, str])


def further_stages(traced: Traced) -> Ledger:
    """The stages of the work that was asked for (`passes&table=core`), in order, those of the trace among them.

    Raises ValueError for work that does not exist, or with options that it does not have.
    """
    name, _, query = traced.request.work.partition("&")
    traced = replace(traced, options=dict(parse_qsl(query, keep_blank_values=True)))
    if name == "passes":
        from fx_lsp.tracer.stages.pipeline import pipeline

        return pipeline(traced)
    if name.startswith("pass="):
        from fx_lsp.tracer.stages.userpass import run_pass

        return run_pass(traced)
    if name == "partitions":
        from fx_lsp.tracer.stages.partitions import partitions

        return partitions(traced)
    if name.startswith("checkpoint="):
        from fx_lsp.tracer.stages.checkpoint import checkpoint_region

        return checkpoint_region(traced, name.removeprefix("checkpoint="))
    if name == "torchscript":
        from fx_lsp.tracer.stages.torchscript import torchscript

        return torchscript(traced)
    if name == "debug":
        from fx_lsp.tracer.stages.debug import debug

        return debug(traced)
    raise ValueError(f"there is no work {name!r}")
