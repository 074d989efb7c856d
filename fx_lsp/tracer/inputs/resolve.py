"""From a request to a call that can be traced: the sources of inputs in their order."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain as concat
from types import ModuleType
from typing import Any

import torch
from torch import nn

from fx_lsp.model import Caller, Failure, InputSpec, Remark, Severity, TraceRequest
from fx_lsp.specs import MODE
from fx_lsp.syntax import FunctionNode
from fx_lsp.tracer.call import Call, tensors_in
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.conditions import Conditions, under
from fx_lsp.tracer.failures import kind_of, sentence
from fx_lsp.tracer.fakes import construct_fake
from fx_lsp.tracer.functions import innermost
from fx_lsp.tracer.inputs.construct import INIT, MODULE_RANKS, Constructed, construct, shown_init, switch
from fx_lsp.tracer.inputs.evidence.body import body_facts, find_function, lend_facts
from fx_lsp.tracer.inputs.evidence.call_sites import seen_at_call_sites
from fx_lsp.tracer.inputs.evidence.callers import Observed, caller_request, watcher
from fx_lsp.tracer.inputs.evidence.layers import add_layer_facts
from fx_lsp.tracer.inputs.evidence.offers import Offer, Written, conventions, unmakable, written_offers
from fx_lsp.tracer.inputs.evidence.steps import offers_of_step
from fx_lsp.tracer.inputs.plan.configs import constructor, namespaces
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, input_specs, materialize, value
from fx_lsp.tracer.inputs.plan.signatures import apply_of, hints_of, signature_of, takes_any
from fx_lsp.tracer.inputs.plan.start import is_given, needs_objects, resumed, start_plans
from fx_lsp.tracer.inputs.plan.values import Context
from fx_lsp.tracer.inputs.reconstruct import rebuilt
from fx_lsp.tracer.inputs.search import HARD, search, search_failure, severity
from fx_lsp.tracer.inputs.settle import Settled, settle
from fx_lsp.tracer.inputs.solve.attempt import Attempt, attempt, is_of_sizes
from fx_lsp.tracer.inputs.solve.forced import forced
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, Free, explore, guessed_number
from fx_lsp.tracer.inputs.solve.solver import FITS, solved, with_sizes
from fx_lsp.tracer.inputs.solve.verdict import are_numbers, has_known_ranks, is_of_environment, is_own_fault
from fx_lsp.tracer.inputs.task import MIN_SECONDS, Task
from fx_lsp.tracer.load import find, load
from fx_lsp.tracer.observe import Run, Statements, tensors_among
from fx_lsp.tracer.provenance import Sources

FUNCTION_RANKS = (2, 3, 4, 1)
MAX_REBUILDS = 3
"""How often an object may be constructed in another way because the call misses something."""
MAX_CALLS_RETRACED = 500
"""Up to how many torch calls a run is repeated on symbols to see what it demands of sizes."""
SEARCH_SHARE = 0.6
"""How much of its time a search may use where callers can be looked at afterwards."""


@dataclass
class Prepared:
    """A call with fake arguments that ran once under `conditions`, how they read to the user, and what was seen.

    `otherwise` is what to take where it cannot be captured so.
    """

    call: Call
    inputs: tuple[InputSpec, ...]
    run: Run
    notes: list[str] = field(default_factory=list[str])
    conditions: Conditions = field(default_factory=Conditions)
    otherwise: Prepared | Failure | None = None
    remarks: tuple[Remark, ...] = ()


@dataclass(frozen=True)
class Subject:
    """What is called: `function` itself, or (with `owner`) what `bind` makes of an instance of that class.

    `definition` is the qualified name of the `def` that runs.
    """

    definition: str
    function: Callable[..., Any] | None = None
    owner: type | None = None
    attribute: str = ""
    modules: dict[str, nn.Module] = field(default_factory=dict[str, nn.Module])

    @property
    def described(self) -> Callable[..., Any]:
        """What has the signature: parameters after `self`, where there is one, are found by `parameters`."""
        return self.function if self.function is not None else getattr(self.owner, self.attribute)

    def parameters(self) -> inspect.Signature | None:
        """The signature of the call, without `self`; None where Python cannot read one."""
        signature = signature_of(self.described)
        if signature is None or self.owner is None:
            return signature
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def call(self, plans: Plans, sizes: Mapping[str, Any]) -> tuple[Call, dict[int, str]]:
        """The call with arguments made from plans, of named `sizes`, and which input each tensor is."""
        arguments = materialize(plans, sizes)
        names = tuple(n for n, _ in plans.items if n in plans.positional)
        held = {**self.modules, **arguments.modules}
        return Call(self.described, arguments.args, arguments.kwargs, held, names), arguments.paths

    def bind(self, instance: Any) -> Subject:
        """The subject as a callable of that instance; a module is called itself, so that its hooks run."""
        if self.owner is None:
            return self
        is_module = isinstance(instance, nn.Module)
        function = instance if is_module and self.attribute == "forward" else getattr(instance, self.attribute)
        return dataclasses.replace(self, function=function, modules={"": instance} if is_module else {})


def prepare(
    request: TraceRequest, module: ModuleType, target: Any, sources: Sources, tree: ast.Module, mode: FakeTensorMode
) -> Prepared | Failure:
    """Resolve the inputs of `target`; call it inside the fake mode.

    `target` is None for a function inside another one: it exists only once that one runs.
    """
    lines = request.source.splitlines()
    deadline = time.process_time() + request.seconds
    construct_class = constructor(module)
    context = Context(module, FUNCTION_RANKS, construct_class, namespaces(module, construct_class))
    task = Task(request, module, sources, lines, tree, Statements(tree, request.file), deadline, context, mode)
    written = written_offers(request.given, task.evaluate)
    if isinstance(written, Failure):
        return written
    observe = partial(_observed, task)
    if target is None:
        return _prepare_nested(task, written, observe)
    subject = _subject(task, target)
    return subject if isinstance(subject, Failure) else _prepare_subject(task, subject, written, observe)


Observe = Callable[[Caller], "Observed | Failure"]


def _prepare_subject(task: Task, subject: Subject, written: Written, observe: Observe) -> Prepared | Failure:
    request, signature = task.request, subject.parameters()
    if signature is None:
        return Failure("unsupported", f"{request.name} has no readable signature")
    made = signature_of(subject.owner) if subject.owner is not None else None
    unknown = _unknown(request.name, signature, written.author.args, written, "")
    if unknown is None and made is not None:
        owner = request.name if request.kind == "module" else request.name.rpartition(".")[0]
        unknown = _unknown(f"{owner}'s constructor", made, written.author.init or {}, written, "init.")
    if unknown is not None:
        return unknown
    failure: Failure | None = None
    wrong: Failure | None = None
    for offer in _offers(task, subject, signature, written, observe):
        if offer.is_empty and wrong is not None:
            return wrong
        prepared = _with_offer(task, subject, signature, written.author.over(offer), written)
        if isinstance(prepared, Prepared) or offer.final:
            return prepared
        if prepared.severity == "error" and not offer.is_empty and written.author.is_empty:
            wrong = wrong or prepared
        if failure is None or (offer.is_empty and failure.kind not in HARD):
            failure = prepared
    assert failure is not None, "there is always an offer that says nothing"
    return unmakable(written) or failure


def _unknown(
    of: str, signature: inspect.Signature, given: Mapping[str, Any], written: Written, prefix: str
) -> Failure | None:
    names = [n for n in given if n not in signature.parameters and not takes_any(signature)]
    if not names:
        return None
    known = ", ".join(signature.parameters)
    message = f"`{names[0]}` is no parameter of {of}" + (
        f"; its parameters are {known}" if known else ", which takes none"
    )
    return Failure("comment", message, written.spans[f"{prefix}{names[0]}"], severity="error")


def _prepare_nested(task: Task, written: Written, observe: Observe) -> Prepared | Failure:
    """A function inside another: as that one calls it, or as it returns it."""
    failure: Failure | None = None
    for caller in task.request.callers:
        seen = observe(caller)
        if isinstance(seen, Failure):
            failure = seen
        elif seen.function is not None:
            subject = Subject(task.request.name, seen.function)
            offers = [seen.offer] if seen.offer is not None else []
            return _prepare_subject(
                task, subject, dataclasses.replace(written, recorded=(*written.recorded, *offers)), observe
            )
    name, outer = task.request.name.rpartition(".")[2], task.request.name.rpartition(".")[0]
    if failure is None:
        return Failure("unsupported", f"{name} is not there after {outer} ran: the code that makes it was not reached")
    return dataclasses.replace(failure, message=f"{outer}, which makes {name}, cannot be run: {failure.message}")


def _observed(task: Task, caller: Caller) -> Observed | Failure:
    """Run a caller on inputs of its own, and see what it calls the target with."""
    request = caller_request(task.request, caller, task.seconds)
    before = sys.modules.get(request.module)
    result = None
    try:
        module = load(request, task.mode).module
        watch = watcher(task.request, module, task.tree)
        target = _found(module, request)
        with watch.watching():
            prepared = prepare(request, module, target, task.sources, task.tree, task.mode)
            watch.seen = None
            if isinstance(prepared, Prepared):
                watch.look_inside(prepared.call.function)
                with under(task.mode, prepared.conditions):
                    result = prepared.call.run()
    except Exception as error:
        return Failure("error", f"{caller.name} cannot be run: {sentence(error)}")
    finally:
        if before is not None:
            sys.modules[request.module] = before
    return prepared if isinstance(prepared, Failure) else watch.observed(result)


def _found(module: ModuleType, request: TraceRequest) -> Any:
    """What the request's name stands for in the module; None for a function inside one that is among its callers."""
    try:
        return find(module, request.name)
    except AttributeError:
        if not request.callers:
            raise
        return None


