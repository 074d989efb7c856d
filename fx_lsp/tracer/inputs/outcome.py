"""Determine the outcome of a search over a candidate: a call that can be captured, or the cause of its failure."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from fx_lsp.messages.assumptions import RANDOM_VALUES
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
from fx_lsp.tracer.inputs.search import WHOLE, Extent, Found, Search, Solver, run_search
from fx_lsp.tracer.inputs.settle import Settled
from fx_lsp.tracer.inputs.solve.attempt import Attempt, attempt
from fx_lsp.tracer.inputs.solve.conditions import is_check
from fx_lsp.tracer.inputs.solve.short_loops import with_few_steps
from fx_lsp.tracer.inputs.solve.verdict import DeadEnd, are_numbers, of_machine, verdict
from fx_lsp.tracer.run.branches import unreached
from fx_lsp.tracer.run.call import Call, tensors_in
from fx_lsp.tracer.run.conditions import Conditions, under
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.observation import Run, Stopped


@dataclass(frozen=True)
class ProgramCall:
    """Hold a call of the target that its project makes, and its inputs for the user.

    `training` is the mode of the module that is called, None for a function.
    """

    call: Call
    inputs: tuple[InputSpec, ...]
    training: bool | None = None


@dataclass
class Prepared:
    """Hold a call with fake arguments that ran once under `conditions`, with its inputs for the user, and its
    observation.

    `otherwise` is the fallback if it cannot be captured; `unreached` and `variants` are as in `Trace`; `constructor`
    are the plans for the constructor of the method's object, None if they are unknown. `guessed` are inputs that
    remarks may depend on and without a given value. `program_calls` returns the calls that the project makes.
    """

    call: Call
    inputs: tuple[InputSpec, ...]
    run: Run
    notes: list[str] = field(default_factory=list[str])
    conditions: Conditions = field(default_factory=Conditions)
    otherwise: Callable[[], Prepared | Failure | None] = lambda: None
    remarks: tuple[Remark, ...] = ()
    unreached: tuple[Unreached, ...] = ()
    variants: tuple[TargetVariant, ...] = ()
    constructor: Plans | None = None
    guessed: frozenset[str] = frozenset()
    program_calls: Callable[[], Iterable[ProgramCall]] = tuple

    def reported(self, remarks: Iterable[Remark]) -> tuple[Remark, ...]:
        """Return remarks; those that depend on a guess have the severity "information"."""
        return tuple(
            dataclasses.replace(remark, severity="information") if remark.rests_on in self.guessed else remark
            for remark in remarks
        )


def search_candidate(
    candidate: Candidate,
    start: Plans,
    seconds: float,
    earlier: Plans | None = None,
    extent: Extent = WHOLE,
) -> Found:
    """Search for inputs that a candidate accepts, from `start` on, with work of that many seconds."""

    def demanding(attempt: Attempt) -> bool:
        return bool(demands_of(candidate.with_object_of(attempt.plans), attempt))

    evaluate = partial(with_few_steps, candidate.evaluate)
    reconstructed = partial(reconstructions, candidate.task, candidate.constructed.instance)
    budget = candidate.task.budget.part(seconds)
    solver = Solver(candidate.explore, reconstructed)
    return run_search(Search(start, evaluate, budget, solver, demanding, extent), earlier)


def severity_of(candidate: Candidate, outcome: Found) -> Severity:
    """Return how certainly the code itself ended a search; the best attempt is the one that shows it."""
    constructed, failed, owner = candidate.constructed, outcome.best, candidate.subject.owner
    if _may_be_several(candidate, failed) or _is_of_values(failed):
        return "information"
    if is_given(candidate.start):
        is_unset = candidate.offer.unset and is_check(failed)  # a user of the program gives the option a value
        is_certain = constructed.trusted and not candidate.offer.guessed and not is_unset
        return "error" if is_certain and not any(of_machine(failed)) else "information"
    is_abstract = owner is not None and inspect.isabstract(owner)
    if is_abstract or not are_numbers(plan for _, plan in constructed.plans.items):
        return "information"
    attempts = (*outcome.failures, *outcome.of_other_ranks)
    mistake = verdict(DeadEnd(attempts, candidate.evaluate, partial(candidate.explore, whole=True)))
    if mistake is None or _is_of_values(mistake.attempt):
        return "information"
    outcome.best = mistake.attempt
    return mistake.severity if constructed.trusted else "warning"


def _is_of_values(failed: Attempt) -> bool:
    """Return True if an attempt may have failed because of made-up values."""
    return has_made_up_values(failed.plans) or is_of_made_up(failed.run, failed.sources)


def _may_be_several(candidate: Candidate, failed: Attempt) -> bool:
    """Return True if a guessed argument may be a list or a tuple."""
    names = (name for name, plan in failed.plans.items if any(i.guessed for i in input_specs(Plans(((name, plan),)))))
    return any(candidate.facts[name].may_be_several for name in names if name in candidate.facts)


def note_stopped(candidate: Candidate, failed: Attempt, inputs: tuple[InputSpec, ...], failure: Failure) -> None:
    """Run a failed attempt again, to record the part that ran before the failure."""
    task, conditions = candidate.task, failed.conditions
    calls: list[Call] = []

    def make() -> tuple[Call, Dependence]:
        named, symbols = candidate.written.named, conditions.symbols
        call, dependence = candidate.call_of(failed.plans, named if symbols is None else symbols.sizes(named))
        calls.append(call)
        return call, dependence

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

    def otherwise() -> Prepared | Failure | None:
        other = settled.otherwise()
        return failure if other is None else prepared_call(candidate, other, failure)

    inputs = candidate.constructed.inputs + input_specs(settled.attempt.plans)
    code = unreached(task.tree, task.request.file, run.coverage)
    notes = [*mode, *settled.notes]
    remarks = (_drawn(failure),) if settled.conditions.drawn and failure is not None else ()
    constructor = candidate.constructor
    is_open = any(p.is_guess and not p.dtype_known for _, p in settled.attempt.plans.tensors())
    guessed = frozenset({"dtypes"} if is_open else ())
    guessed |= {"inputs"} if any(item.guessed or item.is_guess for item in inputs) else frozenset()
    return Prepared(
        call,
        inputs,
        run,
        notes,
        settled.conditions,
        otherwise,
        remarks,
        unreached=code,
        constructor=constructor,
        guessed=guessed,
    )


def _drawn(failure: Failure) -> Remark:
    """Return the remark on the first use of an unavailable value, after which random values are used."""
    fix = f" {failure.hint}" if failure.hint else ""
    return RANDOM_VALUES.remark(failure.span, reason=failure.message, fix=fix)
