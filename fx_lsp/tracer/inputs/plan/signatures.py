"""What Python itself says of a callable's parameters."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from fx_lsp.tracer.run.functions import innermost, is_operator


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature of a callable, or None where Python cannot read one."""
    try:
        return inspect.signature(innermost(function) if is_operator(function) else function)
    except (TypeError, ValueError):
        return None


def hints_of(function: Any, module: ModuleType) -> dict[str, Any]:
    """Evaluated annotations; those that cannot be evaluated stay as text."""
    function = innermost(function)
    raw: dict[str, Any] = dict(getattr(function, "__annotations__", {}))
    namespace = getattr(function, "__globals__", None) or vars(sys.modules.get(module.__name__, module))
    hints: dict[str, Any] = {}
    for name, annotation in raw.items():
        try:
            hints[name] = typing.get_type_hints(_Holder({name: annotation}), namespace, include_extras=True)[name]
        except Exception:
            hints[name] = annotation
    return hints


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` with the parameters of its `forward`, which may be given by name.

    Defaults are given, too: its `backward` may ask for what each argument needs.
    """
    signature = inspect.signature(function.forward)
    if function.setup_context is torch.autograd.Function.setup_context:
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.wraps(function.forward)
    def apply(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return function.apply(*given.args)

    apply.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    return apply


def takes_any(signature: inspect.Signature) -> bool:
    """Whether there is a `**kwargs`."""
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())


class _Holder:
    def __init__(self, annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations
