"""The target with an optional tensor that a call leaves out: what is wrong with that, and its own call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from fx_lsp.model import Failure, Remark, TargetVariant, Unreached
from fx_lsp.tracer.failures.exceptions import failure_of
from fx_lsp.tracer.inputs.candidate import Candidate
from fx_lsp.tracer.inputs.evidence.requirements import compared_with_none
from fx_lsp.tracer.inputs.outcome import Prepared, note_stopped, prepared_call, search_candidate, severity_of
from fx_lsp.tracer.inputs.plan.plans import (
    Plan,
    Plans,
    TensorPlan,
    input_specs,
)
from fx_lsp.tracer.inputs.remarks import MAX_CALLS_RETRACED, remarks_of
from fx_lsp.tracer.inputs.search import search_failure
from fx_lsp.tracer.inputs.settle import settle
from fx_lsp.tracer.inputs.solve.attempt import Attempt
from fx_lsp.tracer.inputs.task import MIN_SECONDS

MAX_VARIANTS = 2
"""With how many of its optional tensors a target is run besides."""
VARIANT_SECONDS = 1.0
"""The seconds of the search for what such a tensor may be."""


@dataclass(frozen=True)
class Optional:
    """Hold what a run of a target with its optional tensors shows: what is wrong with that, its variants, and which of
    the code that was not reached they reach."""

    unreached: tuple[Unreached, ...]
    remarks: tuple[Remark, ...] = ()
    variants: tuple[TargetVariant, ...] = ()


def with_optional_arguments(candidate: Candidate, ran: Attempt, code: tuple[Unreached, ...]) -> Optional:
    """Look at the code behind `if targets is not None`, which a call without targets does not reach."""
    optional = Optional(code)
    if candidate.node is None or candidate.task.request.work:
        return optional
    asked = compared_with_none(candidate.node)
    for name, tensor in islice(_optional_tensors(candidate, ran.plans, asked), MAX_VARIANTS):
        more = _with_optional_argument(candidate, ran, name, tensor, optional.unreached)
        remarks = (remark for remark in more.remarks if remark not in optional.remarks)
        variants = (*optional.variants, *more.variants)
        optional = Optional(more.unreached, (*optional.remarks, *remarks), variants)
    return optional


def _with_optional_argument(
    candidate: Candidate, ran: Attempt, name: str, tensor: TensorPlan, code: tuple[Unreached, ...]
) -> Optional:
    """Look at what a target does with one more argument; without time for that, the variant has a name alone."""
    task, untried = candidate.task, Optional(code, variants=(TargetVariant(name),))
    if task.seconds <= MIN_SECONDS or ran.run.calls > MAX_CALLS_RETRACED:
        return untried
    budget, before = min(task.seconds, VARIANT_SECONDS), task.seconds
    outcome = search_candidate(_with_argument(candidate, name), ran.plans.with_plan(name, tensor), budget)
    run = outcome.best.run
    inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
    if run.error is None:
        reached = [u.span for u in code if u.span.line in run.coverage.lines]
        values = tuple(v for v in run.values if any(span.contains(v.span) for span in reached))
        code = tuple(dataclasses.replace(u, variants=(*u.variants, name)) if u.span in reached else u for u in code)
        return Optional(
            code, remarks_of(candidate, outcome.best, outcome.failures), (TargetVariant(name, inputs, values),)
        )
    bad, run = severity_of(candidate, outcome), outcome.best.run
    assert run.error is not None
    inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
    failure = failure_of(run.error, task.sources, run.failed, task.lines, bad, inputs)
    if bad != "information" and failure.span is not None:
        spec = next(spec.spec for spec in inputs if spec.name.partition("[")[0] == name)
        remark = Remark(f"{failure.message}, with {name} {spec}", failure.span, bad)
        return Optional(code, (remark,), (TargetVariant(name, inputs),))
    return untried if before - task.seconds >= budget else Optional(code)


def _with_argument(candidate: Candidate, name: str) -> Candidate:
    """A candidate whose argument `name` may be anything but the None that it is by default."""
    others = [plan for plan in candidate.alternatives.get(name, ()) if not _is_none(plan)]
    return dataclasses.replace(candidate, alternatives={**candidate.alternatives, name: others})


def prepared_variant(candidate: Candidate, ran: Attempt, name: str) -> Prepared | Failure:
    """Find a call with one more argument than a target was run with, an optional tensor; if there is none, say why."""
    task = candidate.task
    tensor = dict(_optional_tensors(candidate, ran.plans, {name})).get(name)
    if tensor is None:
        return Failure("unsupported", f"{task.request.name} has no optional tensor {name!r} that it was traced without")
    candidate = _with_argument(candidate, name)
    outcome = search_candidate(candidate, ran.plans.with_plan(name, tensor), task.seconds)
    settled = settle(task, outcome, candidate.written.named, candidate.call_of, candidate.alternatives)
    if settled is None:
        bad = severity_of(candidate, outcome)
        inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
        failure = search_failure(task, outcome, bad, inputs)
        note_stopped(candidate, outcome.best, inputs, failure)
        return failure
    prepared = prepared_call(candidate, settled, None)
    return dataclasses.replace(prepared, notes=[f"with {name}, which is None by default", *prepared.notes])


def _optional_tensors(candidate: Candidate, plans: Plans, asked: set[str]) -> Iterator[tuple[str, TensorPlan]]:
    """The parameters that are None by default and may be a tensor, which the code asks about."""
    for name, plan in plans.items:
        is_default = _is_none(plan) and getattr(plan, "source", "") == "default"
        tensor = next((p for p in candidate.alternatives.get(name, []) if isinstance(p, TensorPlan)), None)
        if name in asked and is_default and tensor is not None:
            yield name, tensor


def _is_none(plan: Plan) -> bool:
    return getattr(plan, "shown", "") == "None"
