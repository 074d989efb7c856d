"""Print pages of a target: its graphs, compiler passes, costs and kernels. `PAGES` has an entry for each command.

Exit codes: 0 traced, 1 not traced or, for `diverge`, a result that differs, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fx_lsp import wire
from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.outputs import report_unwritten, write_outputs
from fx_lsp.commands.places import in_characters
from fx_lsp.commands.targets import (
    Chosen,
    failure_text,
    opened,
    print_document,
    read_target,
    source_line,
    source_lines,
    stages_of,
)
from fx_lsp.errors import TargetError
from fx_lsp.features.costs.summary import render_summary, stages_of_summary, summary_of, summary_to_json
from fx_lsp.features.documents.comparison import align, columns_text, comparison_page
from fx_lsp.features.documents.diffs import render_diff
from fx_lsp.features.documents.document import Document, Line, render_stage, title_lines
from fx_lsp.features.documents.passes import render_passes, render_run
from fx_lsp.features.kernels import fusion_data
from fx_lsp.features.web_page import web_page
from fx_lsp.features.wording.dimensions import STYLES, SizeNames
from fx_lsp.features.wording.inputs import input_data
from fx_lsp.features.wording.text import basename
from fx_lsp.features.wording.traces import (
    DIVERGE,
    DIVERGE_DATA,
    DIVERGE_KERNELS,
    EXECUTED,
    FUSION,
    FUSION_DATA,
    INDUCTOR_FUSION,
    PASSES,
    RECOMPILES,
    RECOMPILES_DATA,
    TORCHSCRIPT,
    default_stage,
    shown_trace,
    work_of_pass,
)
from fx_lsp.model import Failure, Node, Outcome, Span, Stage, Target, Trace, Work, read_work, variant_work, write_work
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.source.targets import stages_like

STAGES = ("forward", "backward", "joint", "inference", "graph", "table", "code", EXECUTED, TORCHSCRIPT)
Arguments = argparse.Namespace


class MissingStageError(Exception):
    """A traced target has no stage of the requested name."""

    def __init__(self, target: str, stage: str, stages: Iterable[str]) -> None:
        super().__init__(f"{target} has no stage {stage}. {stages_like(stage, [*dict.fromkeys(stages)])}")


class Option(NamedTuple):
    """Hold an argument of a command: its name, and the settings of `add_argument`."""

    name: str
    settings: Mapping[str, Any]


def option(name: str, text: str, **settings: Any) -> Option:
    """Return an argument with its help and settings: a switch without any."""
    return Option(name, {"help": text, **(settings or {"action": "store_true"})})


@dataclass(frozen=True)
class Answer:
    """Hold what is known of the target of a command. `trace` is also that of the part that ran before a failure;
    `stages` are those that the command asks for. A comparison has no one target, and a title for each stage.
    """

    arguments: Arguments
    target: str
    chosen: Chosen
    failure: Failure | None = None
    trace: Trace | None = None
    stages: Sequence[Stage] = ()
    targets: Sequence[Target] = ()
    titles: Sequence[str] = ()
    texts: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def shown(self) -> Trace:
        """Return the trace of an answer that has one."""
        assert self.trace is not None, "pages are of what was traced"
        return self.trace

    def line(self, span: Span) -> str | None:
        """Return the first line of a span."""
        return source_line(span, self.texts)

    def page(self, subject: str) -> Document:
        """Return the first stage, a page of text, below the title of its target and the `subject` of the page."""
        title = title_lines(self.shown, self.stages[0].name, subject)
        return Document(tuple(Line(line) for line in (*title, *self.stages[0].text.splitlines())))

    def graph(self, stage: Stage, sizes: Any = "numbers") -> Document:
        """Return the document of a stage."""
        return render_stage(self.shown, stage, self.line, self.arguments.full, sizes)


@dataclass(frozen=True)
class Page:
    """Describe a command: its options, of which those in one tuple exclude each other; the work and the stages that it
    asks for; the text that it prints, its JSON, and its HTML; and its exit code. `partial` is True if it also shows the
    part that ran before a failure.
    """

    options: Sequence[Option | tuple[Option, ...]]
    text: Callable[[Answer], Document | str]
    data: Callable[[Answer], dict[str, Any]]
    work: Callable[[Arguments], Work] = lambda _: ""
    stages: Callable[[Arguments, Trace], Iterable[str]] = lambda _, trace: [info.name for info in trace.stages]
    html: Callable[[Answer], str] = lambda _: ""
    exit_code: Callable[[Answer], int] = lambda _: 0
    ask: Callable[[Page, Arguments], Coroutine[Any, Any, Answer]] | None = None
    partial: bool = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        for options in self.options:
            group = parser if isinstance(options, Option) else parser.add_mutually_exclusive_group()
            for option in [options] if isinstance(options, Option) else options:
                group.add_argument(option.name, **option.settings)
        add_tracing_options(parser)

    def run(self, arguments: Arguments) -> int:
        """Trace the target and print its page. Raises TargetError for a target without a file."""
        try:
            answer = asyncio.run((self.ask or _asked)(self, arguments))
            return self._print(answer, arguments)
        except MissingStageError as error:
            print(f"fx-lsp: {error}", file=sys.stderr)
            return 1

    def _print(self, answer: Answer, arguments: Arguments) -> int:
        failure = answer.failure
        is_html = bool(getattr(arguments, "html", None) and answer.stages)
        if is_html:
            try:
                write_outputs({Path(arguments.html): self.html(answer)}, arguments.force)
            except OSError as error:
                return report_unwritten(error, arguments.html)
        elif arguments.json:
            data = self.data(answer) if failure is None else failure_data(answer, failure)
            named = {"target": answer.target} if answer.target else {}
            print(json.dumps(in_characters({**named, **data}), indent=2))
        if failure is not None and (is_html or not arguments.json):
            print(failure_text(failure, answer.chosen), file=sys.stderr)
        if not is_html and not arguments.json and (failure is None or _shows_partial(answer)):
            text = self.text(answer)
            print(text) if isinstance(text, str) else print_document(text)
        return self.exit_code(answer) if failure is None else 1


def _shows_partial(answer: Answer) -> bool:
    return bool(answer.stages) and answer.arguments.stage in (None, EXECUTED)


async def _asked(page: Page, arguments: Arguments) -> Answer:
    """Return the answer for the one target of a command."""
    chosen = read_target(arguments.target)
    work = variant_work(arguments.variant or "", page.work(arguments))
    async with opened(arguments, chosen) as engine:
        outcome = await engine.outcome(chosen.file, chosen.name, work, final=True)
        trace = shown_trace(outcome, chosen.file) if page.partial or isinstance(outcome, Trace) else None
        stages = [] if trace is None else await stages_of(engine, chosen, page.stages(arguments, trace), work)
        targets = await engine.targets(chosen.file)
    if isinstance(stages, Failure):
        outcome, stages = stages, []
    failure = outcome if isinstance(outcome, Failure) else None
    named = () if isinstance(targets, Failure) else [target for target in targets if target.name == chosen.name]
    texts = {chosen.file: chosen.text}
    return Answer(arguments, arguments.target, chosen, failure, trace, stages, named, texts=texts)


class Compared(NamedTuple):
    """Name a graph: a stage of a target, "" for its default, traced with an optional tensor or flag (`variant`)."""

    target: str
    stage: str
    variant: str


def read_graphs(texts: Sequence[str]) -> list[Compared]:
    """Return the graphs that a command names. Raises TargetError for fewer than two, or for one without a target."""
    if len(texts) < 2:
        raise TargetError("a comparison needs two graphs or more")
    graphs: list[Compared] = []
    for text in texts:
        path, separator, rest = text.rpartition("::")
        name, _, stage = rest.partition(":") if separator else text.partition(":")
        name, _, variant = name.partition("@")
        if not separator and (name or not graphs):
            raise TargetError(f"`{text}` is not a target: write it as path/to/file.py::function:stage")
        graphs.append(Compared(f"{path}::{name}" if separator else graphs[0].target, stage, variant))
    return graphs


async def _asked_of_graphs(_: Page, arguments: Arguments) -> Answer:
    """Return the answer for several graphs, with a title and a stage for each, or for the first that has none."""
    graphs = read_graphs(arguments.graphs)
    stages: list[Stage] = []
    titles: list[str] = []
    for graph, chosen in [(graph, read_target(graph.target)) for graph in graphs]:
        async with opened(arguments, chosen) as engine:
            stage = await _compared_stage(engine, chosen, graph, arguments.sizes)
        if isinstance(stage, Failure):
            return Answer(arguments, graph.target, chosen, stage)
        with_variant = f" with {graph.variant}" if graph.variant else ""
        titles.append(f"{basename(chosen.file)}::{chosen.name}{with_variant} · {stage.name}")
        stages.append(stage)
    return Answer(arguments, "", read_target(graphs[0].target), stages=stages, titles=titles)


async def _compared_stage(engine: Engine, chosen: Chosen, graph: Compared, sizes: Any) -> Stage | Failure:
    """Return the stage of a graph, with sizes in a style."""
    names: list[str] = []
    for work in ("", PASSES):
        work = variant_work(graph.variant, work)
        outcome = await engine.outcome(chosen.file, chosen.name, work, final=True)
        if isinstance(outcome, Failure):
            return outcome
        name = graph.stage or default_stage(outcome)
        names += [info.name for info in outcome.stages]
        if outcome.info(name) is not None:
            stage = await engine.stage(chosen.file, chosen.name, name, work)
            renamed = SizeNames(outcome, sizes).renamed
            return stage if isinstance(stage, Failure) else Stage(stage.name, tuple(map(renamed, stage.nodes)))
    raise MissingStageError(graph.target, graph.stage, names)


def _graph_text(answer: Answer) -> Document:
    by_name, trace = {stage.name: stage for stage in answer.stages}, answer.shown
    name = EXECUTED if answer.failure is not None else answer.arguments.stage or default_stage(trace)
    if name not in by_name:
        raise MissingStageError(trace.target, name, by_name)
    return answer.graph(by_name[name], answer.arguments.sizes)


def _graph_html(answer: Answer) -> str:
    lines = source_lines(answer.texts)
    return web_page(answer.targets[0], answer.shown, list(answer.stages), lines, answer.arguments.sizes)


def _graph_data(answer: Answer) -> dict[str, Any]:
    trace = answer.shown
    return {
        **_inputs_and_stages(trace, answer.stages),
        "saved": [{k: wire.to_json(getattr(s, k)) for k in ("name", "spec", "bytes", "span")} for s in trace.saved],
        "seconds": trace.seconds,
        "called_in": trace.context.shown,
        "variants": [variant.name for variant in trace.variants],
    }


def _inputs_and_stages(outcome: Outcome, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the inputs and stages in the contract's form; a stage that is not a graph has `text`."""
    entries = (
        {"name": s.name, "nodes": list(map(node_data, s.nodes)), **({"text": s.text} if s.text else {})} for s in stages
    )
    return {"inputs": list(map(input_data, outcome.inputs)), "stages": list(entries)}


