"""Read a callable's parameters with `inspect`."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

import torch

from fx_lsp.tracer.run.callables import innermost, is_operator


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a callable, or None if Python cannot read one."""
    try:
        return inspect.signature(innermost(function) if is_operator(function) else function)
    except (TypeError, ValueError):
        return None


def hints_of(function: Any, module: ModuleType) -> dict[str, Any]:
    """Return evaluated annotations; those that cannot be evaluated stay text."""
    function = innermost(function)
    raw: dict[str, Any] = dict(getattr(function, "__annotations__", {}))
    namespace = getattr(function, "__globals__", None) or vars(sys.modules.get(module.__name__, module))
    hints: dict[str, Any] = {}
    for name, annotation in raw.items():
        try:
            hints[name] = _evaluated(annotation, namespace)
        except Exception:
            namespace = _with_imports_for_types(namespace)
            with suppress(Exception):
                annotation = _evaluated(annotation, namespace)
            hints[name] = annotation
    return hints


def constructor_hints(cls: type, module: ModuleType) -> dict[str, Any]:
    """Return the annotations of a constructor, and those of base classes for equally named parameters without any."""
    constructors = [vars(kind)["__init__"] for kind in cls.__mro__[:-1] if "__init__" in vars(kind)]
    return {name: hint for each in reversed(constructors) for name, hint in hints_of(each, module).items()}


def _evaluated(annotation: Any, namespace: dict[str, Any]) -> Any:
    return typing.get_type_hints(_Holder({"it": annotation}), namespace, include_extras=True)["it"]


def _with_imports_for_types(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the names of a module with its imports under `if TYPE_CHECKING:`, which annotations use."""
    text = "".join(linecache.getlines(namespace.get("__file__") or ""))
    if "TYPE_CHECKING" not in text:
        return namespace
    complete = dict(namespace)
    with suppress(SyntaxError):
        guards = (n for n in ast.parse(text).body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))
        for statement in (statement for guard in guards for statement in guard.body):
            with suppress(Exception):
                exec(ast.unparse(statement), complete)
    return complete


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return `function.apply` with the parameters of its `forward`, which may be passed by name.

    Defaults are passed explicitly, because `backward` may query `needs_input_grad` of each argument.
    """
    signature = inspect.signature(function.forward)
    if function.setup_context is torch.autograd.Function.setup_context:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.wraps(function.forward)
    def apply(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return function.apply(*bound.args)

    apply.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    return apply


def bound(
    signature: inspect.Signature, args: Iterable[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments | None:
    """Return the arguments by the parameters that they bind to, or None if they do not."""
    try:
        return signature.bind(*args, **kwargs)
    except TypeError:
        return None


def takes_any(signature: inspect.Signature) -> bool:
    """Return True if there is a `**kwargs`."""
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())


class _Holder:
    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations
