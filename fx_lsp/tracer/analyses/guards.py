"""Read the guards of code that Dynamo has compiled: the one that a call does not meet, what it reads, and its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fx_lsp.tracer.pytorch_texts import GUARDED_VARIABLE, PLACE_OF_GUARD, TENSOR_GUARD, TYPE_GUARD


@dataclass(frozen=True)
class FailedGuard:
    """Hold a guard of compiled code that a call does not meet.

    `condition` is an expression of Python, or PyTorch's sentence about the tensor `source`; `source` is what the guard
    reads, as an expression in which `L` are the local variables of the frame, or "" for an expression that reads
    several. `variables` are the local variables that it reads. `place` is the end of a file's path with a line of it:
    the user's code that needs the guard, or None.
    """

    condition: str
    source: str
    variables: tuple[str, ...]
    place: tuple[str, int] | None


def failed_guard(manager: Any, variables: Mapping[str, Any]) -> FailedGuard | None:
    """Return the first guard of compiled code that the variables of a frame do not meet; None if they meet all."""
    checked = getattr(manager, "check_verbose", lambda _: None)(variables)
    if checked is None or checked.result:
        return None
    parts = list(checked.verbose_code_parts)
    part = parts[0] if len(parts) == 1 else next(filter(lambda p: _is_false(p, manager, variables), parts), "")
    tensor, places = TENSOR_GUARD.match(part), PLACE_OF_GUARD.findall(part)
    stack = getattr(checked, "user_stack", None) or ()
    place = (stack[-1].filename, stack[-1].lineno) if stack else (places[-1][0], int(places[-1][1])) if places else None
    condition = part.partition("  # ")[0].strip()
    read = tensor[1] if tensor is not None else condition
    sources = sources_in(read)
    return FailedGuard(condition, sources[0] if len(sources) == 1 else "", variables_in(read), place)


def _is_false(condition: str, manager: Any, variables: Mapping[str, Any]) -> bool:
    """Return True if a condition of a guard is false for the variables of a frame."""
    scope = {"L": variables, "G": manager.global_scope["G"], **manager.closure_vars}
    try:
        return not eval(condition, dict(manager.global_scope), scope)
    except Exception:
        return False


def sources_in(condition: str) -> tuple[str, ...]:
    """Return the parts of variables that the condition of a guard reads: `L['x'].size()[0]`; none if it is a
    sentence.
    """
    try:
        return tuple(dict.fromkeys(_sources(ast.parse(condition, mode="eval").body)))
    except SyntaxError:
        return ()


def variables_in(condition: str) -> tuple[str, ...]:
    """Return the local variables that the condition of a guard reads; none if it is a sentence."""
    return tuple(dict.fromkeys(GUARDED_VARIABLE.findall(" ".join(sources_in(condition)))))


def readable_guard(condition: str) -> str:
    """Return the condition of a guard with variables as the code has them: `n == 3` for `L['n'] == 3`, and `type(n) is
    int` for a check of a type.
    """
    named = GUARDED_VARIABLE.sub(r"\1", condition)
    checked = TYPE_GUARD.fullmatch(named)
    return f"type({checked[1]}) is {checked[2]}" if checked is not None else named


def _sources(node: ast.AST) -> Iterator[str]:
    inner: ast.AST = node
    while isinstance(inner, (ast.Subscript, ast.Attribute, ast.Call)):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    if isinstance(inner, ast.Name) and inner.id in ("L", "G") and inner is not node:
        yield ast.unparse(node)
        return
    for child in ast.iter_child_nodes(node):
        yield from _sources(child)