def failure_data(answer: Answer, failure: Failure) -> dict[str, Any]:
    """Return the JSON for a target that was not traced, with the stages that are known of it."""
    fields = {k: wire.to_json(getattr(failure, k)) for k in ("kind", "message", "span", "hint")}
    return {"failure": fields, **(_inputs_and_stages(failure, answer.stages) if answer.stages else {})}


def node_data(node: Node) -> dict[str, Any]:
    """Return a node in the contract's form."""
    fields = ("name", "op", "target", "args", "spec", "span", "users", "flops", "moved_bytes", "sent_bytes", "module")
    return {k: wire.to_json(getattr(node, k)) for k in fields}


def _summary_data(answer: Answer) -> dict[str, Any]:
    trace = answer.shown
    data = summary_to_json(summary_of(trace, list(answer.stages)), answer.line)
    return {"inputs": list(map(input_data, trace.inputs)), **data, "seconds": trace.seconds}


def _work_of_passes(arguments: Arguments) -> Work:
    if arguments.partitions or arguments.budgets:
        return write_work({"partitions": "", **({"budgets": arguments.budgets} if arguments.budgets else {})})
    if arguments.breaks:
        return "breaks"
    if arguments.debug:
        return "debug"
    check = {"check": ""} if arguments.check else {}
    if arguments.own:
        return write_work({**_own_pass(arguments), **check})
    wanted = [arguments.stage or "", *(arguments.diff or ())]
    code = {"code": ""} if arguments.code or any(name.endswith(":code") for name in wanted) else {}
    table = {"table": arguments.table} if arguments.table and arguments.table != "inductor" else {}
    return write_work({"passes": "", **table, **code, **check})


