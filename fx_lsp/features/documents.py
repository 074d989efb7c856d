"""A stage as a document: readable Python that `ast.parse` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath

from fx_lsp.features.lenses import summarize
from fx_lsp.features.text import count, format_bytes, is_tensor_spec, one_line
from fx_lsp.model import InputSpec, Node, Saved, Span, Stage, Trace
from fx_lsp.syntax import parse

WIDTH = 100
SourceLine = Callable[[Span], "str | None"]


@dataclass(frozen=True)
class Document:
    """Text, and for each of its lines the source expressions that it came from (innermost first)."""

    text: str
    line_spans: tuple[tuple[Span, ...], ...]


def render_stage(trace: Trace, stage: Stage, source_line: SourceLine) -> Document:
    """The whole document of a stage. `source_line` is the text of the line that a span starts on, where it is known."""
    lines: list[tuple[str, tuple[Span, ...]]] = [(line, ()) for line in _header(trace, stage)]
    lines += body(trace, stage, source_line)
    return Document("\n".join(line for line, _ in lines) + "\n", tuple(spans for _, spans in lines))


def body(trace: Trace, stage: Stage, source_line: SourceLine) -> list[tuple[str, tuple[Span, ...]]]:
    """The `def` of a stage, line by line with the spans of each."""
    saved = {s.name: s for s in trace.saved} if stage.name == "forward" else {}
    parameters = [n for n in stage.nodes if n.op == "placeholder"]
    lines = _definition(stage.name, parameters, saved)
    last: tuple[str, int] | None = None
    statements = [n for n in stage.nodes if n.op != "placeholder"]
    for node in statements:
        span = node.span
        if span is not None and node.op != "output" and (span.file, span.line) != last:
            last = span.file, span.line
            if not lines[-1][0].endswith("):"):
                lines.append(("", ()))
            lines.append((f"    # {_location(span, source_line)}", node.spans))
        lines.append(("    " + render_node(node) + _trailing(node, saved.get(node.name)), node.spans))
    if not statements:
        lines.append(("    pass", ()))
    return lines


def render_node(node: Node) -> str:
    """One node as a statement: `mm: f32[16, 32] = aten.mm.default(x, w)`."""
    if node.op == "output":
        return f"return {_output(node.args)}"
    annotation = f": {_annotation(node.spec)}" if node.spec else ""
    return f"{node.name}{annotation} = {render_call(node)}"


def render_call(node: Node) -> str:
    """The right-hand side of a node: `aten.mm.default(x, w)`, `split[0]`, `x.view(2, 3)`, `self.weight`."""
    if node.op == "get_attr":
        return f"self.{node.target}"
    if node.op == "call_function" and node.target.rpartition(".")[2] == "getitem" and len(node.args) == 2:
        return f"{node.args[0]}[{node.args[1]}]"
    if node.op == "call_method" and node.args:
        return f"{node.args[0]}.{node.target}({', '.join(node.args[1:])})"
    target = f"self.{node.target}" if node.op == "call_module" else node.target
    return f"{target}({', '.join(node.args)})"


def _header(trace: Trace, stage: Stage) -> list[str]:
    file, _, name = trace.target.rpartition("::")
    ops = trace.ops(stage.name)
    size = count("op", sum(n.op.startswith("call_") for n in stage.nodes) if ops is None else ops)
    lines = [f"# {_basename(file)}::{name} · {stage.name} graph · {size}"]
    lines.append(f"# torch {trace.torch} · {summarize(trace)}")
    lines += [f"#   {_input(item)}" for item in trace.inputs]
    lines += [f"# note: {one_line(note, 400)}" for note in trace.notes]
    return [*lines, ""]


def _input(item: InputSpec) -> str:
    joint = ": " if is_tensor_spec(item.spec) else " = "
    detail = f", {one_line(item.detail)}" if item.detail else ""
    return f"{item.name}{joint}{one_line(item.spec)}   ({item.source}{detail})"


def _definition(name: str, nodes: list[Node], saved: dict[str, Saved]) -> list[tuple[str, tuple[Span, ...]]]:
    parts = [f"{n.name}: {_annotation(n.spec)}" if n.spec else n.name for n in nodes]
    marks = [_trailing(n, saved.get(n.name)) for n in nodes]
    head = name if name.isidentifier() else "".join(c if c.isalnum() else "_" for c in name)
    line = f"def {head}({', '.join(parts)}):"
    if len(line) <= WIDTH and not any(marks):
        return [(line, ())]
    rows = [(f"    {part},{mark}", n.spans) for part, mark, n in zip(parts, marks, nodes, strict=True)]
    return [(f"def {head}(", ()), *rows, ("):", ())]


def _trailing(node: Node, saved: Saved | None) -> str:
    comments = [one_line(node.comment, 400)] if node.comment else []
    if saved is not None:
        comments.append(f"saved for backward, {format_bytes(saved.bytes)}")
    return f"  # {' · '.join(comments)}" if comments else ""


def _output(args: tuple[str, ...]) -> str:
    if len(args) == 1:
        return args[0] if args[0] else "()"
    return f"({', '.join(args)})"


@lru_cache(maxsize=4096)
def _annotation(spec: str) -> str:
    """The spec as an annotation; one that is no Python expression (`f32[]`) stands in quotes, as FX prints it."""
    try:
        parse(f"x: {spec}")
    except SyntaxError:
        return '"' + spec.replace("\\", "\\\\").replace('"', "'") + '"'
    return spec


def _location(span: Span, source_line: SourceLine) -> str:
    where = f"{_basename(span.file)}:{span.line}"
    line = source_line(span)
    return f"{where}  {one_line(line)}" if line and line.strip() else where


def _basename(path: str) -> str:
    return PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name
