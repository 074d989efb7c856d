"""Write hovers as Markdown. Pure: a hover shows the current state and never waits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fx_lsp.features.costs.memory import why_saved
from fx_lsp.features.costs.operations import bound_text, cost_of, cost_text
from fx_lsp.features.documents.document import body, render_call
from fx_lsp.features.source.expressions import CursorContext, bindings, expression_at
from fx_lsp.features.source.parameters import parameter_at
from fx_lsp.features.wording.dimensions import SizeNames, SizeStyle
from fx_lsp.features.wording.guesses import LEGEND, MARK, Guesses
from fx_lsp.features.wording.inputs import inputs_text, signature, variant_text, with_variant
from fx_lsp.features.wording.problems import all_notes
from fx_lsp.features.wording.text import count, is_tensor_spec, one_line, plain, sentence, span_text
from fx_lsp.features.wording.traces import (
    default_stage,
    executed,
    saved_text,
    shown_trace,
    summarize,
    until,
    why_no_backward,
)
from fx_lsp.features.wording.unreached import unreached_at, why_unreached
from fx_lsp.model import (
    CapturedGraph,
    Failure,
    InputSpec,
    Node,
    ObservedValue,
    Outcome,
    Remark,
    SavedKind,
    Span,
    Stage,
    Target,
    Trace,
)

GRAPH_LINES = 12
OPS_SHOWN = 12
READERS_SHOWN = 3
_COSTING = ("forward", "backward", "inference")
PIN, SAVED = "pin inputs", "why saved"
Link = Callable[[str, str], str]
"""Return a command URI for a target's name and a stage, or for `PIN` or `SAVED`."""


@dataclass(frozen=True)
class Hover:
    """Hold Markdown to show for `span`."""

    markdown: str
    span: Span


@dataclass(frozen=True)
class HoverStyle:
    """Describe how hovers are written. If `problems` are shown where they are, hovers do not repeat them.

    With `names`, sizes are shown by their names in the code, with their numbers. `link` is None without links. `chip`
    selects the roofline.
    """

    problems: bool = False
    names: bool = True
    link: Link | None = None
    chip: str = ""


@dataclass(frozen=True)
class HoverSubject:
    """Hold a target in a text, with its stages to list operations of, and those of its variants by name. `requested`
    are the remarks of pages that the user opened.
    """

    text: str
    target: Target
    outcome: Outcome
    stages: Sequence[Stage] = ()
    variants: Mapping[str, Sequence[Stage]] = field(default_factory=dict[str, Sequence[Stage]])
    requested: Sequence[Remark] = ()


PLAIN = HoverStyle()
"""Hovers without links, for a client that shows no problems."""


def hover_name(target: Target, outcome: Outcome, stale: bool, stage: Stage | None, style: HoverStyle = PLAIN) -> Hover:
    """Return the hover on a target's name: how it was called, its cost, the first lines of `stage`.

    If problems are shown and one is on this line, the hover adds only further details.
    """
    link, names = style.link, style.names
    if isinstance(outcome, Failure):
        here = style.problems and (outcome.span is None or outcome.span.file != target.file)
        ran = _ran(target, outcome, stage, link)
        return Hover(_join([_stale(stale), failure_text(outcome, said=here), *ran]), target.name_span)
    sections = [
        _stale(stale),
        f"```python\n{signature(target, outcome, names=SizeNames(outcome, _style(names)))}\n```",
        inputs_text(outcome.inputs, SizeNames(outcome, _style(names))),
        _legend(outcome.inputs),
        " · ".join(part for part in (*_costs(outcome), _saved(outcome)) if part),
        _links(target, outcome, link),
        "" if stage is None else _excerpt(outcome, stage),
        "\n\n".join(f"*{plain(note)}*" for note in all_notes(outcome)),
        f"torch {plain(outcome.torch)} · traced in {outcome.seconds * 1000:,.0f} ms",
    ]
    return Hover(_join(sections), target.name_span)


