"""Find the lines that the user's code in a generated file was copied from."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from fx_lsp.tracing.source.parsing import walk

_ORIGINAL = "original"
"""The function of a generated file that contains the user's code."""


def own_line(generated: str, line: int, source: str) -> int:
    """Return the line of a source that a line of the generated file was copied from, both from 1; 0 if there is none.

    A function of both has the same syntax, in which only the breaks between lines differ.
    """
    around = [(name, node) for name, node in _functions(generated) if node.lineno <= line <= (node.end_lineno or 0)]
    if not around:
        return 0
    name, copied = around[-1]
    owns = (node for own, node in _functions(source) if own == name and ast.dump(node) == ast.dump(copied))
    own = next(owns, None)
    if own is None:
        return 0
    pairs = zip(walk(copied), walk(own), strict=True)
    at_line = [own.lineno for copy, own in pairs if _begins(copy) and _begins(own) and copy.lineno == line]
    return min(at_line, default=0)


def _begins(node: ast.AST) -> TypeGuard[ast.stmt | ast.expr]:
    return isinstance(node, (ast.stmt, ast.expr))


def _functions(text: str) -> list[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return the functions of a text with their qualified names, an outer one before those in it; without `original`
    around the user's code.
    """
    every = _defined(ast.parse(text).body, ())
    inside = ((name[1:] if name[:1] == (_ORIGINAL,) else name, node) for name, node in every)
    return [(name, node) for name, node in inside if name]


def _defined(
    body: Sequence[ast.stmt], outer: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef | ast.AsyncFunctionDef]]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = (*outer, statement.name)
            if not isinstance(statement, ast.ClassDef):
                yield name, statement
            yield from _defined(statement.body, name)
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _defined(getattr(statement, field, []), outer)
