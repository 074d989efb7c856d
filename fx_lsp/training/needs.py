"""Leave out what the results of a step do not need: statements that bind or change nothing that they read."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from fx_lsp.syntax import DEFINITIONS, blocks_of
from fx_lsp.training.statements import LOOPS, header_names, names_in

_LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Raise, ast.Global, ast.Nonlocal)
_CHANGING = frozenset({"train", "eval", "append", "extend", "insert", "update", "add", "pop", "remove", "setdefault"})
"""Methods that change an object, besides those whose names end in an underscore."""


def needed(block: Sequence[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """Return the statements of a block that bind or change one of some names, and those that they need; each name that
    they read is added to `names`.
    """
    kept: list[ast.stmt] = []
    for node in reversed(block):
        if _is_needed(node, names):
            kept.append(node)
    return kept[::-1]


def _is_needed(node: ast.stmt, names: set[str]) -> bool:
    inner = blocks_of(node) if not isinstance(node, DEFINITIONS) else []
    if inner:
        rests = [needed(part, names) for part in reversed(inner)][::-1]
        if isinstance(node, LOOPS):  # an iteration may need what an earlier one binds
            rests = [needed(part, names) for part in reversed(inner)][::-1]
        if not any(rests):
            return False
        for part, rest in zip(inner, rests, strict=True):
            part[:] = rest or [ast.copy_location(ast.Pass(), part[0])]
        names |= header_names(node, ast.Load)
        return True
    if not isinstance(node, _LEAVING) and names.isdisjoint(_changed_by(node)):
        return False
    names |= names_in(node, contexts=ast.Load)
    return True


def _changed_by(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds, and those of the objects that it changes."""
    names = names_in(node, contexts=(ast.Store, ast.Del)) if not isinstance(node, DEFINITIONS) else {node.name}
    for part in ast.walk(node):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, (ast.Store, ast.Del)):
            names |= _root_of(part)
    match node:
        case ast.Expr(ast.Call(ast.Attribute(receiver, method))) if method.endswith("_") or method in _CHANGING:
            names |= _root_of(receiver)
        case _:
            pass
    return names


def _root_of(node: ast.expr) -> set[str]:
    """Return `model` of `model.blocks[0]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()