def _subject(task: Task, target: Any) -> Subject | Failure:
    request = task.request
    if request.kind == "module":
        if isinstance(target, nn.Module):
            return Subject(f"{request.name}.forward", target, modules={"": target})
        if not (isinstance(target, type) and issubclass(target, nn.Module)):
            return Failure("unsupported", f"{request.name} is no nn.Module")
        return Subject(f"{request.name}.forward", owner=target, attribute="forward")
    if request.kind == "method":
        owner: Any = task.module
        *path, name = request.name.split(".")
        for part in path:
            owner = getattr(owner, part)
        bound = isinstance(inspect.getattr_static(owner, name), (staticmethod, classmethod))
        if isinstance(owner, type) and not bound:
            return Subject(request.name, owner=owner, attribute=name)
    if isinstance(target, type) and issubclass(target, torch.autograd.Function):
        return Subject(f"{request.name}.forward", apply_of(target))
    if isinstance(target, partial):
        return Subject(getattr(innermost(target), "__qualname__", request.name), target)
    return Subject(request.name, target)


def _offers(
    task: Task, subject: Subject, signature: inspect.Signature, written: Written, observe: Observe
) -> Iterator[Offer]:
    """What each source says, in their order, with the empty offer that leaves everything to the search among them."""
    yield from written.recorded
    if task.request.kind == "step":
        yield from offers_of_step(subject.function)
        yield Offer({})
        return
    callers = list(task.request.callers)
    if not written.author.args:
        if inner := [c for c in callers if c.convention]:
            yield from _seen_by(inner, observe, guessed=False)
            callers = [c for c in callers if not c.convention]
        else:
            is_module = task.request.kind == "module"
            made = signature_of(subject.owner) if is_module and subject.owner is not None else None
            yield from conventions(task.module, signature, made)
        hints = hints_of(subject.described, task.module)
        yield from seen_at_call_sites(task, signature, hints)
        if needs_objects(signature, hints):
            yield from _seen_by(callers, observe)
            callers = []
    yield Offer({})
    if not written.author.args:
        yield from _seen_by(callers, observe)


