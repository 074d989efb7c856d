"""Specs written behind the names that a traced function binds, and behind what it returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fx_lsp.features.dimensions import SizeNames, SizeStyle
from fx_lsp.features.guesses import Guesses
from fx_lsp.features.partial import shown_trace, until
from fx_lsp.features.source import Binding, bindings, returns
from fx_lsp.features.text import is_tensor_spec
from fx_lsp.features.variants import with_variant
from fx_lsp.model import Failure, Node, ObservedValue, Outcome, Span, Stage, Target, Trace

_ALIASES = frozenset({"aten.detach.default", "aten.alias.default"})


@dataclass(frozen=True)
class Hint:
    """`label` shown at a place between two characters; `padded` asks for a space before it."""

    line: int
    col: int
    label: str
    tooltip: str
    padded: bool = False


@dataclass(frozen=True)
class TracedTarget:
    """A target with what is known of it; `stage` (forward, inference, or what ran of one that fails) only where it is
    decoded already."""

    target: Target
    outcome: Outcome | None
    stage: Stage | None = None


def hints(
    text: str, traced: Iterable[TracedTarget], first_line: int, last_line: int, sizes: SizeStyle = "names"
) -> tuple[Hint, ...]:
    """Return the hints of a file on the lines `first_line` to `last_line`, in order.

    Where a definition is nested in another one, its own trace speaks for its lines.
    """
    shown: dict[tuple[int, int], Hint] = {}
    for item in sorted(traced, key=lambda t: _lines(t.target.span)):
        span = item.target.span
        trace = shown_trace(item.outcome)
        if trace is None or span.end_line < first_line or span.line > last_line:
            continue
        partial = until(item.outcome, item.target.file) if isinstance(item.outcome, Failure) else ""
        views = [(trace, item.stage, f"partial: {partial}" if partial else "")]
        views += [(with_variant(trace, v, values=v.values), None, f"with {v.name}") for v in trace.variants]
        for view, stage, note in views:
            names = SizeNames(view, sizes)
            for hint in _target_hints(text, item.target, view, stage, names, first_line, last_line):
                tooltip = " · ".join(part for part in (hint.tooltip, note) if part)
                shown.setdefault((hint.line, hint.col), replace(hint, tooltip=tooltip))
    return tuple(shown[place] for place in sorted(shown))


def _target_hints(
    text: str, target: Target, trace: Trace, stage: Stage | None, names: SizeNames, first_line: int, last_line: int
) -> Iterable[Hint]:
    values = [
        v
        for v in trace.values
        if v.name
        and is_tensor_spec(v.spec)
        and first_line <= v.span.end_line
        and v.span.line <= last_line
        and target.span.contains(v.span)
    ]
    if not values:
        return
    bound: dict[tuple[str, int, int], list[Binding]] = {}
    for binding in bindings(text, target.span):
        bound.setdefault((binding.name, binding.line, binding.col), []).append(binding)
    ends: dict[tuple[int, int], Span] = {}
    for statement, expression in returns(text, target.span):
        ends[statement.line, statement.col] = ends[expression.line, expression.col] = expression
    ops_by_span, guesses = _made_by(stage), Guesses(trace.inputs)
    for value in values:
        start = value.span.line, value.span.col
        shown = names.of_value(value)
        spec = guesses.marked(value.spec, shown) + (" (varies)" if value.varies else "")
        tooltip = " · ".join(filter(None, (value.spec if shown != value.spec else "", _origin(value, ops_by_span))))
        if value.name == "return":
            expression = ends.get(start)
            if expression is not None:
                yield Hint(expression.end_line, expression.end_col, f"-> {spec}", tooltip, padded=True)
            continue
        for binding in bound.get((value.name, *start), ()):
            label = spec if binding.annotated else f": {spec}"
            yield Hint(binding.end_line, binding.end_col, label, tooltip, padded=binding.annotated)


def _made_by(stage: Stage | None) -> dict[Span, list[tuple[int, Node]]]:
    """Return for each expression its ops, with their places in the graph. Aliases of their input are left out."""
    chains: dict[int, list[tuple[int, Node]]] = {}
    for place, node in enumerate(() if stage is None else stage.nodes):
        if node.spans and node.op.startswith("call_") and node.target not in _ALIASES:
            chains.setdefault(id(node.spans), []).append((place, node))
    ops_by_span: dict[Span, list[tuple[int, Node]]] = {}
    for nodes in chains.values():
        ops_by_span.setdefault(nodes[0][1].spans[0], []).extend(nodes)
    return ops_by_span


def _origin(value: ObservedValue, ops_by_span: dict[Span, list[tuple[int, Node]]]) -> str:
    """Return the last op inside the statement whose result looks like the value."""
    inside = [op for span, nodes in ops_by_span.items() if value.span.contains(span) for op in nodes]
    alike = [op for op in inside if op[1].spec == value.spec]
    return f"from {max(alike, key=lambda op: op[0])[1].target}" if alike else ""


def _lines(span: Span) -> int:
    return span.end_line - span.line