def _own_pass(arguments: Arguments) -> dict[str, str]:
    """Return the parts of work for a custom pass on a graph. Raises TargetError for a pass without a file."""
    chosen = read_target(arguments.own)
    graph = {"on": arguments.on} if arguments.on else {}
    return {**read_work(work_of_pass(chosen.file, chosen.name)), **graph}


def _stages_of_passes(arguments: Arguments, trace: Trace) -> list[str]:
    if arguments.diff or arguments.stage:
        return list(arguments.diff or [arguments.stage])
    if (arguments.partitions or arguments.budgets) and not arguments.json:
        return ["table"]
    if arguments.breaks and not arguments.json:
        return ["breaks"]
    changed = [info.name for info in trace.stages if info.change is None or info.change]
    return changed if arguments.json or arguments.own or arguments.debug else []


def _passes_text(answer: Answer) -> Document:
    arguments, trace = answer.arguments, answer.shown
    if arguments.diff:
        return render_diff(trace, *answer.stages)
    if (arguments.own or arguments.debug) and not arguments.stage:
        return render_run(trace, {stage.name: stage for stage in answer.stages})
    return answer.graph(answer.stages[0]) if answer.stages else render_passes(trace, arguments.all)


def _passes_data(answer: Answer) -> dict[str, Any]:
    """Return every stage with its origin; with nodes if its pass changed something."""
    trace, by_name = answer.shown, {stage.name: stage for stage in answer.stages}
    entries: list[dict[str, Any]] = []
    for info in trace.stages:
        stage, entry = by_name.get(info.name), wire.to_json(info)
        if stage is not None:
            entry |= {"text": stage.text} if stage.text else {"nodes": list(map(node_data, stage.nodes))}
        else:
            del entry["nodes"]
        entries.append(entry)
    inputs = list(map(input_data, trace.inputs))
    return {"torch": trace.torch, "inputs": inputs, "stages": entries, "seconds": trace.seconds}


