"""Find functions that a program only calls without recording gradients, as an optimizer does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_MODES = ("no_grad", "inference_mode")


def runs_without_gradients(tree: ast.Module, name: str, around: frozenset[str] = frozenset()) -> bool:
    """Return True if a file calls a function, and only under `torch.no_grad()`; `around` are the functions already
    visited.
    """
    calls = list(_calls(tree, name, "", False))
    if not calls or name in around:
        return False
    return all(is_off or runs_without_gradients(tree, caller, around | {name}) for caller, is_off in calls)


def _calls(node: ast.AST, name: str, caller: str, is_off: bool) -> Iterator[tuple[str, bool]]:
    """Yield the enclosing function of each call, and whether gradients are off there."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        caller, is_off = node.name, _switches(node.decorator_list)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        is_off = is_off or _switches([item.context_expr for item in node.items])
    elif isinstance(node, ast.Call) and _name_of(node.func) == name:
        yield caller, is_off
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, name, caller, is_off)


def _switches(modes: Sequence[ast.expr]) -> bool:
    return any(_name_of(mode.func if isinstance(mode, ast.Call) else mode) in _MODES for mode in modes)


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
