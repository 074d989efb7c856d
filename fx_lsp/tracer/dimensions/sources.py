"""Find the names of dimensions in the text of a file: in annotations, patterns of axes, docstrings and comments.

Unpacked shapes (`B, T, C = x.shape`) are not included: they bind variables, which are observed at run time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from fx_lsp.model import Span
from fx_lsp.syntax import FUNCTIONS, FunctionNode, axis_terms, own_nodes, parse_expression
from fx_lsp.tracer.inputs.plan.dims import Shape, parameter_shape, shapes_in, words

Place: TypeAlias = "tuple[Span, str]"
"""As in an `ObservedValue`: the span of a statement, of a function's head or of an expression, and the name that it
binds.
"""

_READS = frozenset({"shape", "size"})
_LETTERS = re.compile(r"[A-Za-z.]*(?:,[A-Za-z.]*)*->([A-Za-z.]*)")
_COMMENT = re.compile(r"#\s*(?:[\w.]+\s*:\s*)?(?:shape\s*[:=]?\s*|[-=]>\s*)?(?=[(\[A-Z])([^#]*)$")


def reads_sizes(tree: ast.AST, lines: list[str]) -> bool:
    """Return True if a non-blank line of `lines` assigns a size to a variable."""

    def is_reached(node: ast.stmt) -> bool:
        return node.lineno <= len(lines) and bool(lines[node.lineno - 1].strip())

    assignments = (n for n in ast.walk(tree) if isinstance(n, (ast.Assign, ast.AnnAssign, ast.NamedExpr)))
    return any(
        isinstance(part, ast.Attribute) and part.attr in _READS
        for node in assignments
        if node.value is not None and (isinstance(node, ast.NamedExpr) or is_reached(node))
        for part in ast.walk(node.value)
    )


def named_shapes(tree: ast.Module, file: str, lines: list[str]) -> dict[Place, Shape]:
    """Return the shapes written on the non-blank `lines` of a file, by place.

    They are in patterns of axes, annotations, docstrings and comments.
    """
    shapes: dict[Place, Shape] = {}
    comments = {n: shape for n, line in enumerate(lines, 1) if "#" in line and (shape := _of_comment(line))}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        is_reached = 0 < line <= len(lines) and bool(lines[line - 1].strip())
        for place, shape in _of_node(node, file, comments) if is_reached else ():
            shapes.setdefault(place, shape)
    return shapes


def _of_node(node: ast.AST, file: str, comments: dict[int, Shape]) -> Iterator[tuple[Place, Shape]]:
    if isinstance(node, FUNCTIONS):
        yield from _of_function(node, file, comments)
    elif isinstance(node, ast.Call):
        if (shape := _of_pattern(node)) is not None:
            yield (span_of(node, file), ""), shape
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        annotated = shape_of_annotation(node.annotation) if isinstance(node, ast.AnnAssign) else None
        pattern = _of_pattern(node.value) if isinstance(node.value, ast.Call) else None
        shape = annotated or pattern or comments.get(node.end_lineno or node.lineno)
        if shape is not None and len(names) == len(targets):
            yield from (((span_of(node, file), name), shape) for name in names)


def _of_function(function: FunctionNode, file: str, comments: dict[int, Shape]) -> Iterator[tuple[Place, Shape]]:
    head = Span(file, function.lineno, function.col_offset, function.lineno, function.col_offset)
    docstring = ast.get_docstring(function) or ""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        shape = shape_of_annotation(argument.annotation) or parameter_shape(docstring, argument.arg)
        alone = argument.lineno != function.lineno
        shape = shape or (comments.get(argument.end_lineno or argument.lineno) if alone else None)
        if shape is not None:
            yield (head, argument.arg), shape
    annotated = shape_of_annotation(function.returns)
    for node in own_nodes(function):
        if isinstance(node, ast.Return) and node.value is not None:
            pattern = _of_pattern(node.value) if isinstance(node.value, ast.Call) else None
            shape = annotated or pattern or comments.get(node.end_lineno or node.lineno)
            if shape is not None:
                yield (span_of(node, file), "return"), shape


def span_of(node: ast.expr | ast.stmt, file: str) -> Span:
    """Return the span of a node."""
    return Span(file, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)


def shape_of_annotation(annotation: ast.expr | None) -> Shape | None:
    """Return the shape of `Float[Tensor, "b t c"]` or `Annotated[Tensor, "b t c"]`, also if optional or quoted; else
    None.
    """
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = parse_expression(annotation.value)
        except SyntaxError:
            return None
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return shape_of_annotation(annotation.left) or shape_of_annotation(annotation.right)
    if not isinstance(annotation, ast.Subscript):
        return None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    texts = [part.value for part in parts[1:] if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    if texts:
        return next(iter(shapes_in(texts[0])), None) or words(texts[0])
    return shape_of_annotation(parts[0]) if len(parts) == 1 else None


def _of_pattern(call: ast.Call) -> Shape | None:
    """Return the shape of the result of a call with a pattern of axes: `rearrange(x, "b (h d) -> b h d")`;
    else None.
    """
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    for text in texts:
        if (letters := _LETTERS.fullmatch(text.replace(" ", ""))) and axis_terms(text) is None:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            return tuple(letters[1]) if name == "einsum" and "." not in letters[1] else None
        if axis_terms(text):
            _, _, result = text.partition("->")
            (term,) = axis_terms(f"{result} -> {result}") or axis_terms(f"({result}) -> ({result})") or ((),)
            return tuple("*".join(axes) or "1" for axes in term) if "..." not in result else None
    return None


def _of_comment(line: str) -> Shape | None:
    """Return the shape at the start of a comment, `# (B, T, C)`, `# B x T x C`, `# q: [B, H, T, D]`, or after its
    arrow, `# (B, T, C) @ (B, C, T) -> (B, T, T)`; else None.
    """
    match = _COMMENT.search(line)
    if match is None or match.start() == len(line) - len(line.lstrip()):
        return None
    written = shapes_in(match[1].rpartition("->")[2])
    first = written[0] if written else ()
    return first if first and any(isinstance(size, str) for size in first) and "..." not in first else None
