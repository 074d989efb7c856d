"""Run the target with an optional tensor, or with another value of a flag: find its problems, and its call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain as concat
from itertools import islice

from fx_lsp.messages.assumptions import IN_VARIANT
from fx_lsp.messages.requests import NO_SUCH_VARIANT
from fx_lsp.model import PLAIN_CONTEXT, Failure, InputSpec, Remark, Severity, TargetVariant, Unreached
from fx_lsp.specs import FLOATS
from fx_lsp.tracer.failures.exceptions import failure_of
from fx_lsp.tracer.inputs.candidate import Candidate, candidate_of
from fx_lsp.tracer.inputs.evidence.offers import written_offers
from fx_lsp.tracer.inputs.evidence.requirements import compared_with_none
from fx_lsp.tracer.inputs.flags import flags
from fx_lsp.tracer.inputs.outcome import Prepared, note_stopped, prepared_call, search_candidate, severity_of
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.plan.plans import (
    Plan,
    Plans,
    TensorPlan,
    input_specs,
    value,
)
from fx_lsp.tracer.inputs.remarks import MAX_CALLS_RETRACED, remarks_of
from fx_lsp.tracer.inputs.search import Extent, Found, search_failure
from fx_lsp.tracer.inputs.settle import settle
from fx_lsp.tracer.inputs.solve.attempt import Attempt
from fx_lsp.tracer.inputs.solve.verdict import reads_none
from fx_lsp.tracer.inputs.task import MIN_SECONDS
from fx_lsp.tracer.run.branches import unreached

MAX_VARIANTS = 6
"""The most variants of a target, by optional tensors and other values of flags."""
GRADIENTS = "requires_grad"
"""The name of the variant in which every input requires a gradient."""
VARIANT_ATTEMPTS, VARIANT_SECONDS = 40, 1.5
"""The most attempts, and the seconds, of the search for inputs of a variant."""


@dataclass(frozen=True)
class Optional:
    """Hold the results of a target's variants: their problems, and the unreached code that they reach."""

    unreached: tuple[Unreached, ...]
    remarks: tuple[Remark, ...] = ()
    variants: tuple[TargetVariant, ...] = ()


@dataclass(frozen=True)
class _Variant:
    """Describe one more way to call a target: `candidate` begins with its plans, and `default` is the replaced value.

    With `is_flag` it is another value of a flag. Other arguments of the program are those passed with the default.
    """

    name: str
    candidate: Candidate
    default: str
    is_flag: bool = False

    def search(self, seconds: float) -> Found:
        """Search for inputs of the variant, starting with those of the target."""
        candidate = self.candidate
        if self.is_flag and candidate.evaluate(candidate.start).run.error is not None:
            guessed = candidate.start.map_tensors(lambda _, plan: dataclasses.replace(plan, source="search"))
            candidate = dataclasses.replace(candidate, start=guessed)
        extent = Extent(VARIANT_ATTEMPTS, None if self.is_flag else frozenset({self.name}))
        return search_candidate(candidate, candidate.start, seconds, extent=extent)

    def severity(self, outcome: Found) -> Severity:
        """Return how certainly the code is wrong at the end of a search.

        Code behind a flag may read arguments that are None without it.
        """
        candidate = dataclasses.replace(self.candidate, start=outcome.best.plans)
        bad = severity_of(candidate.with_object_of(outcome.best.plans), outcome)
        return "information" if self.is_flag and reads_none(outcome.best) else bad

    def shown(self, inputs: Sequence[InputSpec]) -> str:
        """Return its argument for a message: `balance=True`, `targets i64[4, 8]`."""
        specs = (f"{self.name} {spec.spec}" for spec in inputs if spec.name.partition("[")[0] == self.name)
        return next(specs, self.name)


def with_variants(
    candidate: Candidate, ran: Attempt, code: tuple[Unreached, ...], remarks: Sequence[Remark]
) -> Optional:
    """Run the code behind `if targets is not None` and `if balance`, which a call without those does not reach.

    `remarks` are those on the target itself. For a large model, other values of flags only run on request.
    """
    optional = Optional(code, variants=tuple(_other_contexts(candidate, ran)))
    if candidate.node is None or candidate.task.request.work:
        return optional
    is_large = ran.run.calls > MAX_CALLS_RETRACED
    variants = (v for v in _variants(candidate, ran.plans, code) if not (v.is_flag and is_large))
    for variant in islice(variants, MAX_VARIANTS):
        more = _traced_variant(variant, ran, optional.unreached)
        said = {remark.span for remark in (*remarks, *optional.remarks)}
        new = (remark for remark in more.remarks if remark.span not in said)
        optional = Optional(more.unreached, (*optional.remarks, *new), (*optional.variants, *more.variants))
    return optional