def _work_of_diverge(arguments: Arguments) -> Work:
    if arguments.kernels:
        return write_work({DIVERGE_KERNELS: ""})
    compiler = {"inductor": ""} if arguments.inductor else {}
    return write_work({DIVERGE: "", **compiler, **(_own_pass(arguments) if arguments.own else {})})


def _diverged(answer: Answer) -> list[dict[str, Any]]:
    return json.loads(answer.stages[1].text)


def _rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the rows of a comparison: the node of each graph, or null, and those that differ from the first."""
    return [
        {"nodes": [None if n is None else node_data(n) for n in row.nodes], "unlike": list(row.unlike)}
        for row in align(answer.stages)
    ]


def _columns(answer: Answer) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return "\n".join(columns_text(answer.titles, align(answer.stages), width, answer.arguments.full))


_TARGET = option("target", "path/to/file.py::function, ::Class or ::Class.method", metavar="TARGET")
_VARIANT = option("--variant", "trace with this optional tensor, or this flag: balance=True", metavar="NAME")
_FULL = option("--full", "print every node, including repeated loops and layers")
_STAGE = option("--stage", "print one stage", metavar="S")
_ON = option("--on", "its graph: inference, core, torch, joint, forward or backward", metavar="G")
_FORCE = option("--force", "let --html replace a file that fx-lsp did not write")

PAGES = {
    "graph": Page(
        options=(
            _TARGET,
            option(
                "--stage",
                "which graph (default: forward, or inference if there is no backward); for a hand-built graph: graph "
                "(default), table or code; torchscript for either; for a target that fails: torch, the part that ran",
                choices=STAGES,
            ),
            _VARIANT,
            _FULL,
            option("--json", "print everything as JSON"),
            option(
                "--html", "write all graphs beside the source to one HTML file, to attach to an issue", metavar="FILE"
            ),
            _FORCE,
            option(
                "--sizes",
                "how to show sizes that have names in the code: f32[B, T] (default), f32[4, 8], or f32[B=4, T=8]",
                choices=STYLES,
                default=STYLES[0],
            ),
        ),
        work=lambda arguments: TORCHSCRIPT if arguments.stage == TORCHSCRIPT else "",
        text=_graph_text,
        data=_graph_data,
        html=_graph_html,
        partial=True,
    ),
    "compare": Page(
        options=(
            option(
                "graphs",
                "path/to/file.py::function, an optional tensor or flag to trace with, a graph or a stage of the "
                "passes; @VARIANT and :STAGE alone are of the first target",
                metavar="TARGET[@VARIANT][:STAGE]",
                nargs="+",
            ),
            option("--full", "print all rows, not only those around differences"),
            option("--json", "print the rows as JSON"),
            option("--html", "write one HTML file, whose columns scroll together", metavar="FILE"),
            _FORCE,
            option(
                "--sizes",
                "how to show sizes that have names in the code: f32[B, T], f32[4, 8] (default), or f32[B=4, T=8]",
                choices=STYLES,
                default="numbers",
            ),
        ),
        ask=_asked_of_graphs,
        text=_columns,
        data=lambda answer: {"graphs": list(answer.titles), "rows": _rows(answer)},
        html=lambda answer: comparison_page(answer.titles, align(answer.stages)),
    ),
    "summary": Page(
        options=(
            _TARGET,
            _VARIANT,
            option("--full", "list every module, including repeated layers"),
            option("--json", "print everything as JSON"),
        ),
        stages=lambda _, trace: stages_of_summary(trace),
        text=lambda answer: render_summary(answer.shown, list(answer.stages), answer.line, answer.arguments.full),
        data=_summary_data,
    ),
    "passes": Page(
        options=(
            _TARGET,
            (
                option("--diff", "print what changed from stage A to stage B", nargs=2, metavar=("A", "B")),
                _STAGE,
                option("--json", "print every stage as JSON"),
            ),
            option("--all", "also list passes that changed nothing"),
            _FULL,
            option("--code", "also generate the output code of Inductor"),
            option(
                "--table",
                "decompositions: inductor (default), core (core ATen), or module.attribute of another table",
                metavar="T",
            ),
            option("--check", "run the graphs before and after each pass on random inputs, and compare"),
            option("--pass", "run this custom pass on the target instead", metavar="FILE::NAME", dest="own"),
            option("--breaks", "list the graphs of torch.compile, and the graph breaks"),
            option("--partitions", "compare what each partitioner saves"),
            option("--budgets", "their activation_memory_budget values, from 0 to 1", metavar="B,…"),
            option(
                "--debug",
                "show the graph before functionalization and in core operations, aliases, mutations, fake vs. real",
            ),
            _VARIANT,
            _ON,
        ),
        work=_work_of_passes,
        stages=_stages_of_passes,
        text=_passes_text,
        data=_passes_data,
    ),
    "diverge": Page(
        options=(
            _TARGET,
            (
                option("--stage", "print one stage, with a comment at each node that differs", metavar="S"),
                option("--json", "print the comparison of each graph as JSON"),
            ),
            _FULL,
            (
                option("--pass", "compare before and after this custom pass", metavar="FILE::NAME", dest="own"),
                option("--inductor", "also run the code of Inductor for the CPU"),
                option("--kernels", "compare what each generated Triton kernel writes"),
            ),
            _ON,
            _VARIANT,
        ),
        work=_work_of_diverge,
        stages=lambda arguments, _: [DIVERGE, DIVERGE_DATA, *([arguments.stage] if arguments.stage else [])],
        text=lambda answer: (
            answer.graph(answer.stages[2]) if answer.arguments.stage else answer.page("graphs compared node by node")
        ),
        data=lambda answer: {"torch": answer.shown.torch, "graphs": _diverged(answer)},
        exit_code=lambda answer: int(any(graph["first"] for graph in _diverged(answer))),
    ),
    "recompiles": Page(
        options=(
            _TARGET,
            option("--json", "print calls, guards and changes as JSON"),
            option("--calls", "only the calls of the project, without other arguments"),
            _VARIANT,
        ),
        work=lambda arguments: write_work({RECOMPILES: "", **({"only": "calls"} if arguments.calls else {})}),
        stages=lambda _, trace: [RECOMPILES, RECOMPILES_DATA],
        text=lambda answer: answer.page("calls that torch.compile compiles again"),
        data=lambda answer: {"torch": answer.shown.torch, **json.loads(answer.stages[1].text)},
    ),
    "fusion": Page(
        options=(
            _TARGET,
            (
                option("--inductor", "print the kernels of Inductor instead of fx-lsp's"),
                option("--json", "print the kernels and reasons of both as JSON"),
            ),
            _VARIANT,
        ),
        work=lambda _: FUSION,
        stages=lambda asked, _: [FUSION_DATA if asked.json else INDUCTOR_FUSION if asked.inductor else FUSION],
        text=lambda answer: answer.page("kernels, and why neighbours are not one"),
        data=lambda answer: {"torch": answer.shown.torch, **fusion_data(answer.stages[0])},
    ),
}
"""The commands that print pages, by name."""
