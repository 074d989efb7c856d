"""Inputs that a file offers by a convention: `get_inputs()`, `get_init_inputs()`, `example_inputs`."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from torch import nn

from fx_lsp.tracer.inputs.plan import Plan, Plans, plan_of_made


def init_arguments(module: ModuleType) -> tuple[Any, str] | None:
    """What `get_init_inputs()` returns, and how to call that source; None where there is none."""
    maker = getattr(module, "get_init_inputs", None)
    if not callable(maker):
        return None
    try:
        return maker(), "get_init_inputs()"
    except Exception:
        return None


def input_plans(module: ModuleType, signature: inspect.Signature, for_module: bool) -> Plans | None:
    """Plans from `get_inputs()` (for modules) or `example_inputs`; None where there are none or they do not bind."""
    maker = getattr(module, "get_inputs", None)
    made: Any = None
    detail = "get_inputs()"
    if callable(maker) and for_module:
        try:
            made = maker()
        except Exception:
            return None
    elif hasattr(module, "example_inputs"):
        made, detail = module.example_inputs, "example_inputs"
        made = made() if callable(made) else made
    if not isinstance(made, (list, tuple, dict)):
        return None
    try:
        bound = signature.bind(*made) if not isinstance(made, dict) else signature.bind(**made)
    except TypeError:
        return None
    items: list[tuple[str, Plan]] = []
    positional: set[str] = set()
    for name, given in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            return None
        items.append((name, plan_of_made(given, "convention", detail)))
        if kind is not inspect.Parameter.KEYWORD_ONLY:
            positional.add(name)
    return Plans(tuple(items), frozenset(positional))


def only_module(module: ModuleType) -> bool:
    """Whether the file defines one nn.Module class, so that its `get_inputs()` can only be meant for that."""
    classes = [
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, nn.Module) and v.__module__ == module.__name__
    ]
    return len(classes) == 1
