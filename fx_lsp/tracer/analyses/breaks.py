"""Run `torch.compile` on a target without `fullgraph`: the graphs, and the breaks between them."""

from __future__ import annotations

import linecache
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
from torch import fx, nn

import fx_lsp
from fx_lsp.messages.findings import FULL_GRAPH_RAISES, GRAPH_BREAK
from fx_lsp.model import CapturedGraph, Related, Remark, Span, Stage
from fx_lsp.tracer.capture.torch_graph import dynamo_inputs, link, named
from fx_lsp.tracer.compat import BreakReason, ends_at, exact_positions, page_of_break, watched_breaks
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.program.devices import left
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.program.reads import environment_unwatched
from fx_lsp.tracer.run.call import FlatInput, flat_function, flat_inputs
from fx_lsp.tracer.run.values.decisions import undecided
from fx_lsp.tracer.source.provenance import Chain, Sources
from fx_lsp.tracer.stages.ledger import Heading, Ledger, count_ops, page
from fx_lsp.tracer.stages.real_tensors import MAX_BYTES, RANDOM, real_like

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

MAX_FLOPS = 20_000_000_000
"""A target with more floating-point operations does not run on real tensors; nor one that moves more than
`MAX_BYTES`.
"""
BREAKS = "breaks"
"""The page of graphs and breaks in order, and the work that produces it."""
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(fx_lsp.__file__) + os.sep
_GRAPH = "compiled"
_INDENT, _WIDTH = 15, 110


@dataclass(frozen=True)
class GraphBreak:
    """Hold an expression that Dynamo does not trace; `chain` leads from it to the target, innermost first.

    It is `inside_torch` if PyTorch's own code, called by that expression, cannot be traced. That may be due to this
    machine, which has no GPU.
    """

    chain: Chain
    reason: BreakReason
    inside_torch: bool = False


@dataclass
class Compilation:
    """Hold Dynamo's result for one call, in order: names of stages, and breaks; `error` is the exception that ended it
    early. `ends` are the file and the line of the break that ends each stage, or None.
    """

    steps: list[str | GraphBreak] = field(default_factory=list["str | GraphBreak"])
    ends: dict[str, tuple[str, int] | None] = field(default_factory=dict[str, "tuple[str, int] | None"])
    error: BaseException | None = None

    def breaks(self) -> list[GraphBreak]:
        """Return the breaks in the order in which Dynamo reaches them, each once."""
        return [step for step in self.steps if isinstance(step, GraphBreak)]

    def around(self, item: GraphBreak) -> tuple[str | None, str | None]:
        """Return the stage that a break ends, if it ends one, and the next stage after it."""
        frame = item.reason.stack[-1]
        later = [step for step in self.steps[self.steps.index(item) :] if isinstance(step, str)]
        ended = bool(later) and self.ends[later[0]] == (frame.filename, frame.lineno)
        before, *after = later if ended else (None, *later)
        return before, next(iter(after), None)

    def add(self, graph_break: GraphBreak) -> None:
        """Add a break; one that Dynamo reaches again, from its enclosing function, is merged."""
        for index, step in enumerate(self.steps):
            if isinstance(step, GraphBreak) and _place(step) == _place(graph_break):
                skipped = tuple(dict.fromkeys((*step.reason.skipped, *graph_break.reason.skipped)))
                self.steps[index] = replace(step, reason=replace(step.reason, skipped=skipped))
                return
        self.steps.append(graph_break)


def breaks(traced: TracedCall) -> Ledger:
    """Return the graphs of `torch.compile` for a target, after a page with these and the breaks between them."""
    graphs, ledger = Ledger(), Ledger()
    compilation = compiled(traced, graphs)
    title = "torch.compile: the graphs that Dynamo captures, and the breaks between them"
    ledger.text(BREAKS, title, _page(compilation, {stage.name: stage for stage in graphs.stages}, traced.request.file))
    ledger.infos += graphs.infos
    ledger.stages += graphs.stages
    ledger.remarks += _remarks(compilation, graphs.stages, traced)
    return ledger


def graph_breaks(traced: TracedCall) -> list[Remark]:
    """Return remarks on the breaks of a target that its program compiles."""
    graphs = Ledger()
    return list(_remarks(compiled(traced, graphs), graphs.stages, traced))


