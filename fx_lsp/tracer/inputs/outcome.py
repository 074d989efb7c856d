"""What comes of a search over a candidate: a call that can be captured, or whose fault it is that there is none."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from fx_lsp.model import Failure, InputSpec, Remark, Severity, TargetVariant, Unreached
from fx_lsp.tracer.failures.exceptions import is_of_made_up
from fx_lsp.tracer.inputs.candidate import Candidate
from fx_lsp.tracer.inputs.plan.plans import (
    Plans,
    has_made_up_values,
    input_specs,
)
from fx_lsp.tracer.inputs.plan.start import is_given
from fx_lsp.tracer.inputs.reconstruct import reconstructions
from fx_lsp.tracer.inputs.remarks import demands_of
from fx_lsp.tracer.inputs.search import Found, reached, search
from fx_lsp.tracer.inputs.settle import Settled
from fx_lsp.tracer.inputs.solve.attempt import Attempt, attempt
from fx_lsp.tracer.inputs.solve.short_loops import with_few_steps
from fx_lsp.tracer.inputs.solve.verdict import (
    DeadEnd,
    are_numbers,
    choices_of_ranks,
    has_known_ranks,
    is_of_environment,
    is_own_fault,
    persists,
)
from fx_lsp.tracer.inputs.task import MIN_SECONDS
from fx_lsp.tracer.run.branches import unreached
from fx_lsp.tracer.run.call import Call, tensors_in
from fx_lsp.tracer.run.conditions import Conditions, under
from fx_lsp.tracer.run.observation import Run, Stopped

FEW_CALLS = 200
"""With how few torch calls a run is repeated though the time is used up: a verdict is not to depend on the machine."""


@dataclass
class Prepared:
    """A call with fake arguments that ran once under `conditions`, how they read to the user, and what was seen.

    `otherwise` is what to take where it cannot be captured so; `unreached` and `variants` as in `Trace`.
    """

    call: Call
    inputs: tuple[InputSpec, ...]
    run: Run
    notes: list[str] = field(default_factory=list[str])
    conditions: Conditions = field(default_factory=Conditions)
    otherwise: Prepared | Failure | None = None
    remarks: tuple[Remark, ...] = ()
    unreached: tuple[Unreached, ...] = ()
    variants: tuple[TargetVariant, ...] = ()


def search_candidate(candidate: Candidate, start: Plans, seconds: float, earlier: Plans | None = None) -> Found:
    """Search for inputs that a candidate runs with, from `start` on, as `search` does."""

    def demanding(attempt: Attempt) -> bool:
        return bool(demands_of(candidate.with_object_of(attempt.plans), attempt))

    evaluate = partial(with_few_steps, candidate.evaluate)
    reconstructed = partial(reconstructions, candidate.task, candidate.constructed.instance)
    return search(start, evaluate, seconds, earlier, candidate.explore, demanding, reconstructed)


def severity_of(candidate: Candidate, outcome: Found) -> Severity:
    """Tell how sure it is that the code itself is what ended a search."""
    task, constructed, failed = candidate.task, candidate.constructed, outcome.best
    if _may_be_several(candidate, failed) or is_of_environment(failed) or _is_of_values(failed):
        return "information"
    if constructed.trusted and is_given(candidate.start):
        return "information" if candidate.offer.guessed else "error"
    rivals = [a for a in (*outcome.failures, *outcome.of_other_ranks) if reached(a)[:2] >= reached(failed)[:2]]
    in_time = task.seconds > MIN_SECONDS or failed.run.calls <= FEW_CALLS
    sure = constructed.trusted and in_time and has_known_ranks(failed)
    if sure and persists(failed, rivals, candidate.evaluate):
        return "error"
    is_unsure = is_given(candidate.start) or not are_numbers(plan for _, plan in constructed.plans.items)
    owner = candidate.subject.owner
    if is_unsure or (owner is not None and inspect.isabstract(owner)):
        return "information"
    return "warning" if _is_own_fault(candidate, outcome, rivals) else "information"


def _is_of_values(failed: Attempt) -> bool:
    """Return True if values that were made up may be what an attempt failed of."""
    return has_made_up_values(failed.plans) or is_of_made_up(failed.run, failed.sources)


def _may_be_several(candidate: Candidate, failed: Attempt) -> bool:
    """Return True if an argument that was guessed may be a list or a tuple of things."""
    names = (name for name, plan in failed.plans.items if any(i.guessed for i in input_specs(Plans(((name, plan),)))))
    return any(candidate.facts[name].may_be_several for name in names if name in candidate.facts)


def _is_own_fault(candidate: Candidate, outcome: Found, rivals: Sequence[Attempt]) -> bool:
    failed = outcome.best
    whole = candidate.explore(failed.plans, whole=True)
    is_certain = has_known_ranks(failed) or (outcome.exhausted and failed.run.failed is not None)
    attempts = (*outcome.failures, *outcome.of_other_ranks)
    ranks = math.inf if is_certain else choices_of_ranks(failed, attempts)
    return is_own_fault(DeadEnd(failed, rivals, whole, ranks, candidate.evaluate))


def note_stopped(candidate: Candidate, failed: Attempt, inputs: tuple[InputSpec, ...], failure: Failure) -> None:
    """Run an attempt that failed once more, to record what ran before it did."""
    task, conditions = candidate.task, failed.conditions
    calls: list[Call] = []

    def make() -> tuple[Call, dict[int, str]]:
        named, symbols = candidate.written.named, conditions.symbols
        call, paths = candidate.call_of(failed.plans, named if symbols is None else symbols.sizes(named))
        calls.append(call)
        return call, paths

    with under(task.mode, conditions):
        again = attempt(task, failed.plans, candidate.alternatives, make, Run(recorded=[]))
    if calls and again.run.error is not None and again.run.calls == failed.run.calls:
        task.stopped[failure] = Stopped(again.run, calls[-1], conditions, inputs)


def prepared_call(candidate: Candidate, settled: Settled, failure: Failure | None) -> Prepared:
    run, task = settled.attempt.run, candidate.task
    module = settled.call.modules.get("")
    mode = [] if module is None or module.training else ["traced in evaluation mode"]
    returned = {id(tensor) for _, tensor in tensors_in(run.result, "")}
    call = dataclasses.replace(settled.call, touched=frozenset(run.touched | returned))
    otherwise = failure if settled.plain is None else prepared_call(candidate, settled.plain, failure)
    inputs = candidate.constructed.inputs + input_specs(settled.attempt.plans)
    code = unreached(task.tree, task.request.file, run.coverage)
    notes = [*mode, *settled.notes]
    return Prepared(call, inputs, run, notes, settled.conditions, otherwise, unreached=code)