def _variants(candidate: Candidate, plans: Plans, code: Sequence[Unreached]) -> Iterator[_Variant]:
    """Yield the variants of a target: with an optional tensor that the code tests, and with another value of a flag."""
    if candidate.node is not None:
        yield from _optional_tensors(candidate, plans, compared_with_none(candidate.node))
    for flag in flags(candidate, plans, code):
        chosen = {name: [plan] for name, plan in flag.plans.items if name == flag.parameter}
        varied = dataclasses.replace(candidate, start=flag.plans, alternatives={**candidate.alternatives, **chosen})
        yield _Variant(flag.name, varied.with_object_of(flag.plans), flag.default, True)


def _traced_variant(variant: _Variant, ran: Attempt, code: tuple[Unreached, ...]) -> Optional:
    """Run a target as a variant; without time for that, the variant only has a name."""
    task, name = variant.candidate.task, variant.name
    untried = Optional(code, variants=(TargetVariant(name),))
    if task.seconds <= MIN_SECONDS or ran.run.calls > MAX_CALLS_RETRACED:
        return untried
    budget, before = min(task.seconds, VARIANT_SECONDS), task.seconds
    outcome = variant.search(budget)
    candidate, run = variant.candidate.with_object_of(outcome.best.plans), outcome.best.run
    inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
    if run.error is None:
        reached = [u.span for u in code if u.span.line in run.coverage.lines]
        values = tuple(v for v in run.values if any(span.contains(v.span) for span in reached))
        code = tuple(dataclasses.replace(u, variants=(*u.variants, name)) if u.span in reached else u for u in code)
        # without time for other ranks of an optional tensor, one of them might lift what this one demands
        demanding = variant.is_flag or outcome.exhausted
        remarks = (
            dataclasses.replace(
                remark, message=IN_VARIANT.message(variant=variant.shown(inputs), problem=remark.message)
            )
            for remark in remarks_of(candidate, outcome.best, outcome.failures, demanding)
        )
        is_shown = bool(reached) or not variant.is_flag
        return Optional(code, tuple(remarks), (TargetVariant(name, inputs, values),) if is_shown else ())
    bad, run = variant.severity(outcome), outcome.best.run
    assert run.error is not None
    inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
    failure = failure_of(run.error, task.sources, run.failed, task.lines, bad)
    if bad != "information" and failure.span is not None:
        remark = IN_VARIANT.remark(failure.span, severity=bad, variant=variant.shown(inputs), problem=failure.message)
        return Optional(code, (remark,), (TargetVariant(name, inputs),))
    return untried if before - task.seconds >= budget else Optional(code)


def prepared_variant(candidate: Candidate, ran: Attempt, name: str) -> Prepared | Failure:
    """Return a call of a variant of a target, or the failure."""
    task = candidate.task
    calls = _other_calls(candidate)
    if name == GRADIENTS or name in calls:
        other = _with_gradients(candidate, ran) if name == GRADIENTS else _called(candidate, calls[name])
        return other if isinstance(other, Failure) else _prepared_call(other)
    code = unreached(task.tree, task.request.file, ran.run.coverage)
    everything = concat(_optional_tensors(candidate, ran.plans, {name}), _variants(candidate, ran.plans, code))
    variant = next((variant for variant in everything if variant.name == name), None)
    if variant is None:
        return NO_SUCH_VARIANT.failure(name=task.request.name, variant=name)
    outcome = variant.search(task.seconds)
    candidate = variant.candidate.with_object_of(outcome.best.plans)
    settled = settle(task, outcome, candidate.written.named, candidate.call_of, candidate.alternatives)
    if settled is None:
        bad = variant.severity(outcome)
        inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
        failure = search_failure(task, outcome, bad, inputs)
        note_stopped(candidate, outcome.best, inputs, failure)
        return failure
    prepared = prepared_call(candidate, settled, None)
    note = f"with {name}, which is {variant.default} by default"
    return dataclasses.replace(prepared, notes=[note, *prepared.notes])


