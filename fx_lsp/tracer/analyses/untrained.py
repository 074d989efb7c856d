"""Find layers of a module that get no gradient from its results: they are unused, or their results are detached."""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from fx_lsp.messages.findings import NO_GRADIENT, NO_GRADIENT_OF_UNUSED
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.capture.untrained import Untrained

_BY_ANY_NAME = frozenset({"getattr", "vars", "__dict__", "_modules", "children", "named_children", "get_submodule"})
"""Names with which code reads attributes without naming them."""
_MEANT = frozenset({"detach", "detach_", "no_grad", "inference_mode", "set_grad_enabled"})
"""Names with which code declares that a value has no gradient."""


def untrained_layers(
    cls: type, definition: ast.ClassDef, file: str, untrained: Iterable[Untrained], parameters: Iterable[str]
) -> Iterator[Remark]:
    """Yield remarks on attributes of a module none of whose `parameters` gets a gradient, at their assignment in the
    class.

    An unused attribute counts only if no method of the class reads it, because other methods may be called, too. A used
    one counts only if no method of the class declares values without gradients.
    """
    used = {parameter.name: parameter.is_used for parameter in untrained}
    by_attribute: dict[str, list[str]] = {}
    for name in parameters:
        by_attribute.setdefault(name.partition(".")[0], []).append(name)
    reads, places = _reads(cls), assignments(definition, file)
    for attribute, names in by_attribute.items():
        if attribute not in places or not all(name in used for name in names):
            continue
        if all(used[name] for name in names) and not reads & _MEANT:
            yield NO_GRADIENT.remark(places[attribute], attribute=attribute)
        elif not any(used[name] for name in names) and not reads & {attribute, *_BY_ANY_NAME}:
            yield NO_GRADIENT_OF_UNUSED.remark(places[attribute], attribute=attribute)


def _reads(cls: type) -> set[str]:
    """Return the names that methods of a class and of its bases read, also in quotes, excluding PyTorch's own."""
    own = [base for base in cls.__mro__ if base.__module__.partition(".")[0] not in ("torch", "builtins")]
    waiting = [code for base in own for member in vars(base).values() for code in _codes(member)]
    names: set[str] = set()
    while waiting:
        code = waiting.pop()
        names |= {
            step.argval for step in dis.get_instructions(code) if step.opname.startswith("LOAD_") and step.argrepr
        }
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return names


def _codes(member: Any) -> Iterator[CodeType]:
    """Yield the code of a member of a class: a function, or one behind a decorator."""
    for function in (member, *(getattr(member, name, None) for name in ("fget", "fset", "__func__", "func"))):
        code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def assignments(definition: ast.ClassDef, file: str) -> dict[str, Span]:
    """Return the places where a class assigns attributes of `self`."""
    places: dict[str, Span] = {}
    for node in ast.walk(definition):
        is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        if isinstance(node, ast.Attribute) and is_own and isinstance(node.ctx, ast.Store):
            span = Span(file, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
            places.setdefault(node.attr, span)
    return places
