"""Show a target's kernels: the documents of their compiled forms, and the relations between lines.

A line of a listing comes from a line of the kernels' file, which comes from an operation, which comes from the user's
code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from fx_lsp.choices import TRITON
from fx_lsp.features.documents.document import Document, Line, SourceLine, render_node, rows_of
from fx_lsp.features.hover import Hover
from fx_lsp.features.lenses import Lens
from fx_lsp.features.wording.problems import Problem
from fx_lsp.features.wording.text import one_line, plain, sentence
from fx_lsp.features.wording.uris import LOWERED, View
from fx_lsp.model import Node, Remark, Span, Stage, Work, read_work, write_work

LISTINGS = ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")
"""The compiled forms of a kernel, each compiled from the previous one."""
CHIP = "cuda:90"
"""The default chip to compile kernels for."""
RESOURCES = "resources"
"""The stage that reports the resources of kernels."""
CALLERS = 3
"""The most expressions around an operation that are shown."""


@dataclass(frozen=True)
class RenderedView:
    """Hold a view as last rendered, with its nodes."""

    document: Document
    nodes: Mapping[str, Node] = field(default_factory=dict[str, Node])


def work_of(stage: str, chip: str, beside: Work = "") -> Work:
    """Return the work that produces a stage requested by its name alone; `chip` is the target of compilation. If the
    work `beside` also generates kernels, its choices are kept.
    """
    chosen = _choices(beside)
    if stage == TRITON:
        return write_work({TRITON: "", **chosen})
    is_listing = stage == RESOURCES or stage.partition(":")[0] in LISTINGS
    return write_work({LOWERED: "", "target": chip, **chosen}) if is_listing else ""


def _choices(work: Work) -> dict[str, str]:
    """Return the parts of kernel work that are the user's choices."""
    parts = read_work(work)
    is_of_kernels = TRITON in parts or LOWERED in parts
    return {n: v for n, v in parts.items() if n not in (TRITON, LOWERED, "target")} if is_of_kernels else {}


def choices_of(work: Work) -> str:
    """Return the user's choices for kernels as text of work: "" or "fuse=no"."""
    return write_work(_choices(work))


def chip_of(work: Work) -> str:
    """Return the chip that work compiles for, "" for other work."""
    parts = read_work(work)
    return parts.get("target", "") if LOWERED in parts else ""


def kernels_of(view: View) -> View:
    """Return the view of the kernels' file that a view is compiled from; the view itself if it is that file."""
    return View(view.file, view.name, TRITON, work=work_of(TRITON, "", view.work))


def stages_of_listing(stage: str, names: Iterable[str]) -> list[str]:
    """Return the stages that a listing shows: that of one kernel (`ptx:<kernel>`), or those of all (`ptx`)."""
    return [stage] if stage == RESOURCES or ":" in stage else [n for n in names if n.partition(":")[0] == stage]


def render_listing(stages: Sequence[Stage], name: str) -> Document:
    """Return compiled forms, one after the other. Spans of a line are in the kernels' file of the target `name`."""
    file = kernels_of(View("", name, "")).title
    lines: list[Line] = []
    for stage in stages:
        lines += [Line("")] if lines else []
        for row, number in zip(rows_of(stage), stage.origins, strict=True):
            lines.append(Line(row, (Span(file, number, 0, number, 0),) if number else ()))
    return Document(tuple(lines))


