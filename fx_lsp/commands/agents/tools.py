"""Define the tools that coding agents call: what each takes, and the text that it answers with."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from fx_lsp import __version__
from fx_lsp.choices import TRITON, allowed, read_choices
from fx_lsp.commands.agents.answers import check_text, cut, joined, line_text, saved_text, target_text
from fx_lsp.commands.agents.benchmarks import AgentBenchmarks
from fx_lsp.commands.agents.files import AgentFile, Agents
from fx_lsp.commands.check.command import KINDS
from fx_lsp.commands.check.survey import FileReport, SurveyProgress, SurveyScope, report_target, survey
from fx_lsp.commands.sources import Source
from fx_lsp.commands.targets import Chosen, failure_text, source_line, stages_of
from fx_lsp.commands.tune import kept
from fx_lsp.errors import TargetError, WorkerStartError
from fx_lsp.features.costs.summary import CostSummary, stages_of_summary, summary_of
from fx_lsp.features.documents.document import render_stage
from fx_lsp.features.hover import HoverSubject, hover_expression, hover_name
from fx_lsp.features.kernels import said_of_code
from fx_lsp.features.source.findings import TOLD, told_outcome
from fx_lsp.features.wording.traces import EXECUTED, TORCHSCRIPT, default_stage, shown_trace
from fx_lsp.measured import JobProgress
from fx_lsp.model import Failure, Outcome, Span, Stage, Target, TargetKind, Trace, known_trace, variant_work, write_work
from fx_lsp.tracing.source.targets import stages_like

INSTRUCTIONS = (
    "fx-lsp runs PyTorch functions and nn.Modules on fake tensors, without data, weights or a GPU, and shows shapes, "
    "ATen graphs and what autograd saves. It finds inputs by itself; `~` marks guessed sizes, and a comment "
    "`# fx: x=f32[8, 128], n=4` above a function fixes its inputs. Call `check` with the new text of a file before you "
    "write it, and `shapes` instead of print statements. Answers are short; `detail` or `full` gives all."
)
"""What a client tells its model about the server."""

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MEASURES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True)

FilePath = Annotated[str, Field(description="A Python file or notebook; an absolute path is best.")]
Name = Annotated[str, Field(description="A function, Class, or Class.method of the file, as `targets` lists them.")]
Text = Annotated[
    str | None, Field(description="The text of the file, if it is not written to disk yet; nothing is written.")
]
Detail = Annotated[bool, Field(description="A longer answer.")]
Full = Annotated[bool, Field(description="All lines, instead of the first ones with repeats folded.")]
Only = Literal["functions", "modules", "methods", "graphs", "steps", "scripts"]
StageName = Annotated[
    str,
    Field(
        description="forward, backward, joint or inference (default: forward, or inference if there is no backward); "
        f"{EXECUTED}: what ran before a failure; {TORCHSCRIPT}; for a hand-built torch.fx graph: graph, table or code."
    ),
]
KernelChoices = Annotated[
    dict[str, str] | None,
    Field(
        description="Options: "
        + "; ".join(f"{name}: {' or '.join(values) or 'names'}" for name, values in allowed().items())
    ),
]
KERNEL_LINES = 200
"""The most lines of a file of kernels, unless all are requested."""


def server_of(agents: Agents) -> MCPServer[None]:
    """Return a server with all tools."""
    server: MCPServer[None] = MCPServer("fx-lsp", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = Tools(agents)
    for tool in (tools.check, tools.targets, tools.shapes, tools.graph, tools.saved, tools.kernel):
        _add(server, tool, READS)
    _add(server, tools.bench, MEASURES)
    return server


def _add(server: MCPServer[None], tool: Callable[..., Awaitable[str]], annotations: ToolAnnotations) -> None:
    """Add a tool whose description is its docstring; wrong arguments and refusals are errors of the tool."""

    @wraps(tool)
    async def reporting(*args: Any, **kwargs: Any) -> str:
        try:
            return await tool(*args, **kwargs)
        except (TargetError, WorkerStartError) as error:
            raise ToolError(str(error)) from error

    description = inspect.getdoc(tool)
    server.add_tool(reporting, description=description, annotations=annotations, structured_output=False)


class Tools:
    """Answer the calls of agents. Docstrings of tools are what a model reads of them."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._benchmarks = AgentBenchmarks(agents)

    async def check(self, path: FilePath, text: Text = None, only: Only | None = None, detail: Detail = False) -> str:
        """Find the mistakes in the PyTorch code of a file, before it runs: wrong shapes, dtypes and devices,
        exceptions, tensors that get no gradient, host syncs, graph breaks. Every function, nn.Module, training step
        and script is traced on fake tensors. A line of the answer is `LINE:COLUMN severity [code] message`. Pass `text`
        to check an edit before you write it.
        """
        file = self._agents.read(path, text)
        kinds: list[TargetKind] = [kind for name, kind in KINDS.items() if only in (None, name)]
        reports: list[FileReport] = []
        async with self._agents.turn() as engine:
            scope = SurveyScope([Source(file.file, text=file.text)], kinds, jobs=self._agents.settings.workers)
            await survey(engine, scope, reports.append, SurveyProgress())
        return check_text(file, reports[0], detail)

    async def targets(self, path: FilePath, text: Text = None, detail: Detail = False) -> str:
        """List the functions and nn.Modules of a file that can be traced, a line each: the number of ATen operations of
        forward and backward, and the bytes of activations that autograd saves. `detail` adds FLOP, parameters and peak
        memory.
        """
        file = self._agents.read(path, text)
        async with self._agents.opened(file) as targets:
            rows = await asyncio.gather(*(self._target_row(file, target, detail) for target in targets))
        return joined(rows) or "no functions or modules that can be traced"

    async def _target_row(self, file: AgentFile, target: Target, detail: bool) -> str:
        """Return the line of a target; "" for one that reaches no tensor operation."""
        outcome = told_outcome(await self._outcome(file, target), TOLD, file.text)
        if isinstance(outcome, Failure):
            return "" if outcome.kind == "nothing" else target_text(report_target(target, outcome, 0.0), None)
        costs: CostSummary | None = None
        if detail and outcome.info("graph") is None and outcome.stages:
            chosen = Chosen(file.file, target.name, file.text)
            stages = await stages_of(self._agents.engine, chosen, stages_of_summary(outcome), "")
            costs = None if isinstance(stages, Failure) else summary_of(outcome, stages)
        return target_text(report_target(target, outcome, outcome.seconds), costs)

    async def shapes(
        self,
        path: FilePath,
        line: Annotated[int, Field(ge=1, description="The line, from 1.")],
        column: Annotated[int | None, Field(ge=1, description="The column, from 1: that expression alone.")] = None,
        text: Text = None,
        detail: Detail = False,
    ) -> str:
        """Return the shape and dtype of each tensor expression of a line, such as `q @ k: f32[B=8, 16, 16]`, or of the
        innermost expression at a column. A dtype is f32, bf16, i64, b8, …; `~` marks guessed sizes. `detail` adds
        where the inputs come from; at a column also the cost, what autograd saves, and the ATen operations.
        """
        file = self._agents.read(path, text)
        if line > len(file.lines):
            raise TargetError(f"{path} has {len(file.lines)} lines")
        col = file.byte_column(line, column) if column is not None else _indent(file.lines[line - 1])
        place = Span(file.file, line, col, line, col)
        async with self._agents.opened(file) as targets:
            around = [t for t in targets if t.kind != "script" and t.span.line <= line <= t.span.end_line]
            for target in sorted(around, key=lambda t: t.span.end_line - t.span.line):
                outcome = await self._outcome(file, target)
                said = line_text(file, target, outcome, line, detail) if column is None else ""
                if said := said or await self._at(file, target, outcome, place, detail):
                    return said
                if isinstance(outcome, Failure):
                    return failure_text(outcome, Chosen(file.file, target.name, file.text))
        if not around:
            return f"line {line} is in no function or module that can be traced"
        return f"nothing is known of line {line}: no tensor was seen in its expressions"

    async def _at(self, file: AgentFile, target: Target, outcome: Outcome, place: Span, detail: bool) -> str:
        """Return the text on the expression at a position, or on the target whose name is there; "" without any."""
        stages: list[Stage] = []
        trace = known_trace(outcome)
        for name in ("forward", "inference", "backward", "graph", EXECUTED) if detail and trace is not None else ():
            stage = await self._agents.engine.stage(file.file, target.name, name)
            stages += [stage] if isinstance(stage, Stage) else []
        if target.name_span.contains(place):
            return hover_name(target, outcome, False, stages[0] if stages else None).markdown
        subject = HoverSubject(file.text, target, outcome, stages)
        hover = hover_expression(subject, place.line, place.col)
        return "" if hover is None else hover.markdown

    async def graph(
        self, path: FilePath, name: Name, stage: StageName = "", text: Text = None, full: Full = False
    ) -> str:
        """Return a graph of a function or nn.Module as Python text: the ATen operations that AOTAutograd gives
        torch.compile, each with its shape, dtype and source line. In forward, a mark is on each value that is saved
        for backward. Repeated layers are folded, and long graphs are cut.
        """
        file = self._agents.read(path, text)
        work = variant_work("", TORCHSCRIPT if stage == TORCHSCRIPT else "")
        async with self._agents.opened_target(file, name) as target:
            outcome = await self._outcome(file, target, work)
            trace = shown_trace(outcome, file.file)
            chosen = stage or (EXECUTED if isinstance(outcome, Failure) else default_stage(outcome))
            there = [info.name for info in trace.stages] if trace is not None else []
            if isinstance(outcome, Trace) and chosen not in there:
                raise TargetError(f"{name} has no stage {chosen}. {stages_like(chosen, there)}")
            why = failure_text(outcome, Chosen(file.file, name, file.text)) if isinstance(outcome, Failure) else ""
            if trace is None or chosen not in there:
                return why
            decoded = await self._agents.engine.stage(file.file, name, chosen, work)
        if isinstance(decoded, Failure):
            return failure_text(decoded, Chosen(file.file, name, file.text))
        line = partial(source_line, texts={file.file: file.text})
        return joined([why, cut(render_stage(trace, decoded, line, full, "both").text, full)])

    async def saved(self, path: FilePath, name: Name, text: Text = None, detail: Detail = False) -> str:
        """List what autograd saves for the backward of a function or nn.Module, the largest first: bytes, shape, the
        line that computes it, and the backward operations that read it. `detail` lists all, with inputs, parameters
        and buffers, which are not copied.
        """
        file = self._agents.read(path, text)
        async with self._agents.opened_target(file, name) as target:
            outcome = await self._outcome(file, target)
            if isinstance(outcome, Failure):
                return failure_text(outcome, Chosen(file.file, name, file.text))
            backward = await self._agents.engine.stage(file.file, name, "backward")
        return saved_text(file, target, outcome, backward if isinstance(backward, Stage) else None, detail)

    async def kernel(
        self, path: FilePath, name: Name, choices: KernelChoices = None, text: Text = None, full: Full = False
    ) -> str:
        """Generate Triton kernels with forward and backward for a function or nn.Module: one Python file that needs
        only torch and triton. Long files are cut; `full` gives the whole file. The command
        `fx-lsp kernel PATH::NAME -o FILE` writes and checks it.
        """
        file = self._agents.read(path, text)
        unknown = sorted(set(choices or {}) - set(allowed()))
        if unknown:
            raise TargetError(f"there is no option {unknown[0]}; there are: {', '.join(allowed())}")
        try:
            parts = read_choices(choices or {}).parts()
        except ValueError as error:
            raise TargetError(str(error)) from error
        chosen = Chosen(file.file, name, file.text)
        work = write_work({TRITON: "", **(parts or kept(chosen))})
        async with self._agents.opened_target(file, name) as target:
            outcome = await self._outcome(file, target, work)
            if isinstance(outcome, Failure):
                return failure_text(outcome, chosen)
            stage = await self._agents.engine.stage(file.file, name, TRITON, work)
        if isinstance(stage, Failure):
            return failure_text(stage, chosen)
        return joined([*said_of_code(stage, outcome.remarks, file.file, name), cut(stage.text, full, KERNEL_LINES)])

    async def bench(
        self,
        path: FilePath,
        name: Name,
        host: Annotated[str, Field(description="A name of the user's hosts.toml, or `local` for this machine.")],
        context: Context[None],
        detail: Detail = False,
    ) -> str:
        """Measure a function or nn.Module of a file on disk on a GPU host: generated kernels against eager PyTorch and
        torch.compile, in milliseconds, with a check of the results. It takes minutes. Only hosts that the user has
        confirmed before are used. The sizes are those of the `# fx:` comment.
        """

        async def on_progress(event: JobProgress) -> None:
            await context.report_progress(event.done, event.total or None, event.text)

        return await self._benchmarks.measure(self._agents.read(path, None), name, host, detail, on_progress)

    async def _outcome(self, file: AgentFile, target: Target, work: str = "") -> Outcome:
        return await self._agents.engine.outcome(file.file, target.name, work, final=True)


def _indent(line: str) -> int:
    """Return the column of the first character of a line that is no space."""
    return len(line) - len(line.lstrip())