def hover_expression(subject: HoverSubject, line: int, col: int, style: HoverStyle = PLAIN) -> Hover | None:
    """Return the hover on the innermost known expression at a position: its value, its cost, the memory saved for
    backward, and its operations. None if nothing is known of the expressions at the position.
    """
    text, target, outcome, problems = subject.text, subject.target, subject.outcome, style.problems
    failure = outcome if isinstance(outcome, Failure) else None
    if failure is not None:
        span, adds = failure.span, not problems or bool(failure.inputs or failure.output.strip())
        if span is not None and adds and span.contains(Span(target.file, line, col, line, col)):
            return Hover(failure_text(failure, said=problems), span)
    trace = shown_trace(outcome)
    if trace is None:
        return None
    unreached = unreached_at(target, outcome, line, col)
    if unreached is not None:
        why = f"*{plain(why_unreached(unreached, outcome, text))}*"
        for variant in (v for v in trace.variants if v.name in unreached.variants):
            view = with_variant(trace, variant, (*trace.values, *variant.values))
            seen = replace(subject, outcome=view, stages=subject.variants.get(variant.name, ()))
            hover = _known_at(seen, view, line, col, style)
            note = f"*{plain(variant_text(variant))}* · {why}"
            return Hover(note, unreached.span) if hover is None else _with_note(hover, note)
        return Hover(why, unreached.span)
    hover = _known_at(subject, trace, line, col, style)
    for remark in _breaks_on(subject, trace, line):
        text = around_break(remark)
        hover = Hover(text, remark.span or target.span) if hover is None else _with_note(hover, text)
    if hover is None or failure is None:
        return hover
    return _with_note(hover, f"*partial: {until(failure, target.file)}*")


def _breaks_on(subject: HoverSubject, trace: Trace, line: int) -> Iterable[Remark]:
    """Return the graph breaks on a line, one for each expression."""
    by_place: dict[Span, Remark] = {}
    for remark in (*trace.remarks, *subject.requested):
        span = remark.span if remark.code == "graph-break" else None
        if span is not None and span.file == subject.target.file and span.line <= line <= span.end_line:
            by_place.setdefault(span, remark)
    return by_place.values()


def around_break(remark: Remark) -> str:
    """Return the graphs of `torch.compile` around a graph break: `graph 1 (lines 3–5, 4 ops) | runs in Python |
    graph 2 (line 7, 1 op)`.
    """
    before, after = ([] if graph is None else [_captured_text(graph)] for graph in (remark.before, remark.after))
    return " | ".join(["torch.compile", *before, "**this runs in Python**", *after]).replace(" | ", ": ", 1)


def _captured_text(graph: CapturedGraph) -> str:
    span = graph.span
    ops = count("op", graph.ops)
    if span is None:
        return f"graph {graph.number} ({ops})"
    lines = f"line {span.line}" if span.end_line == span.line else f"lines {span.line}–{span.end_line}"
    return f"graph {graph.number} ({lines}, {ops})"


def _with_note(hover: Hover, note: str) -> Hover:
    return replace(hover, markdown=_join([hover.markdown, note]))


def _known_at(subject: HoverSubject, trace: Trace, line: int, col: int, style: HoverStyle) -> Hover | None:
    """Return the hover on the innermost executed expression at a position, or None."""
    text, target, sizes = subject.text, subject.target, SizeNames(trace, _style(style.names))
    parameter = parameter_at(text, target, line, col)
    if parameter is not None:
        return _parameter(subject, trace, parameter, sizes, not style.problems)
    expression = expression_at(text, target.span, line, col)
    if expression is None:
        return None
    guesses = Guesses(trace.inputs)
    if expression.name is not None:
        value = _variable(trace, target, expression, line)
        if value is not None:
            notes = _fixed(subject, sizes.fixed(value.spec, value.span, value.name))
            return Hover(_join([_spec(expression.name, value, guesses, sizes), *notes]), expression.spans[0])
    groups = [(stage.name, _by_span(stage, set(expression.spans))) for stage in subject.stages]
    values = {v.span: v for v in trace.values if v.name in ("", "return")}
    for span in expression.spans:
        graphs = [(name, nodes[span]) for name, nodes in groups if span in nodes]
        value = values.get(span)
        shown = (None,) if style.problems else (None, "no-gradient")
        said = [f"*{plain(r.message)}*" for r in trace.remarks if r.span == span and r.code in shown]
        if graphs or said or value is not None:
            source = "" if value is None else _spec("", value, guesses, sizes)
            costs = [*_expression_costs(graphs, guesses, style.chip), *_kept(trace, graphs, guesses, subject.stages)]
            return Hover(_join([source, *costs, *said, *(_ops(name, nodes) for name, nodes in graphs)]), span)
    return None


def _fixed(subject: HoverSubject, sizes: Iterable[tuple[int, str, Span]]) -> Iterator[str]:
    """Yield for each size the line that names it, and the expression that fixes it."""
    text, target, lines = subject.text, subject.target, subject.text.split("\n")
    for size, name, by in sizes:
        line = next((b.line for b in bindings(text, target.span) if name and b.name == name), None)
        of = f"`{name}` of line {line}, " if line is not None else f"`{name}`, " if name else ""
        yield f"{size}: {of}fixed by `{span_text(lines, by, '')}` at line {by.line}"