def compiled(traced: TracedCall, ledger: Ledger) -> Compilation:
    """Run a target under Dynamo; the captured graphs are added to `ledger`, a stage for each."""
    result, sources = Compilation(), traced.sources

    def on_break(reason: BreakReason) -> None:
        chain, inside = _chain(reason, sources), _called_last(reason, sources)
        if chain and not any(file.startswith(_OURS) for file in inside):
            result.add(GraphBreak(chain, reason, any(file.startswith(_TORCH) for file in inside)))

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        names = traced.new_names()
        inputs = dynamo_inputs(graph.graph, examples, traced.call)
        link(graph.graph, sources)
        name = f"{_GRAPH}:{len(ledger.stages) + 1}"
        title = f"torch.compile: graph {len(ledger.stages) + 1} that Dynamo captures"
        ledger.begin(Heading(name, title), graph.graph, named(graph.graph, inputs, names))
        result.steps.append(name)
        result.ends[name] = ends_at(graph)
        return graph.forward

    torch._dynamo.reset()
    function = torch._dynamo.optimize(backend)(traced.call.function)
    run, inputs = flat_function(traced.call, nullcontext, [], function), _inputs(traced)
    try:
        with (
            left(traced.devices),
            forbid_effects(),
            undecided(),
            environment_unwatched(),
            exact_positions(),
            watched_breaks(on_break),
        ):
            run(*inputs)
    except (Exception, EffectBlocked) as error:
        result.error = error
    return result


def _inputs(traced: TracedCall) -> list[torch.Tensor]:
    """Return the inputs to run a target with: random real tensors if that is cheap, or else fake ones."""
    inputs, runs = flat_inputs(traced.call), runs_for_real(traced)
    return [real_input(item) if runs else item.tensor for item in inputs]


def runs_for_real(traced: TracedCall) -> bool:
    """Return True if it is cheap to run a target on real tensors."""
    nodes = [node for stage in traced.stages for node in stage.nodes]
    takes_little = sum(n.flops for n in nodes) <= MAX_FLOPS and sum(n.moved_bytes for n in nodes) <= MAX_BYTES
    return takes_little and all(item.tensor.device.type == "cpu" for item in flat_inputs(traced.call))


def real_input(item: FlatInput) -> torch.Tensor:
    """Return a random real tensor like an input."""
    tensor = real_like(item.tensor, RANDOM).requires_grad_(item.tensor.requires_grad)
    return nn.Parameter(tensor, tensor.requires_grad) if item.kind == "parameter" else tensor


def _remarks(compilation: Compilation, stages: Sequence[Stage], traced: TracedCall) -> Iterator[Remark]:
    """Yield remarks on the breaks of a target, in its own file if possible. Code compiled with `fullgraph=True` has an
    error, or a warning if inputs are guessed.
    """
    whole, is_guessed = traced.request.compiled == "whole", any(item.guessed for item in traced.inputs)
    template = FULL_GRAPH_RAISES if whole else GRAPH_BREAK
    for item in compilation.breaks():
        severity = "information" if not whole or item.inside_torch else "warning" if is_guessed else "error"
        number, url = page_of_break(item.reason.kind)
        span = next((span for span in item.chain if span.file == traced.request.file), item.chain[0])
        inside = [span for span in item.chain[: item.chain.index(span)]][:1]
        numbered = f" ({number})" if number else ""
        related = tuple(Related(span, "the expression that Dynamo cannot trace") for span in inside)
        remark = template.remark(span, severity=severity, related=related, page=url, number=numbered, reason=_why(item))
        before, after = (_captured(name, stages, traced.request.file) for name in compilation.around(item))
        yield replace(remark, before=before, after=after)


def _captured(name: str | None, stages: Sequence[Stage], file: str) -> CapturedGraph | None:
    """Return a graph by the name of its stage, with its lines in the target's file."""
    number = next((number for number, stage in enumerate(stages, start=1) if stage.name == name), 0)
    if not number:
        return None
    spans = [node.span for node in stages[number - 1].nodes if node.span is not None and node.span.file == file]
    ends = max(((span.end_line, span.end_col) for span in spans), default=(0, 0))
    first = min(spans, key=lambda span: (span.line, span.col), default=None)
    span = None if first is None else Span(file, first.line, first.col, *ends)
    return CapturedGraph(number, count_ops(stages[number - 1]), span)


def _place(item: GraphBreak) -> tuple[Span, str]:
    return item.chain[0], item.reason.kind