def hover_line(
    shown: RenderedView,
    number: int,
    source_line: SourceLine,
    kernels: RenderedView | None = None,
    facts: Sequence[str] = (),
) -> Hover | None:
    """Return the hover on a line (from 1) of a view: the kernel's line, the operation, the user's code; then `facts`.

    `kernels` is the file of kernels, if the view is compiled from it. None if nothing is known of the line.
    """
    line = shown.document.lines[number - 1]
    span = Span("", number, _indent(line.text), number, len(line.text.encode()))
    sections: list[str] = []
    at = line.spans[0].line if kernels is not None and line.spans else 0
    if kernels is not None and 0 < at <= len(kernels.document.lines):
        line, shown = kernels.document.lines[at - 1], kernels
        sections.append(f"line {at} of the kernels\n\n{_block(line.text.strip())}")
    nodes = [shown.nodes[name] for name in line.nodes if name in shown.nodes]
    sections += [_block("\n".join(one_line(render_node(node), 200) for node in nodes))] if len(nodes) == 1 else []
    sections += [_place(s, source_line) for s in line.spans[:CALLERS] if source_line(s) is not None]
    sections += ["\n".join(f"- {plain(fact)}" for fact in facts)] if facts else []
    return Hover("\n\n".join(sections), span) if sections else None


def related_lines(document: Document, number: int) -> list[int]:
    """Return the lines (from 1) with the same origin as the line `number`, including itself; empty without an
    origin.
    """
    wanted = _origin(document.lines[number - 1])
    return [n for n, line in enumerate(document.lines, start=1) if wanted and _origin(line) == wanted]


@dataclass(frozen=True)
class Thread:
    """Hold related lines of the kernels' file and expressions of the user."""

    lines: frozenset[int] = frozenset()
    spans: frozenset[Span] = frozenset()


def thread_of_line(view: View, document: Document, number: int, kernels: Document | None) -> Thread:
    """Return the origin of the line `number` (from 1) of a view; `kernels` is the file of kernels, if known."""
    line = document.lines[number - 1]
    if view == kernels_of(view):
        return Thread(frozenset(related_lines(document, number) or [number]), frozenset(line.spans[:1]))
    if not chip_of(view.work):
        return thread_of_spans(line.spans[:1], kernels)
    at = line.spans[0].line if line.spans else 0
    spans = kernels.lines[at - 1].spans[:1] if kernels is not None and 0 < at <= len(kernels.lines) else ()
    return Thread(frozenset({at} - {0}), frozenset(spans))


def spans_at(file: str, line: int, col: int, documents: Iterable[Document]) -> frozenset[Span]:
    """Return the expressions that a place in the user's code belongs to, of all that lines of `documents` came from or
    were called by: the innermost around the place, or else those on its line.
    """
    spans = {s for document in documents for chain in _chains(document) for s in chain if s.file == file}
    around = [s for s in spans if s.contains(Span(file, line, col, line, col))]
    innermost = [s for s in around if not any(s != other and s.contains(other) for other in around)]
    return frozenset(innermost or [s for s in spans if s.line <= line <= s.end_line])


def thread_of_spans(spans: Iterable[Span], kernels: Document | None) -> Thread:
    """Return the kernels' lines that come from `spans` or that they called, with these."""
    wanted = frozenset(spans)
    return Thread(frozenset(_lines_from(wanted, kernels) if kernels is not None else ()), wanted)


def lines_on(thread: Thread, view: View, document: Document) -> list[int]:
    """Return the lines (from 1) of a view that belong to a thread."""
    if view == kernels_of(view):
        return sorted(n for n in thread.lines if n <= len(document.lines))
    if chip_of(view.work):
        rows = enumerate(document.lines, start=1)
        return [n for n, row in rows if row.spans and row.spans[0].line in thread.lines]
    return _lines_from(thread.spans, document)


def _lines_from(wanted: frozenset[Span], document: Document) -> list[int]:
    """Return the lines (from 1) that came from one of the expressions, or were called by it."""
    ids = {id(chain) for chain in _chains(document) if not wanted.isdisjoint(chain)}
    return [n for n, row in enumerate(document.lines, start=1) if id(row.spans) in ids]


def _chains(document: Document) -> Collection[tuple[Span, ...]]:
    """Return the expressions behind the lines, innermost first. Lines share tuples, and each is returned once."""
    return {id(row.spans): row.spans for row in document.lines}.values()


def facts_at(resources: Stage, line: int) -> list[str]:
    """Return the facts on a line of the kernels' file from the resources page."""
    own, rows = f"line {line}: ", zip(rows_of(resources), resources.origins, strict=True)
    return [row.removeprefix(own) for row, at in rows if at == line]


