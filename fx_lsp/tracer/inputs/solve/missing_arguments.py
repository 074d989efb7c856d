"""What the code asks for where nothing was given: arguments that `**kwargs` hands on, and tensors for defaults."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
from collections.abc import Iterator

from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, ValuePlan
from fx_lsp.tracer.inputs.plan.signatures import hints_of, signature_of
from fx_lsp.tracer.inputs.plan.values import TENSOR_ATTRIBUTES, proposals, tensors
from fx_lsp.tracer.inputs.solve.attempt import Attempt, mentioned_names
from fx_lsp.tracer.source.likely_numbers import number_named

_MISSING_ARGUMENTS = re.compile(r"([\w.]+)\(\) missing \d+ required (?:keyword-only|positional) arguments?: (.+)$")
_NOT_IN = re.compile(r"'(int|float|bool|NoneType)' object has no attribute '(\w+)'")


def handed_on(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Arguments that something lacks which is given `**kwargs`: `Net(dim, **kwargs)`, `kwargs["eps"]`."""
    if not attempt.plans.takes_more:
        return
    missing = _MISSING_ARGUMENTS.search(text) if isinstance(attempt.run.error, TypeError) else None
    key = re.fullmatch(r"'(\w+)'", text) if isinstance(attempt.run.error, KeyError) else None
    names = re.findall(r"'(\w+)'", missing[2] if missing else key[0] if key else "")
    plans, known = attempt.plans, {name for name, _ in attempt.plans.items}
    for name in names:
        if name in known:
            return
        found = _proposed(attempt, missing[1] if missing else "", name)
        attempt.alternatives.setdefault(name, found)
        plans = plans.with_keyword(name, found[0])
    if names:
        yield plans


def _proposed(attempt: Attempt, asking: str, name: str) -> list[Plan]:
    """Plans for an argument of what the target's module knows by the dotted name `asking`, if it does."""
    try:
        function = operator.attrgetter(asking)(attempt.context.module)
    except AttributeError:
        function = None
    annotation = hints_of(function, attempt.context.module).get(name, inspect.Parameter.empty)
    parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    found = proposals(parameter, annotation, Facts(), attempt.plans.sizes(), attempt.context)
    detail = f"for {asking}" if asking else ""
    return [dataclasses.replace(p, detail=detail) if isinstance(p, ValuePlan) else p for p in found]


def partially_applied(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A class of layers, or a factory, with the numbers that the code leaves to whoever chose it.

    `which_conv(channels, 2 * channels)` is meant for `functools.partial(nn.Conv2d, kernel_size=3, padding=1)`.
    """
    missing = _MISSING_ARGUMENTS.search(text) if isinstance(attempt.run.error, TypeError) else None
    for name, plan in attempt.plans.items:
        if missing is None or not isinstance(plan, ValuePlan) or plan.source not in ("default", "search"):
            continue
        factory = plan.make()
        if not callable(factory) or missing[1].removesuffix(".__init__") != getattr(factory, "__qualname__", ""):
            continue
        wanted = re.findall(r"'(\w+)'", missing[2])
        numbers = {argument: number_named(argument) for argument in wanted}
        if "kernel_size" in numbers and "padding" in getattr(signature_of(factory), "parameters", ()):
            numbers["padding"] = numbers["kernel_size"] // 2
        shown = ", ".join([plan.shown, *(f"{argument}={number}" for argument, number in numbers.items())])
        partial = functools.partial(factory, **numbers)
        other = ValuePlan(lambda partial=partial: partial, f"functools.partial({shown})", "search", "from an error")
        yield attempt.plans.with_plan(name, other)


def tensor_for_default(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A tensor for a parameter whose default is a number or None, and which the code asks what only tensors know."""
    asked = _NOT_IN.search(text)
    if asked is None or asked[2] not in TENSOR_ATTRIBUTES:
        return
    mentioned = mentioned_names(attempt)
    for name, plan in attempt.plans.items:
        if name in mentioned and isinstance(plan, ValuePlan) and plan.source == "default" and plan.kind == asked[1]:
            for found in tensors(name, Facts(), attempt.plans.sizes(), attempt.context):
                yield attempt.plans.with_plan(name, found)
