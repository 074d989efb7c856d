"""Write inlay hints of a traced function: specs, numbers, dimensions, memory saved for backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from fx_lsp.features.costs.line_costs import line_costs
from fx_lsp.features.costs.memory import shares_storage
from fx_lsp.features.costs.summary import ESTIMATES, costs_text
from fx_lsp.features.source.expressions import (
    Binding,
    DimensionArgument,
    attribute_reads,
    bindings,
    chained_calls,
    dimension_arguments,
    operation_name,
    returns,
)
from fx_lsp.features.wording.dimensions import SizeNames, SizeStyle
from fx_lsp.features.wording.guesses import LEGEND, MARK, Guesses
from fx_lsp.features.wording.inputs import with_variant
from fx_lsp.features.wording.text import format_bytes, is_tensor_spec
from fx_lsp.features.wording.traces import shown_trace, until
from fx_lsp.measured import BenchmarkRun
from fx_lsp.model import Failure, Node, ObservedValue, Outcome, Saved, Span, Stage, Target, Trace

_ALIASES = frozenset({"aten.detach.default", "aten.alias.default"})
LEAST_SHARE = 0.05
"""The least share of a target's saved memory for which a value has a hint."""
HintKind = Literal[
    "assignments",
    "returns",
    "parameters",
    "chainedCalls",
    "loopVariables",
    "ints",
    "savedForBackward",
    "namedDimensions",
    "costs",
]
KINDS: tuple[HintKind, ...] = get_args(HintKind)
SHOWN_KINDS = frozenset(KINDS) - {"costs"}
"""The kinds that are shown by default."""
_BARS = " ▁▂▃▄▅▆▇█"
_KIND_OF: dict[str, HintKind] = {"assignment": "assignments", "loop": "loopVariables", "parameter": "parameters"}


@dataclass(frozen=True)
class HintStyle:
    """Select the kinds of hints, and the style of their specs."""

    sizes: SizeStyle = "names"
    kinds: frozenset[HintKind] = SHOWN_KINDS
    strides: bool = False


@dataclass(frozen=True)
class Hint:
    """Hold a `label` between two characters; `padded` asks for a space before it. A hint that `ends_line` is about the
    whole line.
    """

    line: int
    col: int
    label: str
    tooltip: str
    padded: bool = False
    ends_line: bool = False


@dataclass(frozen=True)
class TracedTarget:
    """Hold a target with its outcome. `stage` (forward, inference, or the partial graph of a failure) and `backward`
    are present only if decoded already. `measured` is the last benchmark of its current code.
    """

    target: Target
    outcome: Outcome | None
    stage: Stage | None = None
    backward: Stage | None = None
    measured: BenchmarkRun | None = None


@dataclass(frozen=True)
class _View:
    """Hold a trace of a target in the form for hints; `values` are those inside of the target."""

    text: str
    target: Target
    trace: Trace
    stage: Stage | None
    backward: Stage | None
    names: SizeNames
    guesses: Guesses
    values: tuple[ObservedValue, ...]
    measured: BenchmarkRun | None = None

    def shown(self, value: ObservedValue) -> str:
        """Return a value in the form of a hint."""
        spec = self.guesses.marked(value.spec, self.names.of_value(value))
        return spec + (" (varies)" if value.varies else "")


def hints(
    text: str, traced: Iterable[TracedTarget], first_line: int, last_line: int, style: HintStyle | None = None
) -> tuple[Hint, ...]:
    """Return the hints of a file on the lines `first_line` to `last_line`, in order.

    The lines of a nested definition have the hints of its own trace.
    """
    style = style or HintStyle()
    shown: dict[tuple[int, int, bool], Hint] = {}
    for item in sorted(traced, key=lambda t: t.target.span.end_line - t.target.span.line):
        span = item.target.span
        trace = shown_trace(item.outcome)
        if trace is None or span.end_line < first_line or span.line > last_line:
            continue
        partial = until(item.outcome, item.target.file) if isinstance(item.outcome, Failure) else ""
        views = [(trace, item.stage, item.backward, f"partial: {partial}" if partial else "")]
        for variant in trace.variants:
            varied = replace(with_variant(trace, variant, values=variant.values), saved=())
            views.append((varied, None, None, f"with {variant.name}"))
        for seen, stage, backward, note in views:
            values = tuple(value for value in seen.values if span.contains(value.span))
            names, guesses = SizeNames(seen, style.sizes, style.strides), Guesses(seen.inputs)
            measured = item.measured if seen is trace else None
            view = _View(text, item.target, seen, stage, backward, names, guesses, values, measured)
            for hint in _hints(view, style.kinds):
                if first_line <= hint.line <= last_line:
                    legend = LEGEND if guesses and MARK in hint.label else ""
                    tooltip = " · ".join(part for part in (hint.tooltip, note, legend) if part)
                    shown.setdefault((hint.line, hint.col, hint.ends_line), replace(hint, tooltip=tooltip))
    return tuple(shown[place] for place in sorted(shown))