def _seen_by(callers: list[Caller], observe: Observe, guessed: bool = True) -> Iterator[Offer]:
    """What callers, run on inputs of their own, call the target with; `guessed` where those inputs are guesses."""
    for caller in callers:
        seen = observe(caller)
        if not isinstance(seen, Failure) and seen.offer is not None:
            yield dataclasses.replace(seen.offer, guessed=guessed)


def _with_offer(
    task: Task,
    subject: Subject,
    signature: inspect.Signature,
    offer: Offer,
    written: Written,
    rebuilds: int = MAX_REBUILDS,
) -> Prepared | Failure:
    made = Constructed(offer.instance, shown_init(offer.init or {}))
    if subject.owner is not None and offer.instance is None:
        found = construct(task, subject.owner, offer.init or {})
        if isinstance(found, Failure):
            return found
        made = found
    bound = subject.bind(made.instance)
    if offer.mode is not None:
        switched = switch(task, bound.modules, offer.mode, written.spans.get(MODE))
        if isinstance(switched, Failure):
            return switched
        made = dataclasses.replace(made, inputs=made.inputs + switched)
    modules = bound.modules
    node = find_function(task.tree, subject.definition)
    facts = body_facts(node)
    if modules:
        add_layer_facts(node, facts, modules[""])
    lend_facts(task.tree, facts, bool(modules))
    context = dataclasses.replace(task.context, ranks=MODULE_RANKS if modules else FUNCTION_RANKS)
    start, alternatives = start_plans(
        signature, hints_of(subject.described, task.module), facts, offer.args, context, task.tree
    )

    def call_of(plans: Plans, sizes: Mapping[str, Any]) -> tuple[Call, dict[int, str]]:
        return bound.call(plans, sizes)

    def evaluate(plans: Plans) -> Attempt:
        return attempt(task, plans, alternatives, lambda: call_of(plans, written.named))

    def explored(plans: Plans, chains: bool = False) -> Exploration:
        def free_call(free: Free) -> tuple[Call, dict[int, str]]:
            return call_of(free.plans(plans), {**written.named, **free.sizes})

        return explore(task, plans, alternatives, free_call, chains)

    # what is left when the search fails belongs to the callers
    budget = task.seconds * (SEARCH_SHARE if task.request.callers and offer.is_empty else 1)
    earlier = resumed(start, alternatives, task.request.previous)
    demands = partial(_demands, task, explored, node)
    found = search(start, evaluate, budget, earlier, explored, lambda attempt: bool(demands(attempt)))
    inputs = made.inputs + input_specs(found.best.plans)
    settled = settle(task, found, written.named, call_of, alternatives)
    if settled is not None:
        failed = found.best.run.error is not None
        otherwise = search_failure(task, found, "information", inputs) if failed else None
        prepared = _prepared(settled, made.inputs, otherwise)
        return dataclasses.replace(prepared, remarks=tuple(_remarks(settled.attempt, demands)))
    failed = found.best
    numbers = any(guessed_number(plan) is not None for _, plan in made.plans.items)
    exploration = _explored_whole(task, subject, made, failed, written) if numbers and is_of_sizes(failed) else None
    inits = concat(_solved_init(made, failed, exploration), rebuilt(task, made, failed.run.error))
    for tried, init in enumerate(inits if rebuilds else ()):
        if tried and task.seconds <= MIN_SECONDS:
            break
        offered = dataclasses.replace(offer, init={**(offer.init or {}), **init})
        again = _with_offer(task, subject, signature, offered, written, rebuilds - 1)
        if isinstance(again, Prepared):
            return again
    for dtype in _other_dtypes(made, modules, failed) if rebuilds else ():
        cast = dataclasses.replace(offer, instance=copy.deepcopy(made.instance).to(dtype))
        again = _with_offer(task, subject, signature, cast, written, 0)
        if isinstance(again, Prepared):
            name = str(dtype).removeprefix("torch.")
            return dataclasses.replace(again, notes=[*again.notes, f"traced as {name}, in which its code computes"])
    bad: Severity = "information"
    several = any(facts[name].may_be_several for name, _ in failed.plans.items if name in facts)
    rivals = [a for a in (*found.failures, *found.of_other_ranks) if a.run.calls >= failed.run.calls]
    if made.trusted and is_given(start):
        bad = "information" if offer.guessed or is_of_environment(failed) else "error"
    elif made.trusted and task.seconds > MIN_SECONDS and has_known_ranks(failed) and not several:
        bad = severity(found, evaluate)
    numbers = are_numbers(plan for _, plan in made.plans.items)
    made_concrete = subject.owner is not None and inspect.isabstract(subject.owner)
    if bad == "information" and not is_given(start) and numbers and not several and not made_concrete:
        whole = exploration or _explored_whole(task, subject, made, failed, written)
        bad = "warning" if is_own_fault(failed, rivals, whole) else "information"
    return search_failure(task, found, bad, inputs)


