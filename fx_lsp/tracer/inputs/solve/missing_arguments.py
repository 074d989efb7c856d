"""Supply missing arguments: those that `**kwargs` passes on, and tensors for defaults."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import nn

from fx_lsp.tracer.failures.frames import expressions_raising, value_in
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, ValuePlan
from fx_lsp.tracer.inputs.plan.signatures import hints_of, signature_of
from fx_lsp.tracer.inputs.plan.values import TENSOR_ATTRIBUTES, proposals, tensors
from fx_lsp.tracer.inputs.solve.attempt import Attempt, mentioned_names, missing_name
from fx_lsp.tracer.source.likely_numbers import number_named


@dataclasses.dataclass(frozen=True)
class _Lacking:
    """Hold a function or a class, by its dotted name `path`, that was called without the arguments `names`."""

    function: Any
    path: str
    names: tuple[str, ...]


def passed_on(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with the arguments that a receiver of `**kwargs` lacks: `Net(dim, **kwargs)`, `kwargs["eps"]`."""
    if not attempt.plans.takes_more:
        return
    lacking = _lacking(attempt)
    missing = missing_name(attempt.run.error)
    names = (
        lacking.names if lacking is not None else (missing.name,) if missing is not None and not missing.kind else ()
    )
    plans, present = attempt.plans, {name for name, _ in attempt.plans.items}
    for name in names:
        if name in present or not name.isidentifier():
            return
        proposed = _proposed(attempt, lacking, name)
        attempt.alternatives.setdefault(name, proposed)
        plans = plans.with_keyword(name, proposed[0])
    if names:
        yield plans


def _lacking(attempt: Attempt) -> _Lacking | None:
    """Return the missing arguments of the innermost call of the user, if that is why it failed; else None."""
    frame, call = next(expressions_raising(attempt.run.error, attempt.sources), (None, None))
    if not isinstance(attempt.run.error, TypeError) or frame is None or not isinstance(call, ast.Call):
        return None
    function = value_in(call.func, frame)
    function = _of_base(call.func, frame) if function is None else function
    function = function.forward if isinstance(function, nn.Module) else function
    signature = signature_of(function) if callable(function) else None
    if signature is None:
        return None
    passed = _given(call, frame, signature)
    required = (n for n, p in signature.parameters.items() if p.default is p.empty and p.kind not in _SPREAD)
    names = tuple(name for name in required if name not in passed)
    return _Lacking(function, ast.unparse(call.func), names) if names else None


def _of_base(called: ast.expr, frame: FrameType) -> Any:
    """Return the method of `super().__init__` in a frame; None for any other expression."""
    owner, instance = frame.f_locals.get("__class__"), frame.f_locals.get("self")
    if not isinstance(called, ast.Attribute) or ast.unparse(called.value) != "super()" or not isinstance(owner, type):
        return None
    return getattr(super(owner, instance), called.attr, None)


def _given(call: ast.Call, frame: FrameType, signature: inspect.Signature) -> set[str]:
    """Return the names of the parameters that a call passes."""
    spread = [value_in(a.value, frame) for a in call.args if isinstance(a, ast.Starred)]
    mappings = [value_in(k.value, frame) for k in call.keywords if k.arg is None]
    named = {k.arg for k in call.keywords if k.arg}
    named.update(name for mapping in mappings if isinstance(mapping, dict) for name in mapping)
    count = len(call.args) - len(spread) + sum(len(items) for items in spread if isinstance(items, (list, tuple)))
    positions = [n for n, p in signature.parameters.items() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    return {*named, *positions[:count]}


_SPREAD = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _proposed(attempt: Attempt, lacking: _Lacking | None, name: str) -> list[Plan]:
    """Return plans for a missing argument."""
    function = lacking.function if lacking is not None else None
    function = function.__init__ if isinstance(function, type) else function
    annotation = hints_of(function, attempt.context.module).get(name, inspect.Parameter.empty)
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    plans = proposals(parameter, annotation, Facts(), attempt.plans.sizes(), attempt.context)
    detail = f"for {lacking.path}" if lacking is not None else ""
    return [dataclasses.replace(p, detail=detail) if isinstance(p, ValuePlan) else p for p in plans]


def partially_applied(attempt: Attempt) -> Iterator[Plans]:
    """Return a class of layers, or a factory, with the numbers that the code expects its caller to bind.

    `which_conv(channels, 2 * channels)` expects `functools.partial(nn.Conv2d, kernel_size=3, padding=1)`.
    """
    lacking = _lacking(attempt)
    for name, plan in attempt.plans.items:
        if lacking is None or not isinstance(plan, ValuePlan) or plan.source not in ("default", "search"):
            continue
        factory = plan.make()
        if not callable(factory) or factory is not lacking.function:
            continue
        wanted = lacking.names
        numbers = {argument: number_named(argument) for argument in wanted}
        if "kernel_size" in numbers and "padding" in getattr(signature_of(factory), "parameters", ()):
            numbers["padding"] = numbers["kernel_size"] // 2
        shown = ", ".join([plan.shown, *(f"{argument}={number}" for argument, number in numbers.items())])
        partial = functools.partial(factory, **numbers)
        other = ValuePlan(lambda partial=partial: partial, f"functools.partial({shown})", "search", "from an error")
        yield attempt.plans.with_plan(name, other)


def tensor_for_default(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with a tensor for a parameter whose default is a number or None, and of which the code reads an
    attribute of tensors.
    """
    asked = missing_name(attempt.run.error)
    if asked is None or asked.kind not in _NO_TENSORS or asked.name not in TENSOR_ATTRIBUTES:
        return
    mentioned = mentioned_names(attempt)
    for name, plan in attempt.plans.items:
        if name in mentioned and isinstance(plan, ValuePlan) and plan.source == "default" and plan.kind == asked.kind:
            for tensor in tensors(name, Facts(), attempt.plans.sizes(), attempt.context):
                yield attempt.plans.with_plan(name, tensor)


_NO_TENSORS = frozenset({"int", "float", "bool", "NoneType"})
