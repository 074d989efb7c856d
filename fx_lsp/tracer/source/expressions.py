"""Parse pieces of source text."""

from __future__ import annotations

import ast

from fx_lsp.model import Span

MAX_TEXT = 60
"""The most characters of an expression in a sentence."""


def expression(span: Span | None, lines: list[str]) -> ast.expr | None:
    """Return the parsed expression at a span of a file's lines; None if the text is not an expression.

    For `x += y` it is `x + y`.
    """
    if span is None or span.line > len(lines) or span.end_line > len(lines) or span.end_col == 0:
        return None
    text = b"\n".join(line.encode() for line in lines[span.line - 1 : span.end_line])
    cut = len(lines[span.end_line - 1].encode()) - span.end_col
    text = text[span.col : len(text) - cut]
    try:
        return ast.parse(b"(" + text + b"\n)", mode="eval").body
    except (SyntaxError, ValueError):
        return _augmented(text)


def _augmented(text: bytes) -> ast.expr | None:
    try:
        (statement,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(statement, ast.AugAssign):
        return None
    return ast.BinOp(statement.target, statement.op, statement.value)


def verb_of(node: ast.expr | None) -> str:
    """Return the verb for an expression whose sizes fit: arithmetic `broadcasts`, anything else `works`."""
    is_arithmetic = isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult)
    return "broadcasts" if is_arithmetic else "works"


def shown_expression(span: Span, lines: list[str]) -> str:
    """Return the source of an expression, shortened if it is long; its line if it is not an expression."""
    node = expression(span, lines)
    if node is not None:
        return shown_text(node)
    return _shortened(lines[span.line - 1].strip() if span.line <= len(lines) else "")


def shown_text(node: ast.expr) -> str:
    """Return an expression as text for a sentence."""
    return _shortened(ast.unparse(node))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}…"