def kernel_at(text: str, line: int) -> str:
    """Return the name of the kernel that a line (from 1) of a file of kernels is in, or ""."""
    rows = text.splitlines()[:line]
    starts = [number for number, row in enumerate(rows) if row and not row[0].isspace() and row[0] not in ")#"]
    last = next((rows[number] for number in reversed(starts)), "")
    definition = re.match(r"def (\w+)", last)
    return definition[1] if definition else ""


def kernel_problems(remarks: Iterable[Remark], name: str) -> tuple[Problem, ...]:
    """Return the remarks on the kernels' file of a target, from its text and its compilation, in order of place."""
    file = kernels_of(View("", name, "")).title
    said = [(r.span, r) for r in remarks if r.span is not None and r.span.file == file]
    problems = {Problem(span, remark.severity, sentence(remark.message), "kernel"): None for span, remark in said}
    return tuple(sorted(problems, key=lambda p: (p.span.line, p.span.col)))


def said_of_code(stage: Stage, remarks: Iterable[Remark], file: str, name: str) -> tuple[str, ...]:
    """Return the remarks on the kernels' file of a target in `file`, each once, with the places in the user's code."""
    kernels, sentences = kernels_of(View("", name, "")).title, dict[str, None]()
    for remark in remarks:
        if remark.span is not None and remark.span.file == kernels:
            number = stage.origins[remark.span.line - 1]
            place = stage.nodes[number - 1].span if number else None
            where = f"{place.file}:{place.line}" if place is not None else file
            sentences[f"{where}: {remark.message}"] = None
    return tuple(sentences)


def kernel_lenses(name: str, text: str, chip: str, resources: Stage | None, stale: bool) -> Iterator[Lens]:
    """Yield the lenses of the kernels' file: the resources of each launched kernel, if known, and its forms."""
    launched = set(re.findall(r"\blaunch\(\s*(\w+),", text))
    work = work_of(RESOURCES, chip)
    for number, row in enumerate(text.splitlines(), start=1):
        definition = re.match(r"def (\w+)", row)
        if definition is None or definition[1] not in launched:
            continue
        span = Span("", number, 4, number, definition.end())
        facts = facts_at(resources, number) if resources is not None else []
        title = f"{chip}: {facts[1]}" if len(facts) > 1 else f"compile for {chip}"
        yield Lens(span, f"stale · {title}" if stale else title, "show stage", name, RESOURCES, work)
        forms = LISTINGS[:3] + (("amdgcn",) if chip.startswith("hip") else ("ptx", "sass"))
        yield from (Lens(span, form, "show stage", name, f"{form}:{definition[1]}", work) for form in forms)


def _origin(line: Line) -> object:
    """Return the origin of a line: its operations, or else the innermost expression."""
    return line.nodes or line.spans[:1]


def _indent(text: str) -> int:
    return len(text[: len(text) - len(text.lstrip())].encode())


def _block(text: str) -> str:
    return f"```python\n{text}\n```"


def _place(span: Span, source_line: SourceLine) -> str:
    file = span.file.replace("\\", "/").rpartition("/")[2]
    return f"{file}:{span.line}\n\n{_block((source_line(span) or '').strip())}"


def fusion_data(stage: Stage) -> dict[str, Any]:
    """Return the kernels of fx-lsp and of Inductor as JSON, with the places of their operations."""
    data: dict[str, Any] = json.loads(stage.text)
    for generator in data.values():
        for kernel in (kernel for graph in generator["graphs"] for kernel in graph["kernels"]):
            kernel["operations"] = [_operation(stage.nodes[index]) for index in cast("list[int]", kernel["operations"])]
    return data


def _operation(node: Node) -> dict[str, Any]:
    place = (node.span.file, node.span.line) if node.span is not None else (None, None)
    return {"name": node.name, "target": node.target, "file": place[0], "line": place[1]}