def _hints(view: _View, kinds: frozenset[HintKind]) -> Iterator[Hint]:
    """Yield the hints of a target. If two are at one place, the first is shown."""
    if not view.values:
        return
    ops_by_span = _made_by(view.stage)
    yield from _of_variables(view, kinds, ops_by_span)
    if "returns" in kinds:
        yield from _of_returns(view, ops_by_span)
    if "chainedCalls" in kinds:
        yield from _of_chained_calls(view)
    if "ints" in kinds:
        yield from _of_attributes(view)
    if "namedDimensions" in kinds:
        yield from _of_dimensions(view)
    if kinds & {"savedForBackward", "costs"}:
        yield from _of_lines(view, kinds)


def _of_variables(
    view: _View, kinds: frozenset[HintKind], ops_by_span: dict[Span, list[tuple[int, Node]]]
) -> Iterator[Hint]:
    """Yield the values of variables: tensors of each kind of binding, and integers that the text does not show."""
    bound: dict[tuple[str, int, int], list[Binding]] = {}
    for binding in bindings(view.text, view.target.span):
        bound.setdefault((binding.name, binding.line, binding.col), []).append(binding)
    for value in view.values:
        for binding in bound.get((value.name, value.span.line, value.span.col), ()):
            if is_tensor_spec(value.spec):
                if _KIND_OF[binding.kind] in kinds:
                    shown = view.shown(value)
                    label = shown if binding.annotated else f": {shown}"
                    tooltip = _tooltip(view, value, ops_by_span)
                    yield Hint(binding.end_line, binding.end_col, label, tooltip, padded=binding.annotated)
            elif "ints" in kinds and _is_news(value, binding):
                yield Hint(binding.end_line, binding.end_col, f"={view.shown(value)}", "")


def _is_news(value: ObservedValue, binding: Binding) -> bool:
    """Return True for an integer that the text does not show, unless it is a loop counter."""
    return _is_int(value) and not value.varies and binding.kind != "loop" and binding.plain != value.spec


def _of_returns(view: _View, ops_by_span: dict[Span, list[tuple[int, Node]]]) -> Iterator[Hint]:
    ends: dict[tuple[int, int], Span] = {}
    for statement, expression in returns(view.text, view.target.span):
        ends[statement.line, statement.col] = ends[expression.line, expression.col] = expression
    for value in view.values:
        expression = ends.get((value.span.line, value.span.col)) if value.name == "return" else None
        if expression is not None and is_tensor_spec(value.spec):
            tooltip = _tooltip(view, value, ops_by_span)
            yield Hint(expression.end_line, expression.end_col, f"-> {view.shown(value)}", tooltip, padded=True)


def _of_chained_calls(view: _View) -> Iterator[Hint]:
    """Yield the results of calls in chains with one call on each line."""
    expressions = _expressions(view)
    for end in chained_calls(view.text, view.target.span):
        value = expressions.get(end)
        if value is not None:
            yield Hint(*end, view.shown(value), "", padded=True)


def _of_attributes(view: _View) -> Iterator[Hint]:
    """Yield the integers of attributes, at their first read in each function."""
    reads = attribute_reads(view.text, view.target.span)
    guesses = Guesses(item for item in view.trace.inputs if item.name.startswith("init."))
    for value in view.values:
        end = value.span.end_line, value.span.end_col
        if not value.name and end in reads and _is_int(value) and not value.varies:
            yield Hint(*end, f"={guesses.marked(value.spec)}", "")


def _of_dimensions(view: _View) -> Iterator[Hint]:
    """Yield the names of dimensions that calls refer to by number."""
    expressions = _expressions(view)
    for argument in dimension_arguments(view.text, view.target.span):
        value = _variable(view, argument) if argument.name else expressions.get(argument.value_end)
        name = view.names.dimension(value, argument.dim) if value is not None else ""
        if name:
            yield Hint(argument.end_line, argument.end_col, f": {name}", "")


def _variable(view: _View, argument: DimensionArgument) -> ObservedValue | None:
    """Return the value of the variable that an argument refers to: the last binding before it; None without one."""
    place = argument.end_line, argument.end_col
    bound = [v for v in view.values if v.name == argument.name and (v.span.end_line, v.span.end_col) < place]
    return max(bound, key=lambda v: (v.span.line, v.span.col), default=None)


def _of_lines(view: _View, kinds: frozenset[HintKind]) -> Iterator[Hint]:
    """Yield at the end of a line what it costs, and what it saves for backward."""
    lines = view.text.split("\n")
    parts: dict[int, list[tuple[str, str]]] = {}
    of_costs = _costs_by_line(view) if "costs" in kinds else ()
    for line, label, tooltip in [*of_costs, *(_saved_by_line(view) if "savedForBackward" in kinds else ())]:
        if line <= len(lines):
            parts.setdefault(line, []).append((label, tooltip))
    for line, told in parts.items():
        label, tooltip = (" · ".join(filter(None, texts)) for texts in zip(*told, strict=True))
        yield Hint(line, len(lines[line - 1].rstrip().encode()), label, tooltip, padded=True, ends_line=True)