def _expression_costs(graphs: Sequence[tuple[str, list[Node]]], guesses: Guesses, chip: str) -> Iterator[str]:
    """Yield the cost of an expression in forward and backward, and the bound of its largest product."""
    mark = MARK if guesses else ""
    texts = [(name, cost_text(cost_of(nodes))) for name, nodes in graphs if name in _COSTING]
    if costs := " · ".join(f"{name} {mark}{text}" for name, text in texts if text):
        yield costs
    if bound := bound_text((node for _, nodes in graphs[:1] for node in nodes), chip):
        yield mark + bound


def _kept(
    trace: Trace, graphs: Sequence[tuple[str, list[Node]]], guesses: Guesses, stages: Sequence[Stage]
) -> Iterator[str]:
    """Yield the values of an expression that are saved for backward, their readers there, and why they are saved."""
    forward = next((stage for stage in stages if stage.name == "forward"), None)
    results = {node.name for name, nodes in graphs if name == "forward" for node in nodes}
    kept = [saved for saved in trace.saved if saved.name in results and saved.kind == "activation"]
    for saved in kept[:OPS_SHOWN]:
        readers = ", ".join(f"`{reader}`" for reader in saved.used_by[:READERS_SHOWN])
        more = ", …" if len(saved.used_by) > READERS_SHOWN else ""
        yield f"saves `{saved.name}`, {guesses.marked_bytes(saved.bytes)}, for {readers}{more} in backward"
        if why := why_saved(saved, forward, trace.saved):
            yield f"*{plain(why)}*"


def failure_text(failure: Failure, said: bool = False) -> str:
    """Return a failure as Markdown: message, hint, the tried inputs, the tail of the output.

    If the message and the hint are already `said` elsewhere, they are left out.
    """
    tried = inputs_text(failure.inputs)
    output = failure.output.strip().splitlines()[-GRAPH_LINES:]
    message = f"**Not traced** ({failure.kind})" + ("" if said else f": {plain(sentence(failure.message))}")
    return _join(
        [
            message,
            "" if said else plain(sentence(failure.hint)),
            f"Tried with\n\n{tried}" if tried else "",
            _legend(failure.inputs),
            "Output\n\n```text\n" + "\n".join(output).replace("```", "'''") + "\n```" if output else "",
        ]
    )


def _ran(target: Target, failure: Failure, stage: Stage | None, link: Link | None) -> list[str]:
    """Return the part of a target that ran before it failed, with the first lines of its graph; empty without one."""
    partial, info = shown_trace(failure), executed(failure)
    if partial is None or info is None:
        return []
    shows = f"[show partial graph]({link(target.name, info.name)})" if link is not None else ""
    head = f"**Partial**: {count('op', info.ops)} ran, {until(failure, target.file)}"
    return [" · ".join(part for part in (head, shows) if part), "" if stage is None else _excerpt(partial, stage)]


def _parameter(
    subject: HoverSubject, trace: Trace, at: tuple[str, Span], names: SizeNames, problems: bool
) -> Hover | None:
    """Return the hover on a parameter: its value in the traced call, the source of that value, and its `problems`."""
    own, span = re.compile(re.escape(at[0]) + r"(\[.*)?"), at[1]
    items = [item for item in trace.inputs if own.fullmatch(item.name)]
    said = [plain(r.message) for r in trace.remarks if r.span == span and r.code] if problems else []
    said += [note for i in items for note in _fixed(subject, names.fixed(i.spec, None, i.name))]
    return Hover(_join([inputs_text(items, names).removeprefix("- "), _legend(items), *said]), span) if items else None


def _variable(trace: Trace, target: Target, expression: CursorContext, line: int) -> ObservedValue | None:
    """Return the value of the name at the cursor: bound here, or by the closest statement before it."""
    here = expression.spans[0]
    scope = expression.function or target.span
    bound = [v for v in trace.values if v.name == expression.name and scope.contains(v.span)]
    if expression.stored:
        return max((v for v in bound if v.span.contains(here)), key=_start, default=None)
    before = [v for v in bound if _start(v) <= (line, here.col) and not v.span.contains(here)]
    if before:
        return max(before, key=_start)
    spec = next((i.spec for i in trace.inputs if i.name == expression.name), None)
    if spec is not None and _is_entry(target, expression):
        return ObservedValue(here, expression.name or "", spec)
    return min((v for v in bound if not v.span.contains(here)), key=_start, default=None)


def _is_entry(target: Target, expression: CursorContext) -> bool:
    """Return True if the cursor is in the function that received the inputs, as far as spans show."""
    if target.kind == "module" or expression.function is None:
        return True
    return expression.function == target.span


