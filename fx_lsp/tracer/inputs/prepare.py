"""Find a call that runs from one source's inputs, also after constructing the target's object differently; and the
further calls that a program makes.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Any

import torch
from torch import nn

from fx_lsp.messages.findings import CHANGED_INPUT_IN_PLACE
from fx_lsp.model import Failure, Remark, variant_of
from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.failures.no_tensor_code import nothing, shows_no_tensors
from fx_lsp.tracer.inputs.candidate import Candidate, candidate_of
from fx_lsp.tracer.inputs.construct import shown_init
from fx_lsp.tracer.inputs.evidence.body import find_class, methods_that_set
from fx_lsp.tracer.inputs.evidence.offers import written_offers
from fx_lsp.tracer.inputs.outcome import (
    Prepared,
    ProgramCall,
    note_stopped,
    prepared_call,
    search_candidate,
    severity_of,
)
from fx_lsp.tracer.inputs.plan.offer import Offer, Written
from fx_lsp.tracer.inputs.plan.plans import (
    input_specs,
)
from fx_lsp.tracer.inputs.plan.start import resumed
from fx_lsp.tracer.inputs.remarks import demands_of, remarks_of
from fx_lsp.tracer.inputs.search import Found, search_failure
from fx_lsp.tracer.inputs.settle import Settled, settle
from fx_lsp.tracer.inputs.solve.attempt import Attempt, is_data_dependent, lacks_state, missing_name
from fx_lsp.tracer.inputs.solve.operands import runs_without_gradient
from fx_lsp.tracer.inputs.subject import Subject
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.inputs.variants import prepared_variant, with_variants
from fx_lsp.tracer.run.call import Call, children
from fx_lsp.tracer.run.conditions import under
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.torch_calls import tensors_among

MAX_CALLS = 12
"""The most calls of a target that are looked at."""
NO_GRADIENT = "traced with parameters that do not require grad: the code does what PyTorch cannot differentiate"
OF_DATA = "traced with inputs that do not require grad: the code changes in place what their gradient needs"
SEARCH_SHARE = 0.75
"""The share of its time that a search may use if callers can be observed afterwards."""


def prepare_with(
    task: Task,
    subject: Subject,
    signature: inspect.Signature,
    offer: Offer,
    written: Written,
) -> Prepared | Failure:
    """Return a call that runs with the inputs of an offer, or the failure."""
    tried = candidate_of(task, subject, signature, offer, written)
    if isinstance(tried, Failure):
        return tried
    # after a failed search, the rest of the time belongs to the callers
    budget = task.seconds * (SEARCH_SHARE if task.request.callers and offer.is_empty else 1)
    earlier = resumed(tried.start, tried.alternatives, task.request.previous)
    outcome = search_candidate(tried, tried.start, budget, earlier)
    candidate = tried.with_object_of(outcome.best.plans)
    settled = settle(task, outcome, written.named, candidate.call_of, candidate.alternatives)
    if settled is not None:
        failed = outcome.best.run.error is not None
        inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
        otherwise = search_failure(task, outcome, "information", inputs) if failed else None
        if variant := variant_of(task.request.work):
            return prepared_variant(candidate, settled.attempt, variant)
        remarks = remarks_of(candidate, settled.attempt, outcome.failures)
        prepared = prepared_call(candidate, _of_data(candidate, settled, remarks), otherwise)
        remarks = prepared.remarks + remarks
        more = with_variants(candidate, settled.attempt, prepared.unreached, remarks)
        remarks += more.remarks
        return dataclasses.replace(prepared, remarks=remarks, variants=more.variants, unreached=more.unreached)
    for instance, note in _with_other_parameters(candidate, outcome) if not offer.is_copy else ():
        again = prepare_with(task, subject, signature, offer.with_copy(instance), written)
        if isinstance(again, Prepared):
            return dataclasses.replace(again, notes=[*again.notes, note])
    for instance, note in _after_other_methods(candidate, outcome) if not offer.is_copy else ():
        again = prepare_with(task, subject, signature, offer.with_copy(instance), written)
        if isinstance(again, Prepared):
            return dataclasses.replace(again, notes=[*again.notes, note], remarks=())
    bad = severity_of(candidate, outcome) if not offer.is_copy else "information"
    candidate = tried.with_object_of(outcome.best.plans)
    inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
    failure = search_failure(task, outcome, bad, inputs)
    if bad != "information" and (demands := demands_of(candidate, outcome.best)):
        first = demands[0]
        failure = dataclasses.replace(failure, message=first.message, span=first.span, severity=first.severity)
    if bad == "information" and shows_no_tensors(task.request, outcome.best.run, inputs):
        return nothing(task.request.name, failure.message)
    if not offer.is_copy:
        note_stopped(candidate, outcome.best, inputs, failure)
    return failure


def _of_data(candidate: Candidate, settled: Settled, remarks: Iterable[Remark]) -> Settled:
    """Return the call with guessed inputs that require no gradient, as data, if a remark says that only inputs lose
    theirs; the same one if it does not run so.
    """
    are_lost = any(r.code == CHANGED_INPUT_IN_PLACE.code and r.severity == "information" for r in remarks)
    if not are_lost or candidate.written.named or settled.conditions.symbols is not None:
        return settled
    detached = settled.attempt.plans.map_tensors(
        lambda _, plan: dataclasses.replace(plan, grad=plan.grad and not plan.is_guess)
    )
    attempt = candidate.evaluate(detached)
    if attempt.run.error is not None:
        return settled
    call, notes = candidate.call_of(detached, {})[0], [*settled.notes, OF_DATA]
    return dataclasses.replace(settled, attempt=attempt, call=call, notes=notes)


def _with_other_parameters(candidate: Candidate, outcome: Found) -> Iterator[tuple[Any, str]]:
    """Yield copies of the module with its parameters in other dtypes, or without gradients, and the reason."""
    instance = candidate.constructed.instance
    for dtype in _other_dtypes(candidate, outcome.best):
        name = str(dtype).removeprefix("torch.")
        yield copy.deepcopy(instance).to(dtype), f"traced as {name}, the dtype that its code computes in"
    if _asks_for_no_gradient((outcome.best, *outcome.failures), candidate):
        yield copy.deepcopy(instance).requires_grad_(False), NO_GRADIENT


def _after_other_methods(candidate: Candidate, outcome: Found) -> Iterator[tuple[Any, str]]:
    """Yield copies of the object after a method that sets the attributes that the target reads, and the reason."""
    task, subject, instance = candidate.task, candidate.subject, candidate.constructed.instance
    definition = find_class(task.tree, subject.owner.__name__) if subject.owner is not None else None
    if definition is None or candidate.offer.args or is_data_dependent(outcome.best):
        return
    missing = missing_name(outcome.best.run.error) if lacks_state(outcome.best) else None
    for method, names in methods_that_set(definition, subject.attribute, missing.name if missing else "", instance):
        copied, owner = copy.deepcopy(instance), subject.owner
        other = Subject(f"{definition.name}.{method}", owner=owner, attribute=method)
        signature = other.parameters()
        unwritten, offer = Written(Offer({})), Offer({}).with_copy(copied)
        prepared = prepare_with(task, other, signature, offer, unwritten) if signature else None
        if isinstance(prepared, Prepared):
            with under(task.mode, prepared.conditions), torch.no_grad():
                prepared.call.run_for_good()
            yield copied, f"traced after calling `{method}`, which sets {', '.join(names)}"


def _other_dtypes(candidate: Candidate, failed: Attempt) -> list[torch.dtype]:
    """Return the dtypes that a module may be cast to by its program, because its operands do not fit its parameters.

    A module whose parameters have a non-default dtype, or several, fixes them itself. Double precision is left out: it
    is NumPy's default, and nobody trains in it without stating so.
    """
    call, error, modules = failed.run.failed, failed.run.error, candidate.bound.modules
    if not modules or call is None or error is None or kind_of(error, call) != "dtype":
        return []
    operands = [t for t in tensors_among(call.args, call.kwargs) if t.is_floating_point()]
    mine = {t.dtype for module in modules.values() for t in module.parameters() if t.is_floating_point()}
    other = dict.fromkeys(
        t.dtype for t in operands if t.dtype not in mine and t.dtype.itemsize < torch.float32.itemsize
    )
    return list(other) if mine == {torch.float32} else []


def _asks_for_no_gradient(attempts: Iterable[Attempt], candidate: Candidate) -> bool:
    """Return True if a module only fails because it does something that PyTorch does not differentiate."""
    if not any(p.requires_grad for module in candidate.bound.modules.values() for p in module.parameters()):
        return False
    calls = (attempt.run.failed for attempt in attempts if isinstance(attempt.run.error, RuntimeError))
    return any(call is not None and runs_without_gradient(call) for call in calls)


def program_calls(
    task: Task, subject: Subject, signature: inspect.Signature, offers: Iterable[Offer], traced: Call
) -> Iterator[ProgramCall]:
    """Yield the calls of a target that its project makes on the object of the `traced` call, each once, in their order.

    `offers` are those of the sources of inputs, up to an empty one. Calls with guesses are left out, and calls that
    raise; run it inside the fake mode.
    """
    receiver, keys, init = _receiver(traced), set[tuple[Any, ...]](), None
    for offer in islice(_with_later_calls(task, offers), MAX_CALLS):
        shown = shown_init(offer.init or {})
        init = shown if init is None else init
        if offer.guessed or offer.unset or shown != init:
            continue
        call = _call_of(
            task, subject, signature, dataclasses.replace(offer, instance=receiver, init=None, is_copy=True)
        )
        key = () if call is None else (call.training, _structure([call.call.args, call.call.kwargs]))
        if call is not None and key not in keys:
            keys.add(key)
            yield call


def _with_later_calls(task: Task, offers: Iterable[Offer]) -> Iterator[Offer]:
    """Yield offers up to the empty one, each with the later calls of its program."""
    for offer in takewhile(lambda offer: not offer.is_empty, offers):
        yield offer
        written = written_offers(offer.later, task.evaluate)
        yield from () if isinstance(written, Failure) else written.recorded


def _structure(value: Any) -> object:
    """Return a key that is equal for arguments with the same containers, values and specs of tensors."""
    if isinstance(value, torch.Tensor):
        return str(spec_of(value))
    parts = tuple((name, _structure(part)) for name, part in children(value))
    return (type(value).__name__, parts or repr(value))


def _receiver(call: Call) -> Any:
    """Return the object whose method is called; None for a function."""
    function = call.function
    return function if isinstance(function, nn.Module) else getattr(function, "__self__", None)


def _call_of(task: Task, subject: Subject, signature: inspect.Signature, offer: Offer) -> ProgramCall | None:
    """Return the call of an offer; None if it raises, or if a part of it is a guess."""
    module = offer.instance if isinstance(offer.instance, nn.Module) else None
    before = module.training if module is not None else None
    try:
        candidate = candidate_of(task, subject, signature, offer, Written(Offer({})))
        if isinstance(candidate, Failure):
            return None
        inputs = input_specs(candidate.start)
        if any(item.guessed or item.is_guess for item in inputs):
            return None
        training = module.training if module is not None else None
        if candidate.evaluate(candidate.start).run.error is not None:
            return None
        return ProgramCall(candidate.call_of(candidate.start, {})[0], inputs, training)
    finally:
        if module is not None and before is not None and module.training != before:
            module.train(before)
