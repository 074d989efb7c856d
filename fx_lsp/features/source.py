"""Questions about the text of one definition, answered with `ast`. Lines and columns as in `Span`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from fx_lsp.model import Span
from fx_lsp.syntax import parse

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr, ast.Assert, ast.Raise, ast.Delete)


@dataclass(frozen=True)
class CursorContext:
    """What stands at a position: the spans of the expressions around it, innermost first.

    `name` is the variable under the cursor (None elsewhere), `stored` whether it is bound here and not read;
    `function` is the span of the innermost `def` around it.
    """

    spans: tuple[Span, ...]
    name: str | None = None
    stored: bool = False
    function: Span | None = None


@dataclass(frozen=True)
class Binding:
    """A variable bound by the statement that starts at `line`, `col`; hints go to `end_line`, `end_col`."""

    name: str
    line: int
    col: int
    end_line: int
    end_col: int
    annotated: bool = False


def expression_at(text: str, definition: Span, line: int, col: int) -> CursorContext | None:
    """Return what stands at a position inside `definition`; None in white space, or where that does not parse."""
    tree = parse_definition(text, definition)
    if tree is None:
        return None
    offset = definition.line - 1
    chain = [node for node in _chain(tree, line - offset, col) if isinstance(node, (ast.expr, ast.keyword, *_SIMPLE))]
    if not chain:
        return None
    chain.reverse()
    function = next((n for n in reversed(_chain(tree, line - offset, col)) if isinstance(n, FunctionNode)), None)
    innermost = chain[0]
    spans = tuple(dict.fromkeys(_span(node, definition.file, offset) for node in chain))
    name = innermost.id if isinstance(innermost, ast.Name) else None
    stored = isinstance(innermost, ast.Name) and isinstance(innermost.ctx, ast.Store)
    return CursorContext(spans, name, stored, None if function is None else _span(function, definition.file, offset))


def bindings(text: str, definition: Span) -> tuple[Binding, ...]:
    """Return every variable that a statement of `definition` binds."""
    tree = parse_definition(text, definition)
    return () if tree is None else tuple(_bindings(tree, definition.line - 1))


def returns(text: str, definition: Span) -> tuple[tuple[Span, Span], ...]:
    """Return the `return` statements of `definition` that return something, each with the span of its expression."""
    tree = parse_definition(text, definition)
    if tree is None:
        return ()
    offset = definition.line - 1
    return tuple(
        (_span(node, definition.file, offset), _span(node.value, definition.file, offset))
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) and node.value is not None
    )


def parse_definition(text: str, definition: Span) -> ast.Module | None:
    """Return the tree of the lines of one definition, or None where they do not parse.

    Line 1 of the tree is the definition's first line; columns are those of `text`.
    """
    return _parse(_slice_lines(text, definition.line, definition.end_line))


@lru_cache(maxsize=32)
def _parse(segment: str) -> ast.Module | None:
    indented = segment[:1] in (" ", "\t")
    try:
        tree = parse("if 1:\n" + segment if indented else segment)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if indented:
        ast.increment_lineno(tree, -1)
    return tree


@lru_cache(maxsize=64)
def _slice_lines(text: str, first: int, last: int) -> str:
    start = 0
    for _ in range(first - 1):
        newline = text.find("\n", start)
        if newline < 0:
            return ""
        start = newline + 1
    end = start
    for _ in range(last - first + 1):
        newline = text.find("\n", end)
        if newline < 0:
            return text[start:]
        end = newline + 1
    return text[start:end]


def _chain(tree: ast.AST, line: int, col: int) -> list[ast.AST]:
    """Return the nodes around a position, outermost first. A position just behind an expression still belongs to it."""
    chain: list[ast.AST] = []
    node: ast.AST | None = tree
    while node is not None:
        inside = [child for child in _positioned_children(node) if _holds(child, line, col)]
        node = max(inside, key=lambda n: (n.lineno, n.col_offset)) if inside else None  # type: ignore[attr-defined]
        if node is not None:
            chain.append(node)
    return chain


def _positioned_children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from _positioned_children(child)


def _holds(node: ast.AST, line: int, col: int) -> bool:
    start, end = _edges(node)
    return start <= (line, col) <= end


def _edges(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    start = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    for decorator in getattr(node, "decorator_list", ()):
        start = min(start, (decorator.lineno, decorator.col_offset))
    return start, (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))


def _span(node: ast.AST, file: str, offset: int) -> Span:
    (line, col), (end_line, end_col) = _edges(node)
    return Span(file, line + offset, col, end_line + offset, end_col)


def _bindings(tree: ast.Module, offset: int) -> Iterator[Binding]:
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.stmt):
            continue
        annotation = statement.annotation if isinstance(statement, ast.AnnAssign) else None
        for node in _own_expressions(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                end = node if annotation is None else annotation
                yield Binding(
                    node.id,
                    statement.lineno + offset,
                    statement.col_offset,
                    (end.end_lineno or end.lineno) + offset,
                    end.end_col_offset or 0,
                    annotation is not None,
                )


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement, without those of the statements inside it."""
    pending: list[ast.AST] = [statement]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.comprehension, ast.Lambda)):
                continue
            if type(child).__name__ == "match_case":
                continue
            yield child
            pending.append(child)