def _start(value: ObservedValue) -> tuple[int, int]:
    return value.span.line, value.span.col


def _by_span(stage: Stage, wanted: set[Span]) -> dict[Span, list[Node]]:
    """Return the call nodes of a stage that came from one of the wanted spans. Nodes share their tuples of spans, and
    each tuple is checked once.
    """
    hits: dict[int, list[Span]] = {}
    nodes: dict[Span, list[Node]] = {}
    for node in stage.nodes:
        if node.op in ("placeholder", "output"):
            continue
        key = id(node.spans)
        spans = hits.get(key)
        if spans is None:
            spans = hits[key] = [s for s in dict.fromkeys(node.spans) if s in wanted]
        for span in spans:
            nodes.setdefault(span, []).append(node)
    return nodes


def _ops(stage: str, nodes: list[Node]) -> str:
    rows = [f"{render_call(n)}{f' -> {n.spec}' if n.spec else ''}" for n in nodes[:OPS_SHOWN]]
    rest = f"\n\nand {len(nodes) - OPS_SHOWN:,} more" if len(nodes) > OPS_SHOWN else ""
    listing = "\n".join(one_line(row, 160) for row in rows)
    return f"{stage} · {count('op', len(nodes))}\n\n```python\n{listing}\n```{rest}"


def _style(names: bool) -> SizeStyle:
    """Return the style of sizes in a hover, which always includes the numbers."""
    return "both" if names else "numbers"


def _spec(name: str, value: ObservedValue, guesses: Guesses, names: SizeNames) -> str:
    spec = guesses.marked(value.spec, names.of_value(value))
    if name:
        shown = f"{name}: {spec}" if is_tensor_spec(value.spec) else f"{name} = {one_line(spec)}"
    else:
        shown = one_line(spec)
    varies = "\n\nvaries: later iterations of the loop have another spec" if value.varies else ""
    legend = f"\n\n*{LEGEND}*" if guesses and shown.count(MARK) > name.count(MARK) else ""
    return f"```python\n{shown}\n```{varies}{legend}"


def _costs(trace: Trace) -> list[str]:
    if trace.info("graph") is not None:
        return [summarize(trace)]
    stages = [s for s in trace.stages if s.name in ("forward", "backward", "inference")]
    counts = [f"{count('op', s.ops)} {s.name}" for s in stages]
    if trace.ops("backward") is None:
        counts.append(why_no_backward(trace.refused, trace.context.grad))
    return counts


def _saved(trace: Trace) -> str:
    if trace.ops("backward") is None:
        return ""
    if not trace.saved:
        return "saves nothing for backward"
    guesses, sizes = Guesses(trace.inputs), Counter[SavedKind]()
    for saved in trace.saved:
        sizes[saved.kind] += saved.bytes
    words: dict[SavedKind, str] = {"input": "inputs", "parameter": "parameters", "buffer": "buffers"}
    others = [f"{guesses.marked_bytes(sizes[kind])} of {words[kind]}" for kind in words if kind in sizes]
    also = f" (and reads {', '.join(others)})" if others else ""
    return f"{saved_text(sizes['activation'], guesses)} for backward{also}"


def _excerpt(trace: Trace, stage: Stage) -> str:
    few = Stage(stage.name, stage.nodes[: 4 * GRAPH_LINES])
    lines = [line.text for line in body(trace, few, lambda span: None, full=True) if line.text]
    cut = len(lines) > GRAPH_LINES or len(few.nodes) < len(stage.nodes)
    shown = "\n".join(line[:160] for line in lines[:GRAPH_LINES])
    return f"```python\n{shown}\n{'    …' if cut else ''}".rstrip() + "\n```"


def _links(target: Target, trace: Trace, link: Link | None) -> str:
    if link is None:
        return ""
    names = dict.fromkeys([default_stage(trace), *(s.name for s in trace.stages)])
    shown = {name: name if trace.info("graph") is not None else f"{name} graph" for name in names}
    graphs = [f"[show {title}]({link(target.name, name)})" for name, title in shown.items()]
    others = [] if trace.info("graph") is not None else [PIN, SAVED] if trace.saved else [PIN]
    return " · ".join([*graphs, *(f"[{other}]({link(target.name, other)})" for other in others)])


def _stale(stale: bool) -> str:
    return "*stale: from the last version that parsed*" if stale else ""


def _legend(inputs: Iterable[InputSpec]) -> str:
    """Return the legend of `~` if an input has it."""
    return f"*{LEGEND}*" if any(item.guessed for item in inputs) else ""


def _join(sections: Iterable[str]) -> str:
    return "\n\n".join(s for s in sections if s)
