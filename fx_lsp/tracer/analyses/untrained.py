"""Layers of a module that its results do not train: nothing reads them, or what is computed from them is detached."""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from fx_lsp.model import Remark, Span
from fx_lsp.tracer.capture.untrained import Untrained

_BY_ANY_NAME = frozenset({"getattr", "vars", "__dict__", "_modules", "children", "named_children", "get_submodule"})
"""What code reads attributes with, of which it does not say the names."""
_MEANT = frozenset({"detach", "detach_", "no_grad", "inference_mode", "set_grad_enabled"})
"""How code says itself that nothing is to be trained through a value."""


def untrained_layers(
    cls: type, definition: ast.ClassDef, file: str, untrained: Iterable[Untrained], parameters: Iterable[str]
) -> Iterator[Remark]:
    """Tell of attributes of a module none of whose `parameters` gets a gradient, where its class assigns them.

    Of what is not used, only what no method of the class reads: another one than this may be called, too. Of what is
    used, only where no method of the class says that values have no gradients.
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
            told = f"`self.{attribute}` gets no gradient: no result depends on it differentiably"
            yield Remark(told, places[attribute], code="no-gradient")
        elif not any(used[name] for name in names) and not reads & {attribute, *_BY_ANY_NAME}:
            told = f"`self.{attribute}` gets no gradient: the class does not use it"
            yield Remark(told, places[attribute], code="no-gradient")


def _reads(cls: type) -> set[str]:
    """Return the names that methods of a class and of its bases read, also those in quotes; not those of PyTorch's."""
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
    """Return where a class assigns attributes of `self`."""
    places: dict[str, Span] = {}
    for node in ast.walk(definition):
        is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        if isinstance(node, ast.Attribute) and is_own and isinstance(node.ctx, ast.Store):
            span = Span(file, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
            places.setdefault(node.attr, span)
    return places
