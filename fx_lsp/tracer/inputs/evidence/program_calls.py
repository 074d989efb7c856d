"""Offer the arguments that a program in this process has passed to the target."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.plan.plans import Plan, SequencePlan, TensorPlan, ValuePlan
from fx_lsp.tracer.inputs.plan.values import proposals, tensors
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.program.absences import Absent


def offers_of_program(task: Task, signature: inspect.Signature, hints: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield the arguments of a call; call it inside the fake mode.

    First without those whose shapes are annotated, if there are any.
    """
    for seen in task.seen:
        offer = _with_guesses(seen, task)
        rest = {name: plan for name, plan in offer.args.items() if not _is_stated(name, signature, hints, task)}
        if len(rest) < len(offer.args):
            yield replace(offer, args=rest)
        yield offer


def _is_stated(name: str, signature: inspect.Signature, hints: Mapping[str, Any], task: Task) -> bool:
    """Return True if the annotation of a parameter states its shape."""
    parameter = signature.parameters.get(name)
    if parameter is None or name not in hints:
        return False
    first = proposals(parameter, hints[name], Facts(), set(), task.context)[0]
    return isinstance(first, TensorPlan) and first.source == "annotation"


def is_absent(plan: Plan) -> bool:
    """Return True for an absent value, and for a list that contains one: its length is meaningless."""
    if isinstance(plan, SequencePlan) and plan.keys is None:
        return any(map(is_absent, plan.items))
    return isinstance(plan, ValuePlan) and isinstance(plan.make(), Absent)


def has_absent(plan: Plan) -> bool:
    """Return True for an absent value, and for a list or a dictionary that contains one."""
    return any(map(has_absent, plan.items)) if isinstance(plan, SequencePlan) else is_absent(plan)


def _with_guesses(offer: Offer, task: Task) -> Offer:
    """Return an offer with guesses for absent values in its dictionaries: their keys are known."""

    def guessed(name: str, plan: Plan) -> Plan:
        if isinstance(plan, SequencePlan):
            names = plan.keys or (name,) * len(plan.items)
            return replace(plan, items=tuple(guessed(str(n), p) for n, p in zip(names, plan.items, strict=True)))
        return tensors(name, Facts(), set(), task.context)[0] if is_absent(plan) else plan

    args = {name: guessed(name, plan) for name, plan in offer.args.items()}
    init = {name: guessed(name, plan) for name, plan in offer.init.items()} if offer.init is not None else None
    return replace(offer, args=args, init=init)
