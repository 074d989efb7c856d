"""Move traced spans from old line numbers to the current lines of the same text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from fx_lsp.messages.places import line_of, renamed
from fx_lsp.model import (
    CapturedGraph,
    Failure,
    NamedSizes,
    Node,
    ObservedValue,
    Outcome,
    Related,
    Remark,
    Saved,
    Span,
    Stage,
    TargetVariant,
    Trace,
    Unreached,
)
from fx_lsp.syntax import edited_lines
from fx_lsp.tracing.source.parsing import split_lines

T = TypeVar("T")


def relocate_span(span: Span, file: str, mapping: Mapping[int, int]) -> Span | None:
    """Return `span` at its new lines, or None if one of them was removed. Spans of other files stay."""
    if span.file != file:
        return span
    line, end_line = mapping.get(span.line), mapping.get(span.end_line)
    if line is None or end_line is None:
        return None
    if line == span.line and end_line == span.end_line:
        return span
    return Span(file, line, span.col, end_line, span.end_col)


def relocate_outcome(outcome: Outcome, file: str, mapping: Mapping[int, int]) -> Outcome:
    """Return `outcome` with the spans of `file` moved from old to new lines (`mapping`).

    Values, names of sizes, remarks and unreached code on removed lines are dropped.
    """
    if isinstance(outcome, Failure):
        span = outcome.span and relocate_span(outcome.span, file, mapping)
        partial = outcome.partial and _trace(outcome.partial, file, mapping)
        moved = [replace(one, span=relocate_span(one.span, file, mapping) or one.span) for one in outcome.mentions]
        return replace(renamed(outcome, moved, line_of), span=span, partial=partial)
    return _trace(outcome, file, mapping)


def _trace(outcome: Trace, file: str, mapping: Mapping[int, int]) -> Trace:
    return replace(
        outcome,
        saved=_saved(outcome, file, mapping),
        values=_values(outcome, file, mapping),
        remarks=_remarks(outcome, file, mapping),
        unreached=_unreached(outcome, file, mapping),
        variants=tuple(replace(v, values=_values(v, file, mapping)) for v in outcome.variants),
        named=_named(outcome, file, mapping),
    )


def relocate_stage(stage: Stage, file: str, mapping: Mapping[int, int]) -> Stage:
    """Return `stage` with the spans of `file` moved. Spans on removed lines are dropped."""
    chains: dict[int, tuple[Span, ...]] = {}  # by identity: nodes share their tuples of spans
    nodes: list[Node] = []
    for node in stage.nodes:
        moved = chains.get(id(node.spans))
        if moved is None:
            spans = (relocate_span(span, file, mapping) for span in node.spans)
            moved = tuple(span for span in spans if span is not None)
            moved = chains[id(node.spans)] = node.spans if moved == node.spans else moved
        nodes.append(node if moved is node.spans else _with(node, "spans", moved))
    return replace(stage, nodes=tuple(nodes), text=_text(stage, nodes) if stage.origins else stage.text)


@lru_cache(maxsize=16)
def line_map(old: str, new: str) -> Mapping[int, int] | None:
    """Map the lines of an earlier text to those of a later one, for lines in both; None if the texts are equal."""
    return None if old == new else edited_lines(split_lines(old), split_lines(new))


def _text(stage: Stage, nodes: list[Node]) -> str:
    """Return the text of a stage with updated comments on the lines of its nodes (`# norms.py:8 …`)."""
    lines = stage.text.split("\n")
    for i, number in enumerate(stage.origins):
        old, new = (nodes_then[number - 1] if 0 < number <= len(nodes) else None for nodes_then in (stage.nodes, nodes))
        if old is None or new is None or len(old.spans) != len(new.spans):
            continue
        for was, now in zip(old.spans[:1], new.spans[:1], strict=True):
            name = re.escape(was.file.replace("\\", "/").rpartition("/")[2])
            lines[i] = re.sub(rf"^(\s*# +{name}:){was.line}(?=  )", rf"\g<1>{now.line}", lines[i])
    return "\n".join(lines)


def _with(item: T, field: str, value: object) -> T:
    """Return a frozen dataclass with another value of a field, several times as fast as `dataclasses.replace`."""
    changed = object.__new__(type(item))
    fields = changed.__dict__
    fields.update(item.__dict__)
    fields[field] = value
    return changed


def _saved(trace: Trace, file: str, mapping: Mapping[int, int]) -> tuple[Saved, ...]:
    moved: dict[tuple[str, int, int, int, int], tuple[Span | None, bool]] = {}  # many values have one expression
    rows: list[Saved] = []
    for saved in trace.saved:
        span, has_moved = saved.span, False
        if span is not None:
            place = span.file, span.line, span.col, span.end_line, span.end_col
            if place not in moved:
                relocated = relocate_span(span, file, mapping)
                moved[place] = relocated, relocated is not span
            span, has_moved = moved[place]
        rows.append(_with(saved, "span", span) if has_moved else saved)
    return tuple(rows)


def _values(trace: Trace | TargetVariant, file: str, mapping: Mapping[int, int]) -> tuple[ObservedValue, ...]:
    moved = ((value, relocate_span(value.span, file, mapping)) for value in trace.values)
    return tuple(value if span is value.span else replace(value, span=span) for value, span in moved if span)


def _named(trace: Trace, file: str, mapping: Mapping[int, int]) -> tuple[NamedSizes, ...]:
    moved = ((sizes, sizes.span and relocate_span(sizes.span, file, mapping)) for sizes in trace.named)
    return tuple(
        replace(sizes, span=span, fixed=tuple(by and relocate_span(by, file, mapping) for by in sizes.fixed))
        for sizes, span in moved
        if span is not None or sizes.span is None
    )


def _remarks(trace: Trace, file: str, mapping: Mapping[int, int]) -> tuple[Remark, ...]:
    moved = ((r, r.span and relocate_span(r.span, file, mapping)) for r in trace.remarks)
    return tuple(
        replace(
            remark,
            span=span,
            related=_related(remark, file, mapping),
            before=_captured(remark.before, file, mapping),
            after=_captured(remark.after, file, mapping),
        )
        for remark, span in moved
        if span is not None or remark.span is None
    )


def _captured(graph: CapturedGraph | None, file: str, mapping: Mapping[int, int]) -> CapturedGraph | None:
    if graph is None or graph.span is None:
        return graph
    return replace(graph, span=relocate_span(graph.span, file, mapping))


def _related(remark: Remark, file: str, mapping: Mapping[int, int]) -> tuple[Related, ...]:
    moved = ((related, relocate_span(related.span, file, mapping)) for related in remark.related)
    return tuple(replace(related, span=span) for related, span in moved if span is not None)


def _unreached(trace: Trace, file: str, mapping: Mapping[int, int]) -> tuple[Unreached, ...]:
    def moved(span: Span | None) -> Span | None:
        return None if span is None else relocate_span(span, file, mapping)

    code = ((item, moved(item.span)) for item in trace.unreached)
    return tuple(
        replace(item, span=span, decider=moved(item.decider), exit=moved(item.exit)) for item, span in code if span
    )