def _explored_whole(task: Task, subject: Subject, made: Constructed, failed: Attempt, written: Written) -> Exploration:
    """An attempt on symbols, the numbers among the arguments of the constructor included."""

    def call_of(free: Free) -> tuple[Call, dict[int, str]]:
        bound = subject
        if subject.owner is not None and made.plans.items:
            arguments = materialize(free.plans(made.plans, INIT))
            bound = subject.bind(construct_fake(subject.owner, arguments.args, arguments.kwargs))
        elif subject.owner is not None:
            bound = subject.bind(made.instance)
        return bound.call(free.plans(failed.plans), {**written.named, **free.sizes})

    return explore(task, failed.plans, failed.alternatives, call_of)


def _solved_init(made: Constructed, failed: Attempt, exploration: Exploration | None) -> Iterator[Mapping[str, Plan]]:
    """Other numbers for the constructor, which a run on symbols asks for, or that would make sizes the same."""
    run = exploration.attempt.run if exploration is not None else None
    if exploration is not None and run is not None and run.calls == failed.run.calls and run.error is not None:
        for sizes in solved(exploration):
            other = dict(with_sizes(made.plans, exploration, sizes, INIT).items)
            changed = {n: plan for n, plan in other.items() if plan != made.plans[n]}
            if changed:
                yield changed
    if is_of_sizes(failed):
        yield from _equal_numbers(made.plans, failed)