def _prepared_call(candidate: Candidate) -> Prepared | Failure:
    """Return the call of a candidate whose arguments are all known, or the failure."""
    task = candidate.task
    outcome = search_candidate(candidate, candidate.start, task.seconds)
    settled = settle(task, outcome, candidate.written.named, candidate.call_of, candidate.alternatives)
    if settled is not None:
        return prepared_call(candidate, settled, None)
    inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
    failure = search_failure(task, outcome, severity_of(candidate, outcome), inputs)
    note_stopped(candidate, outcome.best, inputs, failure)
    return failure


def _other_contexts(candidate: Candidate, ran: Attempt) -> Iterator[TargetVariant]:
    """Yield the contexts besides its own that the program calls a target in, and one in which its inputs require
    gradients if none does.
    """
    yield from (TargetVariant(name, kind="call") for name in _other_calls(candidate))
    tensors = [plan for _, plan in ran.plans.tensors() if plan.spec.dtype in FLOATS]
    parameters = [p for module in candidate.bound.modules.values() for p in module.parameters()]
    context = candidate.offer.context or PLAIN_CONTEXT
    records = context.grad == "grad" and any((*(t.grad for t in tensors), *(p.requires_grad for p in parameters)))
    if (tensors or parameters) and not records:
        yield TargetVariant(GRADIENTS, kind="gradients")


def _other_calls(candidate: Candidate) -> dict[str, Offer]:
    """Return the first call in each context, or mode of the module, that the program calls a target in besides its own,
    by place and context.
    """
    written = written_offers(candidate.offer.later, candidate.task.evaluate)
    offers = written.recorded if not isinstance(written, Failure) else ()
    contexts = {_context_of(candidate.offer)}
    calls: dict[str, Offer] = {}
    for later, offer in zip(candidate.offer.later, offers, strict=False):
        context = _context_of(offer)
        if context not in contexts:
            contexts.add(context)
            calls[": ".join(filter(None, (later.detail, context)))] = offer
    return calls


def _context_of(offer: Offer) -> str:
    mode = ["eval()"] if offer.mode is not None and not offer.mode.make() else []
    return ", ".join((*mode, *(offer.context or PLAIN_CONTEXT).written))


def _called(candidate: Candidate, call: Offer) -> Candidate | Failure:
    """Return a candidate for a later call of a target on the same object."""
    signature = candidate.subject.parameters()
    assert signature is not None, "it has been called"
    mode = call.mode or (value(True, "call site") if candidate.bound.modules else None)
    offer = dataclasses.replace(
        call, instance=candidate.constructed.instance, init=candidate.offer.init, mode=mode, is_copy=True
    )
    return candidate_of(candidate.task, candidate.subject, signature, offer, candidate.written)


def _with_gradients(candidate: Candidate, ran: Attempt) -> Candidate:
    """Return a candidate for the same call with gradients for all inputs."""
    context = dataclasses.replace(candidate.offer.context or PLAIN_CONTEXT, grad="grad")
    start = ran.plans.map_tensors(lambda _, plan: dataclasses.replace(plan, grad=True, leaf=True))
    offer = dataclasses.replace(candidate.offer, context=context)
    return dataclasses.replace(candidate, start=start, offer=offer)


def _optional_tensors(candidate: Candidate, plans: Plans, asked: set[str]) -> Iterator[_Variant]:
    """Yield a variant for each parameter that is None by default and may be a tensor, which the code tests."""
    for name, plan in plans.items:
        is_default = _is_none(plan) and getattr(plan, "source", "") == "default"
        tensor = next((p for p in candidate.alternatives.get(name, []) if isinstance(p, TensorPlan)), None)
        if name in asked and is_default and tensor is not None:
            others = [plan for plan in candidate.alternatives[name] if not _is_none(plan)]
            alternatives = {**candidate.alternatives, name: others}
            start = plans.with_plan(name, tensor)
            yield _Variant(name, dataclasses.replace(candidate, alternatives=alternatives, start=start), "None")


def _is_none(plan: Plan) -> bool:
    return getattr(plan, "shown", "") == "None"
