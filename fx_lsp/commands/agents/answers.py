"""Write the answers to coding agents as short texts. Lines and columns in them count from 1, columns in characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fx_lsp.commands.agents.files import AgentFile
from fx_lsp.commands.check.listing import target_cost
from fx_lsp.commands.check.results import CheckResult, Fingerprints, results_of
from fx_lsp.commands.check.survey import FileReport, TargetReport
from fx_lsp.features.costs.memory import why_saved
from fx_lsp.features.costs.operations import format_flops
from fx_lsp.features.costs.summary import CostSummary
from fx_lsp.features.hints import readers_of
from fx_lsp.features.source.expressions import operation_name
from fx_lsp.features.wording.dimensions import SizeNames
from fx_lsp.features.wording.guesses import LEGEND, MARK, Guesses
from fx_lsp.features.wording.inputs import inputs_text
from fx_lsp.features.wording.problems import describe
from fx_lsp.features.wording.text import count, format_bytes, one_line, span_text
from fx_lsp.features.wording.traces import place_text, shown_trace
from fx_lsp.model import Failure, ObservedValue, Outcome, Saved, Stage, Target, Trace

LINES = 80
"""The most lines of a graph, unless all are requested."""
SAVED = 12
"""The most saved values that are listed, unless all are requested."""
_MISTAKE = 400
_REASON = 160


def cut(text: str, full: bool, limit: int = LINES) -> str:
    """Return the first lines of a text, with a note on the others; all lines with `full`."""
    lines = text.rstrip("\n").split("\n")
    if full or len(lines) <= limit:
        return "\n".join(lines)
    return "\n".join([*lines[:limit], f"… {count('more line', len(lines) - limit)}: pass full=true for all"])


def check_text(file: AgentFile, report: FileReport, detail: bool) -> str:
    """Return the mistakes of a file, the targets that were not traced, and with `detail` the inputs of the others."""
    fingerprints = Fingerprints(Path(report.file).parent)
    fingerprints.add(report)
    results = results_of([report], fingerprints)
    mistakes = [result for result in results if result.severity in ("error", "warning")]
    others = [result for result in results if result not in mistakes]
    checked = count("function or module", len(report.targets), "functions and modules")
    head = f"{count('mistake', len(mistakes))} in {checked}" if mistakes else f"no mistakes in {checked}"
    if report.failure is not None:
        head = "the file was not checked"
    elif others:
        head += f"; {len(others)} not traced"
    lines = [head, *(line for mistake in mistakes for line in _mistake(file, mistake, detail))]
    lines += [
        f"not traced: {_place(file, other)} {other.code}: {_said(other.message, _REASON, detail)}" for other in others
    ]
    if detail:
        lines += [line for target in report.targets if target.failure is None for line in _inputs(target)]
    return "\n".join(lines)


def _mistake(file: AgentFile, mistake: CheckResult, detail: bool) -> Iterator[str]:
    """Yield the line of a mistake, and the other places that belong to it: in other files, or with `detail` in all."""
    yield f"{_place(file, mistake)} {mistake.severity} [{mistake.code}] {_said(mistake.message, _MISTAKE, detail)}"
    for other in mistake.related:
        if detail or other.span.file != file.file:
            yield f"  {other.span.file}:{other.span.line}: {_said(other.message, _REASON, detail)}"


def _place(file: AgentFile, result: CheckResult) -> str:
    return f"{result.span.line}:{file.column(result.span.line, result.span.col)}"


def _said(message: str, limit: int, detail: bool) -> str:
    return message if detail else one_line(message, limit)


def _inputs(report: TargetReport) -> Iterator[str]:
    yield f"traced: {report.target.name}"
    yield from (f"  {line}" for line in inputs_text(report.outcome.inputs).splitlines())


def target_text(report: TargetReport, costs: CostSummary | None) -> str:
    """Return the line of a target: its kind and place, and its cost, or why it was not traced. `costs` add detail."""
    target = report.target
    head = f"{target.name} ({target.kind}, line {target.span.line}): "
    if report.failure is not None:
        return f"{head}not traced: {one_line(describe(report.failure), _REASON)}"
    parts = [target_cost(report)]
    if costs is not None:
        flops = costs.totals.flops
        parts += [f"{format_flops(flops.forward)} forward, {format_flops(flops.backward)} backward"]
        parts += [f"{costs.parameters:,} parameters"] if costs.parameters else []
        parts += [f"peak {format_bytes(costs.peak.bytes)} of activations"] if costs.peak is not None else []
    return head + " · ".join(parts)


def line_text(file: AgentFile, target: Target, outcome: Outcome, line: int, detail: bool) -> str:
    """Return the values of the expressions and variables of a line; "" if none was observed there."""
    trace = shown_trace(outcome, file.file)
    if trace is None:
        return ""
    values = [value for value in trace.values if target.span.contains(value.span)]
    on_line = [value for value in values if value.span.line == line]
    on_line = on_line or [value for value in values if value.span.line <= line <= value.span.end_line]
    if not on_line:
        return ""
    guesses, sizes = Guesses(trace.inputs), SizeNames(trace, "both")
    rows: dict[str, None] = {}
    for value in sorted(on_line, key=lambda value: (value.span.line, value.span.col, -value.span.end_col)):
        varies = "  (varies in later iterations)" if value.varies else ""
        rows[f"{_expression(file, value)}: {guesses.marked(value.spec, sizes.of_value(value))}{varies}"] = None
    legend = [LEGEND] if any(MARK in row for row in rows) else []
    failed = [f"partial: {one_line(describe(outcome), _MISTAKE)}"] if isinstance(outcome, Failure) else []
    inputs = ["inputs:", inputs_text(trace.inputs, sizes)] if detail and trace.inputs else []
    return "\n".join([f"in {target.name}:", *rows, *legend, *failed, *inputs])


def _expression(file: AgentFile, value: ObservedValue) -> str:
    """Return the text of an expression in one line, or the name of a variable or `return`."""
    return value.name or one_line(span_text(file.lines, value.span))


def saved_text(file: AgentFile, target: Target, trace: Trace, backward: Stage | None, detail: bool) -> str:
    """Return the values that autograd saves for the backward of a target, the largest first: bytes, spec, line, and the
    operations that read each. Only activations, unless with `detail`; the others are not copies.
    """
    if trace.ops("backward") is None:
        return f"{target.name} saves nothing for backward: it has no backward graph"
    guesses = Guesses(trace.inputs)
    ranked = sorted(trace.saved, key=lambda saved: (saved.kind != "activation", -saved.bytes))
    listed = [saved for saved in ranked if detail or saved.kind == "activation"]
    shown = listed if detail else listed[:SAVED]
    lines = [f"{target.name} saves {guesses.marked_bytes(trace.activation_bytes)} of activations for backward"]
    lines += [_saved_row(file, target, saved, guesses, backward) for saved in shown]
    if len(listed) > len(shown):
        rest = guesses.marked_bytes(sum(saved.bytes for saved in listed[len(shown) :]))
        lines.append(f"… {len(listed) - len(shown)} more, {rest}: pass detail=true for all")
    others = sum(saved.bytes for saved in trace.saved if saved.kind != "activation")
    if others and not detail:
        lines.append(
            f"backward also reads {guesses.marked_bytes(others)} of inputs, parameters and buffers: not copies"
        )
    return "\n".join([*lines, *([LEGEND] if guesses else [])])


def _saved_row(file: AgentFile, target: Target, saved: Saved, guesses: Guesses, backward: Stage | None) -> str:
    span = saved.span
    here = span is not None and span.file == file.file and span.line <= len(file.lines)
    code = f" `{one_line(file.lines[span.line - 1])}`" if span is not None and here else ""
    place = f"  {place_text(file.file, span)}{code}" if span is not None else ""
    kind = "" if saved.kind == "activation" else f" ({saved.kind})"
    nodes = {node.name: node for node in (backward.nodes if backward is not None else ())}
    readers: dict[str, None] = {}
    for node in (reader for name in saved.used_by for reader in readers_of(nodes, name)):
        source = operation_name(file.text, target.span, node.span) if node.span is not None else ""
        readers[f"{node.target} of `{source}`" if source else node.target] = None
    why = f", read in backward by {_few([*readers])}" if readers else ""
    reason = f"; {text}" if (text := why_saved(saved, None, ())) else ""
    return f"{guesses.marked_bytes(saved.bytes)}  {saved.name}: {saved.spec}{kind}{place}{why}{reason}"


def _few(words: Sequence[str], limit: int = 3) -> str:
    return ", ".join([*words[:limit], *([f"{len(words) - limit} more"] if len(words) > limit else [])])


def joined(parts: Iterable[str]) -> str:
    """Return texts one below the other, without empty ones."""
    return "\n".join(part for part in parts if part)