def _other_dtypes(made: Constructed, modules: Mapping[str, nn.Module], failed: Attempt) -> list[torch.dtype]:
    """The dtypes that a module may be cast to where it is made, as its operands do not fit its parameters.

    A module whose parameters are of several dtypes says itself what each of them is.
    """
    call, error = failed.run.failed, failed.run.error
    if not modules or call is None or error is None or kind_of(error, call) != "dtype":
        return []
    operands = [t for t in tensors_among(call.args, call.kwargs) if t.is_floating_point()]
    mine = {t.dtype for module in modules.values() for t in module.parameters() if t.is_floating_point()}
    return list(dict.fromkeys(t.dtype for t in operands if t.dtype not in mine)) if len(mine) == 1 else []


def _equal_numbers(plans: Plans, failed: Attempt) -> Iterator[Mapping[str, Plan]]:
    """One guessed number for another, where the operands of the call that failed have both as sizes."""
    operands = tensors_among(failed.run.failed.args, failed.run.failed.kwargs) if failed.run.failed is not None else ()
    sizes = {size for tensor in operands for size in tensor.shape}
    numbers = {n: number for n, plan in plans.items if (number := guessed_number(plan)) in sizes and number != 1}
    for name, number in numbers.items():
        for other in sorted({*numbers.values()} - {number}, reverse=True):
            yield {name: value(other, "search", FITS)}


def _remarks(ran: Attempt, demands: Callable[[Attempt], list[Remark]]) -> Iterator[Remark]:
    """What is wrong with code that runs: it pairs all elements of two tensors, or wants sizes that no caller means."""
    for span, *specs in dict.fromkeys(ran.run.crossed):
        told = f"{' and '.join(specs)} broadcast to all pairs of their elements: one of them has a dimension too many"
        yield Remark(told, span, "warning")
    yield from demands(ran)


def _demands(task: Task, explored: Callable[..., Exploration], node: FunctionNode | None, ran: Attempt) -> list[Remark]:
    """The sizes that an attempt ran with only because they were guessed so."""
    guessed = any(plan.source == "search" for _, plan in ran.plans.tensors())
    if not guessed or ran.run.calls > MAX_CALLS_RETRACED or task.request.work:
        return []
    exploration = explored(ran.plans, chains=True)
    return forced(exploration, node, task.lines) if exploration.attempt.run.error is None else []


def _prepared(settled: Settled, constructed: tuple[InputSpec, ...], failure: Failure | None) -> Prepared:
    run = settled.attempt.run
    module = settled.call.modules.get("")
    mode = [] if module is None or module.training else ["traced in evaluation mode"]
    returned = {id(tensor) for _, tensor in tensors_in(run.result, "")}
    call = dataclasses.replace(settled.call, touched=frozenset(run.touched | returned))
    otherwise = failure if settled.plain is None else _prepared(settled.plain, constructed, failure)
    inputs = constructed + input_specs(settled.attempt.plans)
    return Prepared(call, inputs, run, [*mode, *settled.notes], settled.conditions, otherwise)
