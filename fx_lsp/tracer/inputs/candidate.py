"""The target as one source of inputs has it: an instance, plans, a search, and what comes of that."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain as concat
from itertools import islice
from typing import Any

import torch
from torch import nn

from fx_lsp.model import Failure, InputSpec, Remark, Severity, Span, TargetVariant, Unreached, variant_of
from fx_lsp.specs import MODE
from fx_lsp.syntax import FunctionNode
from fx_lsp.tracer.failures.exceptions import failure_of, kind_of
from fx_lsp.tracer.failures.no_tensor_code import may_be_none, nothing, shows_no_tensors
from fx_lsp.tracer.inputs.construct import INIT, MODULE_RANKS, Constructed, construct, shown_init, switch
from fx_lsp.tracer.inputs.evidence.body import body_facts, find_function, lend_facts
from fx_lsp.tracer.inputs.evidence.layers import add_layer_facts
from fx_lsp.tracer.inputs.evidence.offers import Offer, Written
from fx_lsp.tracer.inputs.evidence.requirements import compared_with_none
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import (
    Plan,
    Plans,
    TensorPlan,
    ValuePlan,
    fresh_sizes,
    input_specs,
    is_single_batch,
    materialize,
    value,
)
from fx_lsp.tracer.inputs.plan.signatures import hints_of
from fx_lsp.tracer.inputs.plan.start import is_given, resumed, start_plans
from fx_lsp.tracer.inputs.reconstruct import rebuilt
from fx_lsp.tracer.inputs.search import Found, reached, search, search_failure
from fx_lsp.tracer.inputs.settle import Settled, settle
from fx_lsp.tracer.inputs.solve.attempt import Attempt, attempt, is_of_sizes, place_of
from fx_lsp.tracer.inputs.solve.forced import dimension_names, forced, name_of
from fx_lsp.tracer.inputs.solve.path_conditions import Dimension, Exploration, Free, explore, guessed_number
from fx_lsp.tracer.inputs.solve.solver import FITS, Sizes, solved, with_sizes
from fx_lsp.tracer.inputs.solve.verdict import (
    are_numbers,
    has_known_ranks,
    is_of_environment,
    is_own_fault,
    persists,
)
from fx_lsp.tracer.inputs.subject import Subject
from fx_lsp.tracer.inputs.task import MIN_SECONDS, Task
from fx_lsp.tracer.run.branches import unreached
from fx_lsp.tracer.run.call import Call, tensors_in
from fx_lsp.tracer.run.conditions import Conditions, under
from fx_lsp.tracer.run.fakes import construct_fake
from fx_lsp.tracer.run.in_place import overwritten
from fx_lsp.tracer.run.observation import Run, Stopped, tensors_among
from fx_lsp.tracer.source.expressions import shown_expression

FUNCTION_RANKS = (2, 3, 4, 1)
MAX_REBUILDS = 3
"""How often an object may be constructed in another way because the call misses something."""
MAX_CALLS_RETRACED = 500
"""Up to how many torch calls a run is repeated on symbols to see what it demands of sizes."""
MAX_VARIANTS = 2
"""With how many of its optional tensors a target is run besides."""
VARIANT_SECONDS = 1.0
"""How long it is searched for what such a tensor may be."""
SEARCH_SHARE = 0.6
"""How much of its time a search may use where callers can be looked at afterwards."""


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


@dataclass(frozen=True)
class Candidate:
    """The target with what one offer says of it, and what its body shows of the rest.

    `constructed` is the object that it belongs to, and `bound` the target as a callable of that; `demands` keeps what
    was found of plans.
    """

    task: Task
    subject: Subject
    offer: Offer
    written: Written
    constructed: Constructed
    bound: Subject
    node: FunctionNode | None
    facts: Mapping[str, Facts]
    start: Plans
    alternatives: dict[str, list[Plan]]
    demands: dict[Plans, list[Remark]] = field(default_factory=dict[Plans, "list[Remark]"])

    def call_of(self, plans: Plans, sizes: Mapping[str, Any]) -> tuple[Call, dict[int, str]]:
        """The call with arguments made from plans, of named `sizes`, and which input each tensor is."""
        return self.bound.call(plans, sizes)

    def evaluate(self, plans: Plans, init: Plans | None = None) -> Attempt:
        """One run of plans; of another instance, where `init` says what that is constructed with."""
        return attempt(self.task, plans, self.alternatives, lambda: self._whole_call(init, plans, self.written.named))

    def explore(self, plans: Plans, whole: bool = False, chains: bool = False) -> Exploration:
        """One run of plans with a symbol for every size that was guessed.

        With `whole` the numbers among the arguments of the constructor are symbols, too; `chains` as in `explore`.
        """

        def free_call(free: Free) -> tuple[Call, dict[int, str]]:
            init = free.plans(self.constructed.plans, INIT) if whole else None
            return self._whole_call(init, free.plans(plans), {**self.written.named, **free.sizes})

        return explore(self.task, plans, self.alternatives, free_call, chains)

    def _whole_call(self, init: Plans | None, plans: Plans, sizes: Mapping[str, Any]) -> tuple[Call, dict[int, str]]:
        bound = self.bound
        if self.subject.owner is not None and init is not None and init != self.constructed.plans:
            arguments = materialize(init, sizes)
            bound = self.subject.bind(construct_fake(self.subject.owner, arguments.args, arguments.kwargs))
        return bound.call(plans, sizes)


def prepare_with(
    task: Task,
    subject: Subject,
    signature: inspect.Signature,
    offer: Offer,
    written: Written,
    rebuilds: int = MAX_REBUILDS,
) -> Prepared | Failure:
    """Find a call that runs with what an offer says; where there is none, say why."""
    candidate = _candidate(task, subject, signature, offer, written)
    if isinstance(candidate, Failure):
        return candidate
    # what is left when the search fails belongs to the callers
    budget = task.seconds * (SEARCH_SHARE if task.request.callers and offer.is_empty else 1)
    earlier = resumed(candidate.start, candidate.alternatives, task.request.previous)
    outcome = _search(candidate, candidate.start, budget, earlier)
    constructed = candidate.constructed
    inputs = constructed.inputs + input_specs(outcome.best.plans)
    settled = settle(task, outcome, written.named, candidate.call_of, candidate.alternatives)
    if settled is not None:
        failed = outcome.best.run.error is not None
        otherwise = search_failure(task, outcome, "information", inputs) if failed else None
        if variant := variant_of(task.request.work):
            return _prepared_variant(candidate, settled.attempt, variant)
        prepared = _prepared(candidate, settled, otherwise)
        optional = _with_optional_arguments(candidate, settled.attempt, prepared.unreached)
        remarks = _remarks(candidate, settled.attempt) + optional.remarks
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
    for dtype in _other_dtypes(candidate, failed) if rebuilds else ():
        cast = dataclasses.replace(offer, instance=copy.deepcopy(constructed.instance).to(dtype))
        again = prepare_with(task, subject, signature, cast, written, 0)
        if isinstance(again, Prepared):
            name = str(dtype).removeprefix("torch.")
            return dataclasses.replace(again, notes=[*again.notes, f"traced as {name}, in which its code computes"])
    bad = _severity(candidate, outcome, exploration) if rebuilds == MAX_REBUILDS else "information"
    failure = search_failure(task, outcome, bad, inputs)
    if bad == "information" and shows_no_tensors(task.request, failed.run, inputs):
        return nothing(task.request.name, failure.message)
    if rebuilds == MAX_REBUILDS:
        _note_stopped(candidate, failed, inputs, failure)
    return failure


def _note_stopped(candidate: Candidate, failed: Attempt, inputs: tuple[InputSpec, ...], failure: Failure) -> None:
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


def _candidate(
    task: Task, subject: Subject, signature: inspect.Signature, offer: Offer, written: Written
) -> Candidate | Failure:
    constructed = Constructed(offer.instance, shown_init(offer.init or {}))
    if subject.owner is not None and offer.instance is None:
        instance = construct(task, subject.owner, offer.init or {})
        if isinstance(instance, Failure):
            vague = offer.is_empty and not issubclass(subject.owner, nn.Module) and may_be_none(task.request)
            return nothing(task.request.name, instance.message) if vague and not task.request.evident else instance
        constructed = instance
    bound = subject.bind(constructed.instance)
    if offer.mode is not None:
        switched = switch(task, bound.modules, offer.mode, written.spans.get(MODE))
        if isinstance(switched, Failure):
            return switched
        constructed = dataclasses.replace(constructed, inputs=constructed.inputs + switched)
    node = find_function(task.tree, subject.definition)
    facts = body_facts(node)
    if bound.modules:
        add_layer_facts(node, facts, bound.modules[""])
    lend_facts(task.tree, facts, bool(bound.modules))
    context = dataclasses.replace(task.context, ranks=MODULE_RANKS if bound.modules else FUNCTION_RANKS)
    start, alternatives = start_plans(
        signature, hints_of(subject.described, task.module), facts, offer.args, context, task.tree
    )
    start = _with_image_size(start, constructed.plans.items or tuple((offer.init or {}).items()))
    if offer.instance is None:
        _move(bound.modules, start)
    return Candidate(task, subject, offer, written, constructed, bound, node, facts, start, alternatives)


def _with_image_size(start: Plans, init: Iterable[tuple[str, Plan]]) -> Plans:
    """The plans with images of the height and width that their module is constructed for."""
    numbers = {plan.make() for name, plan in init if isinstance(plan, ValuePlan) and _IMAGE_SIZE.search(name)}
    size = next(iter(numbers)) if len(numbers) == 1 else None

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        sizes = plan.spec.sizes
        if plan.source != "search" or len(sizes) != 4 or plan.detail or type(size) is not int:
            return plan
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=(*sizes[:2], size, size)))

    return start.map_tensors(change)


_IMAGE_SIZE = re.compile(r"(^|_)(image|img|input)_?(size|resolution)$|^resolution$")
"""What constructors call the height and width of images."""


def _move(modules: Mapping[str, nn.Module], start: Plans) -> None:
    """Move modules that are constructed on the CPU to where it is written down that their inputs are."""
    devices = {plan.spec.device for _, plan in start.tensors() if plan.source != "search" and plan.spec.device}
    for module in modules.values() if len(devices) == 1 else ():
        if all(tensor.device.type == "cpu" for tensor in (*module.parameters(), *module.buffers())):
            module.to(device=torch.device(*devices))


def _search(candidate: Candidate, start: Plans, seconds: float, earlier: Plans | None = None) -> Found:
    def demanding(attempt: Attempt) -> bool:
        return bool(_demands(candidate, attempt))

    return search(start, candidate.evaluate, seconds, earlier, candidate.explore, demanding)


def _explored_numbers(candidate: Candidate, failed: Attempt) -> Exploration | None:
    """The failed run on symbols, if its sizes may come from numbers that were guessed for the constructor."""
    numbers = any(guessed_number(plan) is not None for _, plan in candidate.constructed.plans.items)
    return candidate.explore(failed.plans, whole=True) if numbers and is_of_sizes(failed) else None


def _severity(candidate: Candidate, outcome: Found, exploration: Exploration | None = None) -> Severity:
    """Tell how sure it is that the code itself is what ended a search."""
    task, constructed, failed = candidate.task, candidate.constructed, outcome.best
    several = any(candidate.facts[n].may_be_several for n, _ in failed.plans.items if n in candidate.facts)
    if several or is_of_environment(failed):
        return "information"
    if constructed.trusted and is_given(candidate.start):
        return "information" if candidate.offer.guessed else "error"
    rivals = [a for a in (*outcome.failures, *outcome.of_other_ranks) if reached(a)[:2] >= reached(failed)[:2]]
    sure = constructed.trusted and task.seconds > MIN_SECONDS and has_known_ranks(failed)
    if sure and persists(failed, rivals, candidate.evaluate):
        return "error"
    is_unsure = is_given(candidate.start) or not are_numbers(plan for _, plan in constructed.plans.items)
    owner = candidate.subject.owner
    if is_unsure or (owner is not None and inspect.isabstract(owner)):
        return "information"
    return "warning" if _is_own_fault(candidate, outcome, rivals, exploration) else "information"


def _is_own_fault(
    candidate: Candidate, outcome: Found, rivals: Sequence[Attempt], exploration: Exploration | None
) -> bool:
    failed = outcome.best
    whole = exploration or candidate.explore(failed.plans, whole=True)
    ranks_known = has_known_ranks(failed) or (outcome.exhausted and failed.run.failed is not None)
    return is_own_fault(failed, rivals, whole, ranks_known, candidate.evaluate)


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


def _equal_numbers(plans: Plans, failed: Attempt) -> Iterator[Mapping[str, Plan]]:
    """One guessed number for another, where the operands of the call that failed have both as sizes."""
    operands = tensors_among(failed.run.failed.args, failed.run.failed.kwargs) if failed.run.failed is not None else ()
    sizes = {size for tensor in operands for size in tensor.shape}
    numbers = {n: number for n, plan in plans.items if (number := guessed_number(plan)) in sizes and number != 1}
    for name, number in numbers.items():
        for other in sorted({*numbers.values()} - {number}, reverse=True):
            yield {name: value(other, "search", FITS)}


def _remarks(candidate: Candidate, ran: Attempt) -> tuple[Remark, ...]:
    """Tell what is wrong with code that runs: it pairs all elements of two tensors, or wants sizes nobody means."""
    crossed = (
        Remark(
            f"{' and '.join(specs)} broadcast to all pairs of their elements: one of them has a dimension too many",
            span,
            "warning",
        )
        for span, *specs in dict.fromkeys(ran.run.crossed)
    )
    demands = _demands(candidate, ran) or list(_unbatched(candidate, ran))
    return (*crossed, *_overwritten(ran), *demands)


def _overwritten(ran: Attempt) -> Iterator[Remark]:
    """Tell of values that are kept for the backward pass and changed in place before it, which ends that pass."""
    outputs = (tensor for _, tensor in tensors_in(ran.run.result, ""))
    for write in overwritten(outputs, ran.run.writes):
        severity = "error" if write.trains else "warning"
        message = f"the backward pass fails: this changes in place what {write.saved_by.lower()} keeps for it"
        yield Remark(message, write.chain[0], severity)


def _unbatched(candidate: Candidate, ran: Attempt) -> Iterator[Remark]:
    """Tell of layers that take their input for one example without a batch, if its rank was guessed."""
    guessed = any(plan.source == "search" and not plan.rank_known for _, plan in ran.plans.tensors())
    for chain in dict.fromkeys(ran.run.unbatched if guessed else ()):
        if chain:
            shown = shown_expression(chain[0], candidate.task.lines)
            yield Remark(f"`{shown}` gets one example without a batch: only so it runs", chain[0], "warning")


def _demands(candidate: Candidate, ran: Attempt) -> list[Remark]:
    """Return the sizes that an attempt ran with only because they were guessed so."""
    if ran.plans not in candidate.demands:
        candidate.demands[ran.plans] = _demands_of(candidate, ran)
    return candidate.demands[ran.plans]


def _demands_of(candidate: Candidate, ran: Attempt) -> list[Remark]:
    task, init = candidate.task, candidate.constructed.plans
    guessed = any(plan.source == "search" for _, plan in ran.plans.tensors())
    if not guessed or ran.run.calls > MAX_CALLS_RETRACED or task.request.work:
        return []
    single = _single_batch(candidate, ran)
    if single is not None:
        return [single]
    exploration = candidate.explore(ran.plans, whole=True, chains=True)
    if exploration.attempt.run.error is not None:
        return []

    def again(sizes: Sizes) -> Attempt:
        other = with_sizes(init, exploration, sizes, INIT)
        return candidate.evaluate(with_sizes(ran.plans, exploration, sizes), other)

    remarks = forced(exploration, candidate.node, task.lines, again)
    return [remark for remark in remarks if remark.span is not None and remark.span.file == task.request.file]


def _single_batch(candidate: Candidate, ran: Attempt) -> Remark | None:
    """Tell of code that runs with a batch of one alone: no symbol stands for a size of 1."""
    ones = [p for p, plan in ran.plans.tensors() if plan.source == "search" and is_single_batch(plan)]
    if not ones:
        return None
    others = [plan.spec.sizes[0] for path, plan in ran.plans.tensors() if plan.spec.sizes and path not in ones]
    span: object = None
    for batch in (*others, *fresh_sizes(1, ran.plans.sizes(), features=False)):

        def larger(path: str, plan: TensorPlan, batch: int | str = batch) -> TensorPlan:
            sizes = (batch, *plan.spec.sizes[1:])
            return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=sizes)) if path in ones else plan

        attempt = candidate.evaluate(ran.plans.map_tensors(larger))
        if attempt.run.error is None or attempt.run.failed is None or not is_of_sizes(attempt):
            return None
        span = place_of(attempt)
    if not isinstance(span, Span):
        return None
    names = dimension_names(candidate.node)
    text = name_of(Dimension(ones[0], 0, 2), names)
    shown = shown_expression(span, candidate.task.lines)
    return Remark(f"{text} is 1 here: `{shown}` works only so", span, "warning")


@dataclass(frozen=True)
class _Optional:
    """Hold what a run of a target with its optional tensors shows: what is wrong with that, its variants, and which of
    the code that was not reached they reach."""

    unreached: tuple[Unreached, ...]
    remarks: tuple[Remark, ...] = ()
    variants: tuple[TargetVariant, ...] = ()


def _with_optional_arguments(candidate: Candidate, ran: Attempt, code: tuple[Unreached, ...]) -> _Optional:
    """Look at the code behind `if targets is not None`, which a call without targets does not reach."""
    optional = _Optional(code)
    if candidate.node is None or candidate.task.request.work:
        return optional
    asked = compared_with_none(candidate.node)
    for name, tensor in islice(_optional_tensors(candidate, ran.plans, asked), MAX_VARIANTS):
        more = _with_optional_argument(candidate, ran, name, tensor, optional.unreached)
        remarks = (remark for remark in more.remarks if remark not in optional.remarks)
        variants = (*optional.variants, *more.variants)
        optional = _Optional(more.unreached, (*optional.remarks, *remarks), variants)
    return optional


def _with_optional_argument(
    candidate: Candidate, ran: Attempt, name: str, tensor: TensorPlan, code: tuple[Unreached, ...]
) -> _Optional:
    """Look at what a target does with one more argument; without time for that, the variant has a name alone."""
    task, untried = candidate.task, _Optional(code, variants=(TargetVariant(name),))
    if task.seconds <= MIN_SECONDS or ran.run.calls > MAX_CALLS_RETRACED:
        return untried
    budget, started = min(task.seconds, VARIANT_SECONDS), time.process_time()
    outcome = _search(_with_argument(candidate, name), ran.plans.with_plan(name, tensor), budget)
    run = outcome.best.run
    inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
    if run.error is None:
        reached = [u.span for u in code if u.span.line in run.coverage.lines]
        values = tuple(v for v in run.values if any(span.contains(v.span) for span in reached))
        code = tuple(dataclasses.replace(u, variants=(*u.variants, name)) if u.span in reached else u for u in code)
        return _Optional(code, _remarks(candidate, outcome.best), (TargetVariant(name, inputs, values),))
    bad = _severity(candidate, outcome)
    failure = failure_of(run.error, task.sources, run.failed, task.lines, bad, inputs)
    if bad != "information" and failure.span is not None:
        spec = next(spec.spec for spec in inputs if spec.name.partition("[")[0] == name)
        remark = Remark(f"{failure.message}, with {name} {spec}", failure.span, bad)
        return _Optional(code, (remark,), (TargetVariant(name, inputs),))
    return untried if time.process_time() - started >= budget else _Optional(code)


def _with_argument(candidate: Candidate, name: str) -> Candidate:
    """A candidate whose argument `name` may be anything but the None that it is by default."""
    others = [plan for plan in candidate.alternatives.get(name, ()) if not _is_none(plan)]
    return dataclasses.replace(candidate, alternatives={**candidate.alternatives, name: others})


def _prepared_variant(candidate: Candidate, ran: Attempt, name: str) -> Prepared | Failure:
    """Find a call with one more argument than a target was run with, an optional tensor; if there is none, say why."""
    task = candidate.task
    tensor = dict(_optional_tensors(candidate, ran.plans, {name})).get(name)
    if tensor is None:
        return Failure("unsupported", f"{task.request.name} has no optional tensor {name!r} that it was traced without")
    candidate = _with_argument(candidate, name)
    outcome = _search(candidate, ran.plans.with_plan(name, tensor), task.seconds)
    settled = settle(task, outcome, candidate.written.named, candidate.call_of, candidate.alternatives)
    if settled is None:
        inputs = candidate.constructed.inputs + input_specs(outcome.best.plans)
        failure = search_failure(task, outcome, _severity(candidate, outcome), inputs)
        _note_stopped(candidate, outcome.best, inputs, failure)
        return failure
    prepared = _prepared(candidate, settled, None)
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


def _prepared(candidate: Candidate, settled: Settled, failure: Failure | None) -> Prepared:
    run, task = settled.attempt.run, candidate.task
    module = settled.call.modules.get("")
    mode = [] if module is None or module.training else ["traced in evaluation mode"]
    returned = {id(tensor) for _, tensor in tensors_in(run.result, "")}
    call = dataclasses.replace(settled.call, touched=frozenset(run.touched | returned))
    otherwise = failure if settled.plain is None else _prepared(candidate, settled.plain, failure)
    inputs = candidate.constructed.inputs + input_specs(settled.attempt.plans)
    code = unreached(task.tree, task.request.file, run.coverage)
    notes = [*mode, *settled.notes]
    return Prepared(call, inputs, run, notes, settled.conditions, otherwise, unreached=code)
