"""Render a stage as a document: readable Python that `ast.parse` accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from fx_lsp.features.documents.folding import Fold, describe, folds, shorten
from fx_lsp.features.wording.dimensions import SizeNames, SizeStyle
from fx_lsp.features.wording.guesses import marked
from fx_lsp.features.wording.inputs import variant_title
from fx_lsp.features.wording.problems import all_notes
from fx_lsp.features.wording.text import basename, count, format_bytes, is_tensor_spec, one_line
from fx_lsp.features.wording.traces import summarize
from fx_lsp.model import InputSpec, Node, Saved, Span, Stage, Trace
from fx_lsp.syntax import parse

WIDTH = 100
SourceLine = Callable[[Span], "str | None"]


class Line(NamedTuple):
    """Hold a line of a document: the source expressions that it came from, innermost first, its nodes, and the number
    of its kernel, if it is in a list of kernels, otherwise 0.
    """

    text: str
    spans: tuple[Span, ...] = ()
    nodes: tuple[str, ...] = ()
    kernel: int = 0


@dataclass(frozen=True)
class Document:
    """Hold the lines of a document. Folded lines belong to the line that replaces them."""

    lines: tuple[Line, ...]

    @cached_property
    def text(self) -> str:
        """Return the whole text."""
        return "\n".join(line.text for line in self.lines) + "\n"

    def line_of(self, node: str) -> int | None:
        """Return the index of the line that shows a node or folds it; None without one."""
        return next((i for i, line in enumerate(self.lines) if node in line.nodes), None)


def render_stage(
    trace: Trace, stage: Stage, source_line: SourceLine, full: bool = False, sizes: SizeStyle = "numbers"
) -> Document:
    """Return the whole document of a stage. `source_line` maps a span to the text of its first line, if known.

    Repeated iterations and layers are folded, unless `full`. A stage that is text is shown as it is. Sizes are shown in
    the style `sizes`.
    """
    info = trace.info(stage.name)
    if stage.text or not stage.nodes:
        head = title_lines(trace, stage.name, info.title) if info is not None and info.title else ()
        notes = [f"# {one_line(info.note, 400)}"] if info is not None and info.note else []
        return Document((*(Line(line) for line in (*head, *notes)), *text_lines(stage)))
    names = SizeNames(trace, sizes)
    lines = body(trace, replace(stage, nodes=tuple(map(names.renamed, stage.nodes))), source_line, full)
    return Document((*(Line(line) for line in _header(trace, stage, lines, names)), *lines))


def rows_of(stage: Stage) -> list[str]:
    """Return the lines of a text stage."""
    return stage.text.removesuffix("\n").split("\n")


def text_lines(stage: Stage) -> list[Line]:
    """Return the lines of a text stage, with the nodes that they show."""
    rows = rows_of(stage)
    shown = [stage.nodes[n - 1] if n and stage.nodes else None for n in stage.origins] or [None] * len(rows)
    triples = zip(rows, shown, stage.kernels or [0] * len(rows), strict=True)
    return [
        Line(row, kernel=kernel) if node is None else Line(row, node.spans, (node.name,), kernel)
        for row, node, kernel in triples
    ]


def body(trace: Trace, stage: Stage, source_line: SourceLine, full: bool = False) -> list[Line]:
    """Return the `def` of a stage as lines."""
    saved = {s.name: s for s in trace.saved} if stage.name == "forward" else {}
    lines = _definition(stage.name, [n for n in stage.nodes if n.op == "placeholder"], saved, full)
    statements = [n for n in stage.nodes if n.op != "placeholder"]
    marks = [_saved_mark(saved.get(n.name)) for n in statements]
    hidden = {} if full else {f.start: f for f in folds(statements, marks)}
    borders = _borders(hidden.values())
    place: tuple[str, int] | None = None
    index = 0
    while index < len(statements):
        if index in hidden:
            fold = hidden[index]
            lines += [Line(""), *_fold_lines(fold, statements), Line("")]
            index = fold.stop
        node, mark = statements[index], marks[index]
        span = node.span
        if index in borders and not _opens(lines[-1]):
            lines.append(Line(""))
        if span is not None and node.op != "output" and (span.file, span.line) != place:
            place = span.file, span.line
            if not _opens(lines[-1]):
                lines.append(Line(""))
            lines.append(Line(f"    # {_location(span, source_line)}", node.spans))
        lines.append(_statement(node, mark, full))
        index += 1
    if not statements:
        lines.append(Line("    pass"))
    return lines


def _borders(folded: Iterable[Fold]) -> set[int]:
    """Return the first statements of loops of several operations, and the first statements after them."""
    loops = [fold for fold in folded if fold.period > 1]
    return {border for fold in loops for border in (fold.start - fold.period, fold.stop + fold.period)}


def render_node(node: Node) -> str:
    """Return one node as a statement: `mm: f32[16, 32] = aten.mm.default(x, w)`, or `x: f32[16, 8]` for an input."""
    if node.op == "output":
        return f"return {_output(node.args)}"
    annotation = f": {_annotation(node.spec)}" if node.spec else ""
    return f"{node.name}{annotation}" + ("" if node.op == "placeholder" else f" = {render_call(node)}")


def render_call(node: Node) -> str:
    """Return the right-hand side of a node: `aten.mm.default(x, w)`, `split[0]`, `x.view(2, 3)`, `self.weight`."""
    if node.op == "get_attr":
        return f"self.{node.target}"
    if node.op == "call_function" and node.target.rpartition(".")[2] == "getitem" and len(node.args) == 2:
        return f"{node.args[0]}[{node.args[1]}]"
    if node.op == "call_method" and node.args:
        return f"{node.args[0]}.{node.target}({', '.join(node.args[1:])})"
    target = f"self.{node.target}" if node.op == "call_module" else node.target
    return f"{target}({', '.join(node.args)})"


def _statement(node: Node, mark: str, full: bool) -> Line:
    arguments, omitted = (node.args, 0) if full else shorten(node.args)
    more = f"{omitted:,} values in place of ..." if omitted else ""
    return Line(
        "    " + render_node(replace(node, args=arguments)) + _trailing(node, mark, more), node.spans, (node.name,)
    )


def _opens(line: Line) -> bool:
    return not line.text or line.text.endswith("):")


def _fold_lines(fold: Fold, nodes: list[Node]) -> list[Line]:
    spans = nodes[fold.start].spans
    first, *rest = (f"    # {line}" for line in describe(fold, nodes))
    return [Line(first, spans, tuple(n.name for n in nodes[fold.start : fold.stop])), *(Line(t, spans) for t in rest)]


def title_lines(trace: Trace, what: str, how: str, names: SizeNames | None = None) -> list[str]:
    """Return the first lines of every document: the target, the view, its origin, and the inputs, with sizes named by
    `names`.
    """
    file, _, name = trace.target.rpartition("::")
    lines = [f"# {basename(file)}::{name} · {what}", f"# torch {trace.torch}" + (f" · {how}" if how else "")]
    lines += [f"# called in: {trace.context.shown}"] if trace.context.shown else []
    lines += [f"# also {variant_title(variant)}" for variant in trace.variants if variant.kind == "call"]
    return [*lines, *(f"#   {_input(item, names)}" for item in trace.inputs), ""]


def _header(trace: Trace, stage: Stage, body: list[Line], names: SizeNames) -> list[str]:
    info = trace.info(stage.name)
    ops = sum(node.computes for node in stage.nodes) if info is None else info.ops
    graph = "" if ":" in stage.name or stage.name == "graph" else " graph"
    how = info.title if info is not None and info.title else summarize(trace)
    lines = title_lines(trace, f"{stage.name}{graph} · {count('op', ops)}", how, names)[:-1]
    lines += [f"#   with {legend}"] if (legend := names.legend()) else []
    lines += [f"# note: {one_line(note, 400)}" for note in all_notes(trace)]
    if info is not None and info.note:
        lines.append(f"# note: {one_line(info.note, 400)}")
    computing = {node.name for node in stage.nodes if node.computes}
    folded = sum(len(computing.intersection(line.nodes)) for line in body if len(line.nodes) > 1)
    if folded:
        whole = f"{trace.target.rpartition('::')[2]}.{stage.name}.full.py, or `--full`, has them all"
        lines.append(f"# note: {folded:,} of {count('op', ops)} repeat others and are folded; {whole}")
    return [*lines, ""]


def _input(item: InputSpec, names: SizeNames | None) -> str:
    joint = ": " if is_tensor_spec(item.spec) else " = "
    detail = f", {one_line(item.detail)}" if item.detail else ""
    return f"{item.name}{joint}{one_line(marked(item, names and names.of_input(item)))}   ({item.source}{detail})"


def _definition(name: str, nodes: list[Node], saved: dict[str, Saved], full: bool) -> list[Line]:
    parts = [render_node(n) for n in nodes]
    marks = [_saved_mark(saved.get(n.name)) for n in nodes]
    trailing = [_trailing(n, mark) for n, mark in zip(nodes, marks, strict=True)]
    graph = name.partition(":")[0]  # of a pass: include the target, so that the documents of changed graphs differ
    head = graph if graph.isidentifier() else "".join(c if c.isalnum() else "_" for c in graph)
    line = f"def {head}({', '.join(parts)}):"
    if len(line) <= WIDTH and not any(trailing):
        return [Line(line, (), tuple(n.name for n in nodes))]
    rows = [Line(f"    {p},{t}", n.spans, (n.name,)) for p, t, n in zip(parts, trailing, nodes, strict=True)]
    for fold in reversed([] if full else folds(nodes, marks)):
        rows[fold.start : fold.stop] = _fold_lines(fold, nodes)
    return [Line(f"def {head}("), *rows, Line("):")]


def _saved_mark(saved: Saved | None) -> str:
    return "" if saved is None else f"saved for backward, {format_bytes(saved.bytes)}"


def _trailing(node: Node, *marks: str) -> str:
    comments = [one_line(node.comment, 400) if node.comment else "", *marks]
    text = " · ".join(comment for comment in comments if comment)
    return f"  # {text}" if text else ""


def _output(args: tuple[str, ...]) -> str:
    if len(args) == 1:
        return args[0] if args[0] else "()"
    return f"({', '.join(args)})"


@lru_cache(maxsize=4096)
def _annotation(spec: str) -> str:
    """Return the spec as an annotation; in quotes if it is not a Python expression (`f32[]`), as in FX."""
    try:
        parse(f"x: {spec}")
    except SyntaxError:
        return '"' + spec.replace("\\", "\\\\").replace('"', "'") + '"'
    return spec


def _location(span: Span, source_line: SourceLine) -> str:
    where = f"{basename(span.file)}:{span.line}"
    line = source_line(span)
    return f"{where}  {one_line(line)}" if line and line.strip() else where