def _chain(reason: BreakReason, sources: Sources) -> Chain:
    """Return the user's expressions of a break, innermost first; those of libraries if there are none."""
    spans = [(sources.rank(frame.filename), _span(frame)) for frame in reversed(reason.stack)]
    own = tuple(span for rank, span in spans if rank == 0)
    return own or tuple(span for rank, span in spans if rank == 1)


def _called_last(reason: BreakReason, sources: Sources) -> list[str]:
    """Return the files of the frames that the user's innermost expression called, up to the break.

    Modes that see every torch call are skipped.
    """
    files = [frame.filename for frame in reason.stack if frame.name != "__torch_function__"]
    last = max((place for place, file in enumerate(files) if sources.rank(file) == 0), default=-1)
    return files[last + 1 :]


def _span(frame: Any) -> Span:
    """Return the expression that a frame runs, or its line without the indentation if its columns are unknown."""
    line, end_line = frame.lineno or 1, getattr(frame, "end_lineno", None)
    col, end_col = getattr(frame, "colno", None), getattr(frame, "end_colno", None)
    if end_line is None or col is None or end_col is None or (line, col) >= (end_line, end_col):
        text = linecache.getline(frame.filename, line).rstrip()
        return Span(frame.filename, line, len(text) - len(text.lstrip()), line, len(text.encode()))
    return Span(frame.filename, line, col, end_line, end_col)


def _why(item: GraphBreak) -> str:
    """Return in one line what Dynamo cannot do, the cost of that, and the remedy."""
    parts = [_first_paragraph(item.reason.explanation) or item.reason.kind]
    if item.reason.skipped:
        parts.append(f"Because of it, {_names(item.reason.skipped)} is not compiled")
    parts += (" ".join(hint.split()) for hint in item.reason.hints[:1])
    return ". ".join(part.removesuffix(".") for part in parts)


def _page(compilation: Compilation, graphs: Mapping[str, Stage], file: str) -> str:
    """Return the graphs and breaks of a target in order, with the details of each break."""
    items = compilation.breaks()
    rows: list[tuple[str, Iterable[str]]] = [("", [f"graphs: {len(graphs)}, breaks: {len(items)}"])]
    for step in compilation.steps:
        rows.append((step, _summary(graphs[step], file)) if isinstance(step, str) else ("break", _described(step)))
    if compilation.error is not None:
        rows.append(("not further", [f"{_place_of(compilation.error, file)}{sentence(compilation.error)}"]))
    elif not items:
        rows.append(("", ["torch.compile captures the whole target: fullgraph=True works."]))
    return page(line for label, texts in rows for line in laid_out(label, texts))


def _place_of(error: BaseException, file: str) -> str:
    """Return the line of `file` that raised an error, "" without one."""
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f"line {lines[-1]}: " if lines else ""


def laid_out(label: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield labelled paragraphs, each followed by an empty line; a URL is never broken."""
    width = _INDENT if label else 0
    paragraphs = (textwrap.wrap(t, _WIDTH - width, break_long_words=False, break_on_hyphens=False) for t in texts)
    for number, line in enumerate(line for lines in paragraphs for line in lines):
        yield f"{label if number == 0 else '':<{width}}{line}"
    yield ""


def _summary(graph: Stage, file: str) -> Iterator[str]:
    """Yield the operations of a graph, and their lines in the target's file."""
    yield f"ops: {count_ops(graph)}"
    lines = sorted({node.span.line for node in graph.nodes if node.span is not None and node.span.file == file})
    if lines:
        yield f"of {'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}"


def _described(item: GraphBreak) -> Iterator[str]:
    place, reason = item.chain[0], item.reason
    number, url = page_of_break(reason.kind)
    yield f"line {place.line}: {linecache.getline(place.file, place.line).strip()}"
    yield f"{reason.kind}{f' ({number})' if number else ''}"
    yield _first_paragraph(reason.explanation)
    yield from reason.hints
    for span in item.chain[1:]:
        yield f"called on line {span.line}"
    if item.reason.skipped:
        yield f"because of it, {_names(item.reason.skipped)} is not compiled"
    yield url


def _names(functions: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in functions)


def _first_paragraph(text: str) -> str:
    """Return the first paragraph of Dynamo's explanation, before the history of a value."""
    return " ".join(text.partition("\n\n")[0].split())