def _costs_by_line(view: _View) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a target with their share of its cost as a bar, their costs, and the memory in use there; with
    their measured times, if there are some.
    """
    stages = [stage for stage in (view.stage, view.backward) if stage is not None]
    costs = line_costs(view.target, view.trace, stages, view.measured)
    if costs is None:
        return
    for cost in costs.lines:
        texts, peak = costs_text(cost.totals), cost.totals.peak_bytes
        if costs.measure != "time":
            tooltip = f"{cost.share:.1%} of {ESTIMATES[costs.measure]}"
            tooltip += f", {format_bytes(peak)} of activations in use" if peak else ""
        elif cost.times is not None:
            texts = [f"{cost.times.sum:,.0f} µs on {costs.where}", *texts]
            tooltip = f"forward {cost.times.forward:,.1f} µs, backward {cost.times.backward:,.1f} µs"
        else:
            continue
        if label := " · ".join(filter(None, [_bar(cost.share), *texts])):
            yield cost.end_line, label, tooltip


def _bar(share: float) -> str:
    return f"{_BARS[round(share * (len(_BARS) - 1))]} {share:.0%}" if round(100 * share) else ""


def _saved_by_line(view: _View) -> Iterator[tuple[int, str, str]]:
    """Yield the lines that save memory for backward, with the operations that read it there."""
    nodes = {node.name: node for node in (view.backward.nodes if view.backward is not None else ())}
    by_line: dict[int, list[Saved]] = {}
    for saved in view.trace.saved:
        if saved.kind == "activation" and saved.span is not None and view.target.span.contains(saved.span):
            by_line.setdefault(saved.span.end_line, []).append(saved)
    for line, kept in by_line.items():
        size = sum(saved.bytes for saved in kept)
        if size < LEAST_SHARE * view.trace.activation_bytes:
            continue
        readers = [reader for saved in kept for name in saved.used_by for reader in readers_of(nodes, name)]
        used = [operation_name(view.text, view.target.span, node.span) for node in readers if node.span is not None]
        of = ", ".join(dict.fromkeys(filter(None, used)))
        label = f"saves {view.guesses.marked_bytes(size)} for backward" + (f" of {of}" if of else "")
        yield line, label, " · ".join(f"{saved.name}: {saved.spec}" for saved in kept)


def readers_of(nodes: Mapping[str, Node], name: str) -> Iterator[Node]:
    """Yield the operation `name` of backward, or its readers if it is only a view of saved memory."""
    node = nodes.get(name)
    if node is not None and shares_storage(node):
        for user in node.users:
            yield from readers_of(nodes, user)
    elif node is not None:
        yield node


def _expressions(view: _View) -> dict[tuple[int, int], ObservedValue]:
    """Return the tensors of expressions by the end of the expression; of several, the expression that begins last."""
    expressions = [v for v in view.values if not v.name and is_tensor_spec(v.spec)]
    expressions.sort(key=lambda v: (v.span.line, v.span.col))
    return {(v.span.end_line, v.span.end_col): v for v in expressions}


def _tooltip(view: _View, value: ObservedValue, ops_by_span: dict[Span, list[tuple[int, Node]]]) -> str:
    renamed = value.spec if view.names.of_value(value) != value.spec else ""
    return " · ".join(filter(None, (renamed, _origin(value, ops_by_span))))


def _is_int(value: ObservedValue) -> bool:
    return value.spec.removeprefix("-").isdigit()


def _made_by(stage: Stage | None) -> dict[Span, list[tuple[int, Node]]]:
    """Return for each expression its operations, with their indices in the graph. Aliases of their input are
    left out.
    """
    chains: dict[int, list[tuple[int, Node]]] = {}
    for place, node in enumerate(() if stage is None else stage.nodes):
        if node.spans and node.op.startswith("call_") and node.target not in _ALIASES:
            chains.setdefault(id(node.spans), []).append((place, node))
    ops_by_span: dict[Span, list[tuple[int, Node]]] = {}
    for nodes in chains.values():
        ops_by_span.setdefault(nodes[0][1].spans[0], []).extend(nodes)
    return ops_by_span


def _origin(value: ObservedValue, ops_by_span: dict[Span, list[tuple[int, Node]]]) -> str:
    """Return the last operation inside the statement whose result has the spec of the value; "" without one."""
    inside = [op for span, nodes in ops_by_span.items() if value.span.contains(span) for op in nodes]
    alike = [op for op in inside if op[1].spec == value.spec]
    return f"from {max(alike, key=lambda op: op[0])[1].target}" if alike else ""
