"""Build the lenses over a `def` or `class`: the costs of its graphs, and links to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fx_lsp.choices import TRITON
from fx_lsp.features.costs.benchmark import lens_title
from fx_lsp.features.costs.fit import peak_title
from fx_lsp.features.wording.guesses import LEGEND, Guesses
from fx_lsp.features.wording.inputs import input_text, variant_title
from fx_lsp.features.wording.traces import (
    FUSION,
    PASSES,
    RECOMPILES,
    TORCHSCRIPT,
    default_stage,
    place_text,
    summarize,
    work_of_pass,
)
from fx_lsp.features.wording.uris import BENCHMARK
from fx_lsp.measured import BenchmarkRun
from fx_lsp.model import MEMORY, Failure, Outcome, Pass, Span, Target, Trace, Work, variant_work

OFFERED = 3
"""The number of targets that a pass offers to run on."""
MENU = "graphs"
"""The title of the lens that offers the others."""
PENDING = "tracing…"
"""The title over a target until its first trace ends. Picking it shows the graph as soon as there is one."""
_BUILT = ("graph", "table", "code")
_WORKS = (
    ("passes", PASSES, "What each compiler pass changes"),
    ("why not fused", FUSION, "The kernels of fx-lsp, and why neighbours are not one"),
    ("generate Triton kernel", TRITON, "The graphs as Triton kernels, to read and to edit"),
)
_OF_COMPILED = (
    ("recompilations", RECOMPILES, "The calls that torch.compile compiles again, and the guards that fail"),
)
_SHOWN = ("forward", "backward", "joint", "inference")


@dataclass(frozen=True)
class Lens:
    """Hold a clickable title over `span`: shows `stage` of the target `name`, or its failure (`stage` is then "").

    Without a stage, it is forward or inference. The stage comes from `work`, as do the kernels to measure ("bench");
    with `by_line`, each line is measured. A lens that runs the pass `name` has the `target` to run it on, or None to
    ask for one. "show menu" offers what `in_menu` returns. `tooltip` says what the title leaves out.
    """

    span: Span
    title: str
    action: Literal["show stage", "show failure", "run pass", "bench", "write kernel", "show menu"]
    name: str
    stage: str = ""
    work: Work = ""
    target: Target | None = None
    tooltip: str = ""
    by_line: bool = False


def with_menu(lenses: Sequence[Lens]) -> tuple[Lens, ...]:
    """Return the first lens of a target, one that offers the others in a menu, if there are several, and the one with
    a measurement.
    """
    if not in_menu(lenses):
        return tuple(lenses)
    name, measured = lenses[0].name, (lens for lens in lenses if lens.stage == BENCHMARK)
    menu = Lens(lenses[0].span, MENU, "show menu", name, tooltip=f"The graphs and commands of {name}")
    return (lenses[0], menu, *measured)


def in_menu(lenses: Sequence[Lens]) -> tuple[Lens, ...]:
    """Return the lenses of a target that a menu replaces: all after the first, if they are several."""
    return tuple(lenses[1:]) if len(lenses) > 2 else ()


def lenses(target: Target, outcome: Outcome | None, stale: bool, pending: bool = False) -> tuple[Lens, ...]:
    """Return the lenses of one target; empty if nothing is known of it and no trace is `pending`, or if it runs no
    operation.
    """
    if outcome is None and pending:
        return (Lens(target.name_span, PENDING, "show stage", target.name),)
    if outcome is None or is_empty(outcome):
        return ()
    prefix = "stale · " if stale else ""
    if isinstance(outcome, Failure):
        return _failure_lenses(target, outcome, prefix)
    if target.kind == "graph":
        return _graph_lenses(target, outcome, prefix)
    stages = [s.name for s in outcome.stages if s.name in _SHOWN]
    first = default_stage(outcome)
    inputs = ", ".join(input_text(item) for item in outcome.inputs)
    told = f"for {inputs}{f' ({LEGEND})' if Guesses(outcome.inputs) else ''}" if inputs else ""
    summary = Lens(target.name_span, prefix + summarize(outcome), "show stage", target.name, first, tooltip=told)
    shows = sorted(stages, key=_SHOWN.index)
    graphs = (Lens(target.name_span, f"show {s} graph", "show stage", target.name, s) for s in shows)
    variants = (
        Lens(target.name_span, variant_title(v), "show stage", target.name, "", variant_work(v.name))
        for v in outcome.variants
    )
    more = (
        Lens(target.name_span, title, "show stage", target.name, work, work, tooltip=tooltip)
        for title, work, tooltip in (*_WORKS, *(_OF_COMPILED if target.compiled else ()))
    )
    return (summary, *graphs, *variants, *more)


def is_empty(outcome: Outcome) -> bool:
    """Return True if a target was traced and runs no operation."""
    return isinstance(outcome, Trace) and bool(outcome.stages) and not any(stage.ops for stage in outcome.stages)


def _failure_lenses(target: Target, failure: Failure, prefix: str) -> tuple[Lens, ...]:
    """Return the lenses of a target that was not traced: why, and the graph of what ran."""
    here = failure.span is not None and failure.span.line == target.name_span.line
    place = "" if here else place_text(target.file, failure.span)
    title = f"{prefix}not traced" + (f": {place}" if place else "")
    ran = () if failure.partial is None else failure.partial.stages
    shows = (Lens(target.name_span, "show partial graph", "show stage", target.name, stage.name) for stage in ran)
    return (Lens(target.name_span, title, "show failure", target.name), *shows)


def _graph_lenses(target: Target, trace: Trace, prefix: str) -> tuple[Lens, ...]:
    """Return the lenses of a hand-built graph, which is shown for reading."""
    place, name = target.name_span, target.name
    return (
        Lens(place, prefix + summarize(trace), "show stage", name, "graph"),
        *(Lens(place, f"show {stage}", "show stage", name, stage) for stage in _BUILT),
        Lens(place, "TorchScript", "show stage", name, TORCHSCRIPT, TORCHSCRIPT),
    )


def pass_lenses(pass_: Pass, recent: Sequence[Target]) -> tuple[Lens, ...]:
    """Return the lenses of a pass: to run it on one of the `recent` targets, or on another."""
    runs = (Lens(pass_.name_span, f"run on {t.name}", "run pass", pass_.name, target=t) for t in recent[:OFFERED])
    return (*runs, Lens(pass_.name_span, "run on …", "run pass", pass_.name))


def benchmark_lens(span: Span, name: str, last: BenchmarkRun | None, work: Work = "") -> Lens:
    """Return a lens with the last measurement of a target, or else one that measures it, with kernels from `work`."""
    if last is None:
        return Lens(span, "benchmark", "bench", name, work=work, tooltip="Measure against eager and torch.compile")
    return Lens(span, lens_title(last.report, last.stale), "show stage", name, BENCHMARK, BENCHMARK)


def memory_lens(span: Span, program: str, outcome: Outcome | None) -> Lens:
    """Return a lens on the step of a program, with the peak of its memory, or else one that measures it."""
    memory = outcome.memory if isinstance(outcome, Trace) else None
    title = "peak memory" if memory is None else peak_title(memory, place_text(span.file, memory.span))
    return Lens(span, title, "show stage", program, MEMORY, MEMORY, tooltip="Will it fit on a GPU, with which batch?")


def by_line_lens(span: Span, name: str) -> Lens:
    """Return a lens that measures each line of a target."""
    return Lens(span, "benchmark by line", "bench", name, tooltip="Time each line in eager PyTorch", by_line=True)


def again_lenses(name: str) -> tuple[Lens, ...]:
    """Return the lens over the benchmark page of a target, to measure again."""
    return (Lens(Span("", 1, 0, 1, 0), "measure again", "bench", name),)


def run_of(pass_: Pass) -> Work:
    """Return the work of running a pass."""
    return work_of_pass(pass_.file, pass_.name)
