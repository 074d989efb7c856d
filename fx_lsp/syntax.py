"""Parsing Python. Standard library only."""

from __future__ import annotations

import ast

_ATTEMPTS = 5


def parse(text: str, file: str = "<text>") -> ast.Module:
    """`ast.parse`, which raises SyntaxError, ValueError, RecursionError or MemoryError on bad text.

    Until Python 3.12 threads share the parser's recursion counter, so that two that parse at once may get a SystemError
    (cpython #106905) on good text: then it is parsed again.
    """
    for _ in range(_ATTEMPTS):
        try:
            return ast.parse(text, file)
        except SystemError:
            continue
    return ast.parse(text, file)


def parse_expression(text: str) -> ast.expr:
    """One expression; raises what `parse` raises, and SyntaxError where `text` is none."""
    body = parse(text).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise SyntaxError("not an expression")
    return body[0].value
