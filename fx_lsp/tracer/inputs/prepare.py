"""From what one source says of a target to a call that runs, also of a target that is constructed in another way."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain as concat
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from fx_lsp.model import Failure, variant_of
from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.failures.no_tensor_code import nothing, shows_no_tensors
from fx_lsp.tracer.inputs.candidate import Candidate, candidate_of
from fx_lsp.tracer.inputs.construct import INIT, Constructed
from fx_lsp.tracer.inputs.evidence.offers import Offer, Written
from fx_lsp.tracer.inputs.outcome import Prepared, note_stopped, prepared_call, search_candidate, severity_of
from fx_lsp.tracer.inputs.plan.plans import (
    Plan,
    Plans,
    input_specs,
    value,
)
from fx_lsp.tracer.inputs.plan.signatures import signature_of
from fx_lsp.tracer.inputs.plan.start import resumed
from fx_lsp.tracer.inputs.reconstruct import rebuilt
from fx_lsp.tracer.inputs.remarks import remarks_of
from fx_lsp.tracer.inputs.search import Found, search_failure
from fx_lsp.tracer.inputs.settle import settle
from fx_lsp.tracer.inputs.solve.attempt import Attempt, is_of_sizes
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, guessed_number
from fx_lsp.tracer.inputs.solve.solver import FITS, solved, with_sizes
from fx_lsp.tracer.inputs.subject import Subject
from fx_lsp.tracer.inputs.task import MIN_SECONDS, Task
from fx_lsp.tracer.inputs.variants import prepared_variant, with_optional_arguments
from fx_lsp.tracer.run.observation import FailedCall, tensors_among

MAX_REBUILDS = 3
"""How often an object may be constructed in another way because the call misses something."""
NO_GRADIENT = "its parameters want no gradient here: it does what PyTorch does not differentiate"
SEARCH_SHARE = 0.6
"""How much of its time a search may use where callers can be looked at afterwards."""


def prepare_with(
    task: Task,
    subject: Subject,
    signature: inspect.Signature,
    offer: Offer,
    written: Written,
    rebuilds: int = MAX_REBUILDS,
) -> Prepared | Failure:
    """Find a call that runs with what an offer says; where there is none, say why."""
    candidate = candidate_of(task, subject, signature, offer, written)
    if isinstance(candidate, Failure):
        return candidate
    # what is left when the search fails belongs to the callers
    budget = task.seconds * (SEARCH_SHARE if task.request.callers and offer.is_empty else 1)
    earlier = resumed(candidate.start, candidate.alternatives, task.request.previous)
    outcome = search_candidate(candidate, candidate.start, budget, earlier)
    constructed = candidate.constructed
    inputs = constructed.inputs + input_specs(outcome.best.plans)
    settled = settle(task, outcome, written.named, candidate.call_of, candidate.alternatives)
    if settled is not None:
        failed = outcome.best.run.error is not None
        otherwise = search_failure(task, outcome, "information", inputs) if failed else None
        if variant := variant_of(task.request.work):
            return prepared_variant(candidate, settled.attempt, variant)
        prepared = prepared_call(candidate, settled, otherwise)
        optional = with_optional_arguments(candidate, settled.attempt, prepared.unreached)
        remarks = remarks_of(candidate, settled.attempt) + optional.remarks
        return dataclasses.replace(prepared, remarks=remarks, variants=optional.variants, unreached=optional.unreached)
    failed = outcome.best
    exploration = _explored_numbers(candidate, failed)
    inits = concat(_solved_init(constructed, failed, exploration), rebuilt(task, constructed, failed.run.error))
    for tried, init in enumerate(inits if rebuilds else ()):
        if tried and task.seconds <= MIN_SECONDS:
            break
        offered = dataclasses.replace(offer, init={**(offer.init or {}), **init})
        again = prepare_with(task, subject, signature, offered, written, rebuilds - 1)
        if isinstance(again, Prepared):
            return again
    for instance, note in _with_other_parameters(candidate, outcome) if rebuilds else ():
        again = prepare_with(task, subject, signature, dataclasses.replace(offer, instance=instance), written, 0)
        if isinstance(again, Prepared):
            return dataclasses.replace(again, notes=[*again.notes, note])
    bad = severity_of(candidate, outcome, exploration) if rebuilds == MAX_REBUILDS else "information"
    failure = search_failure(task, outcome, bad, inputs)
    if bad == "information" and shows_no_tensors(task.request, failed.run, inputs):
        return nothing(task.request.name, failure.message)
    if rebuilds == MAX_REBUILDS:
        note_stopped(candidate, failed, inputs, failure)
    return failure


def _explored_numbers(candidate: Candidate, failed: Attempt) -> Exploration | None:
    """The failed run on symbols, if its sizes may come from numbers that were guessed for the constructor."""
    numbers = any(guessed_number(plan) is not None for _, plan in candidate.constructed.plans.items)
    return candidate.explore(failed.plans, whole=True) if numbers and is_of_sizes(failed) else None


def _solved_init(
    constructed: Constructed, failed: Attempt, exploration: Exploration | None
) -> Iterator[Mapping[str, Plan]]:
    """Other numbers for the constructor, which a run on symbols asks for, or that would make sizes the same."""
    if exploration is not None and exploration.ends_like(failed):
        for sizes in solved(exploration):
            other = dict(with_sizes(constructed.plans, exploration, sizes, INIT).items)
            changed = {n: plan for n, plan in other.items() if plan != constructed.plans[n]}
            if changed:
                yield changed
    if is_of_sizes(failed):
        yield from _equal_numbers(constructed.plans, failed)


def _with_other_parameters(candidate: Candidate, outcome: Found) -> Iterator[tuple[Any, str]]:
    """Yield copies of the module with the same parameters in other dtypes, or that want no gradient, and why."""
    instance = candidate.constructed.instance
    for dtype in _other_dtypes(candidate, outcome.best):
        name = str(dtype).removeprefix("torch.")
        yield copy.deepcopy(instance).to(dtype), f"traced as {name}, in which its code computes"
    if _asks_for_no_gradient((outcome.best, *outcome.failures), candidate):
        yield copy.deepcopy(instance).requires_grad_(False), NO_GRADIENT


def _other_dtypes(candidate: Candidate, failed: Attempt) -> list[torch.dtype]:
    """The dtypes that a module may be cast to where it is made, as its operands do not fit its parameters.

    A module whose parameters are of another dtype than by default, or of several, says itself what each of them is.
    """
    call, error, modules = failed.run.failed, failed.run.error, candidate.bound.modules
    if not modules or call is None or error is None or kind_of(error, call) != "dtype":
        return []
    operands = [t for t in tensors_among(call.args, call.kwargs) if t.is_floating_point()]
    mine = {t.dtype for module in modules.values() for t in module.parameters() if t.is_floating_point()}
    return list(dict.fromkeys(t.dtype for t in operands if t.dtype not in mine)) if mine == {torch.float32} else []


def _asks_for_no_gradient(attempts: Iterable[Attempt], candidate: Candidate) -> bool:
    """Return True if a module does what PyTorch does not differentiate, and that is all that is wrong with it."""
    if not any(p.requires_grad for module in candidate.bound.modules.values() for p in module.parameters()):
        return False
    calls = (attempt.run.failed for attempt in attempts if isinstance(attempt.run.error, RuntimeError))
    return any(call is not None and _runs_without_gradient(call) for call in calls)


def _runs_without_gradient(call: FailedCall) -> bool:
    """Return True if a call that failed runs with the same tensors where nobody wants a gradient, and changes none.

    What is told that it is `training` does change some, which no version counts.
    """
    signature = signature_of(call.func)
    arguments = signature.bind_partial(*call.args, **call.kwargs).arguments if signature is not None else call.kwargs
    has_gradient = any(tensor.requires_grad for tensor in tensors_among(call.args, call.kwargs))
    if not has_gradient or arguments.get("training"):
        return False
    args, kwargs = tree_map_only(torch.Tensor, torch.Tensor.detach, (call.args, call.kwargs))
    try:
        call.func(*args, **kwargs)
    except Exception:
        return False
    return not any(tensor._version for tensor in tensors_among(args, kwargs))


def _equal_numbers(plans: Plans, failed: Attempt) -> Iterator[Mapping[str, Plan]]:
    """One guessed number for another, where the operands of the call that failed have both as sizes."""
    operands = tensors_among(failed.run.failed.args, failed.run.failed.kwargs) if failed.run.failed is not None else ()
    sizes = {size for tensor in operands for size in tensor.shape}
    numbers = {n: number for n, plan in plans.items if (number := guessed_number(plan)) in sizes and number != 1}
    for name, number in numbers.items():
        for other in sorted({*numbers.values()} - {number}, reverse=True):
            yield {name: value(other, "search", FITS)}
