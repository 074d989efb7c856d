"""Choose the plans that a search starts from: for each parameter its given plan, or the first proposal."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import Any

from torch import nn

from fx_lsp.model import InputSpec
from fx_lsp.specs import parse_spec
from fx_lsp.tracer.inputs.plan.facts import Facts, Use
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, SequencePlan, ValuePlan, input_specs
from fx_lsp.tracer.inputs.plan.signatures import takes_any
from fx_lsp.tracer.inputs.plan.values import Context, modules_called, proposals, tensors

Alternatives = dict[str, list[Plan]]
_NO_TENSORS = (int, float, bool, str)
"""Annotations of values without attributes of tensors, whatever an equally named parameter is."""
_SEVERAL: frozenset[Use] = frozenset({"indexed", "iterated", "modules"})
"""Uses that exclude a single number, whatever an equally named parameter is."""


def start_plans(
    signature: inspect.Signature,
    hints: Mapping[str, Any],
    facts: Mapping[str, Facts],
    plans: Mapping[str, Plan],
    context: Context,
) -> tuple[Plans, Alternatives]:
    """Return the first plans for a call, and the alternatives for each parameter without a given value."""
    items: list[tuple[str, Plan]] = []
    alternatives: Alternatives = {}
    positional: set[str] = set()
    starred: str | None = None
    used_sizes: set[int] = set()
    context = dataclasses.replace(context, named={})
    unknown = (name for name in signature.parameters if name not in hints)
    lent = context.lent([n for n in unknown if not facts.get(n, Facts()).uses & _SEVERAL])
    lent = {n: a for n, a in lent.items() if a not in _NO_TENSORS or "tensor" not in facts.get(n, Facts()).uses}
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            items += [(n, plan) for n, plan in plans.items() if n not in signature.parameters]
            continue
        if name in plans:
            plan = plans[name]
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            alternatives[name] = _spread(name, facts.get(name, Facts()), used_sizes, context)
            plan = alternatives[name][0]
        else:
            asserted = _evaluated(facts[name].instance_of, context.module) if name in facts else None
            annotation = hints.get(name, asserted or lent.get(name, parameter.annotation))
            alternatives[name] = proposals(parameter, annotation, facts.get(name, Facts()), used_sizes, context)
            plan = alternatives[name][0]
        items.append((name, plan))
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            starred = name
        elif parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            positional.add(name)
        used_sizes |= Plans(tuple(items)).sizes()
    return Plans(tuple(items), frozenset(positional), starred, takes_any(signature)), alternatives


def passed(signature: inspect.Signature, arguments: Mapping[str, Plan]) -> Plans:
    """Return the plans for the arguments that a program passed, by position and by name as the signature requires."""
    parameters = [p for p in signature.parameters.values() if p.name in arguments]
    items = {p.name: arguments[p.name] for p in parameters} | dict(arguments)
    starred = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    by_position = {p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return Plans(tuple(items.items()), frozenset(by_position), starred, takes_any(signature))


def _spread(name: str, facts: Facts, used_sizes: set[int], context: Context) -> list[Plan]:
    """Return proposals for `*args`: as many tensors as the body unpacks, two or modules if it uses them, none if it
    only passes them on.
    """
    if context.constructing:
        return [SequencePlan(modules_called(facts) if "modules" in facts.uses else ())]
    first = tensors(name, Facts(), used_sizes, context)
    counts = (facts.item_count,) if facts.item_count else (2, 1, 3)
    several: list[Plan] = [SequencePlan((plan,) * n) for n in counts for plan in first[:2]]
    return [*several, SequencePlan(())] if facts.uses else [SequencePlan(()), *several]


def resumed(start: Plans, alternatives: Alternatives, previous: Sequence[InputSpec], prefix: str = "") -> Plans:
    """Return the plans with the results of an earlier search, if they are still among the alternatives.

    Only the inputs in `previous` whose names begin with `prefix` count.
    """
    specs_by_path = {i.name.removeprefix(prefix): i for i in previous if i.name.startswith(prefix)}
    plans = start
    for name, options in alternatives.items():
        plan = next((r for option in options if (r := _as_before(option, name, specs_by_path)) is not None), None)
        if plan is not None:
            plans = plans.with_plan(name, plan)
    return plans


def _as_before(plan: Plan, path: str, specs_by_path: Mapping[str, InputSpec]) -> Plan | None:
    """Return `plan` with the earlier tensors at its paths; None if other values were there."""
    if isinstance(plan, SequencePlan):
        items = [_as_before(p, where, specs_by_path) for where, p in zip(plan.paths(path), plan.items, strict=True)]
        complete = [p for p in items if p is not None]
        longer = f"{path}[{len(items)}]" in specs_by_path
        return None if longer or len(complete) < len(items) else dataclasses.replace(plan, items=tuple(complete))
    before = specs_by_path.get(path)
    if before is None:
        return None
    if isinstance(plan, ValuePlan):
        return plan if plan.shown == before.spec and plan.source == before.source else None
    spec = parse_spec(before.spec)
    if not before.is_guess or spec is None or len(spec.sizes) != len(plan.spec.sizes):
        return None
    if plan.dtype_known and spec.dtype != plan.spec.dtype:
        return None
    return dataclasses.replace(
        plan, spec=spec, detail=before.detail, grad=plan.grad and "gradient" not in before.detail
    )


def is_given(plans: Plans) -> bool:
    """Return True if no argument was guessed, and at least one comes neither from a default nor from an annotation."""
    return all(not i.is_guess for i in input_specs(plans)) and any(
        i.source not in ("default", "annotation") for i in input_specs(plans)
    )


def needs_objects(signature: inspect.Signature, hints: Mapping[str, Any]) -> bool:
    """Return True if a parameter without default is a module, which a caller has and which cannot be guessed."""
    return any(
        isinstance(hint := hints.get(name), type) and issubclass(hint, nn.Module)
        for name, parameter in signature.parameters.items()
        if parameter.default is inspect.Parameter.empty
    )


def says_little(signature: inspect.Signature, hints: Mapping[str, Any]) -> bool:
    """Return True if several parameters are required and unannotated: only a caller knows how they belong together."""
    required = (n for n, p in signature.parameters.items() if p.default is p.empty and n not in hints)
    return len(list(required)) > 1


def lent_annotations(tree: ast.Module, module: ModuleType, names: Collection[str]) -> dict[str, Any]:
    """Return annotations for parameters without one, from equally named parameters elsewhere in the module's file."""
    lent: dict[str, Any] = {}
    for node in ast.walk(tree) if names else ():
        if isinstance(node, ast.arg) and node.arg in names and node.arg not in lent and node.annotation is not None:
            annotation = _evaluated(ast.unparse(node.annotation), module)
            lent |= {node.arg: annotation} if annotation is not None else {}
    return lent


def _evaluated(text: str, module: ModuleType) -> Any:
    """Return the value of an expression in the user's module; None if it raises."""
    try:
        return eval(text, module.__dict__) if text else None
    except Exception:
        return None
