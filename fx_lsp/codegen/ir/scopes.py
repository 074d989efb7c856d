"""Find and rename the free names in Python text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@lru_cache(maxsize=2048)
def names_from_outside(text: str) -> frozenset[str]:
    """Return the free names in Python text: of `lambda x: f(x)`, `f`."""
    return frozenset(use.id for use in _uses(ast.parse(text), frozenset()))


def rename_calls(text: str, old: str, new: str) -> str:
    """Return Python text with calls of `old` replaced by calls of `new`.

    Names bound by a function around the call, and uses that are not calls, stay unchanged.
    """
    tree = ast.parse(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    uses = [use for use in _uses(tree, frozenset()) if use.id == old and id(use) in called]
    return _replaced(text, [(use.lineno, use.col_offset) for use in uses], old, new)


def rename_definition(text: str, new: str) -> str:
    """Return the text of a function under another name."""
    definition = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    return _replaced(text, [(definition.lineno, definition.col_offset + len("def "))], definition.name, new)


def _uses(node: ast.AST, bound: frozenset[str]) -> Iterator[ast.Name]:
    """Yield the names below a node that are not `bound`, either here or by a function below it."""
    if isinstance(node, ast.Name) and node.id not in bound:
        yield node
    own = frozenset(_bound_in(node)) if isinstance(node, _FUNCTIONS) else frozenset[str]()
    body = node.body if isinstance(node, _FUNCTIONS) else ()
    inside = set(map(id, body if isinstance(body, (list, tuple)) else [body]))
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, bound | own if id(child) in inside else bound)


def _bound_in(function: ast.AST) -> Iterator[str]:
    """Yield the names that a function binds: parameters, assignments, definitions and imports."""
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, _DEFINITIONS):
            yield node.name
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            stack.extend(ast.iter_child_nodes(node))


def _replaced(text: str, places: Iterable[tuple[int, int]], old: str, new: str) -> str:
    """Return a text with a name replaced at some places. A place is a line, from 1, and a column in bytes."""
    lines = [line.encode() for line in text.split("\n")]
    for number, column in sorted(places, reverse=True):
        line = lines[number - 1]
        lines[number - 1] = line[:column] + new.encode() + line[column + len(old.encode()) :]
    return b"\n".join(lines).decode()
