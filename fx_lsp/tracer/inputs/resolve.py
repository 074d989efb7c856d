"""From a request to a call that can be traced: the sources of inputs in their order."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch import nn

from fx_lsp.model import Failure, InputSpec, Severity, TraceRequest
from fx_lsp.tracer.call import Call
from fx_lsp.tracer.inputs.body import body_facts, find_function
from fx_lsp.tracer.inputs.configs import constructor
from fx_lsp.tracer.inputs.construct import MODULE_RANKS, Constructed, construct
from fx_lsp.tracer.inputs.layers import add_layer_facts
from fx_lsp.tracer.inputs.offers import Offer, Written, conventions, written_offers
from fx_lsp.tracer.inputs.plan import Plans, input_specs, materialize
from fx_lsp.tracer.inputs.propose import Context
from fx_lsp.tracer.inputs.repair import Attempt
from fx_lsp.tracer.inputs.search import search, severity
from fx_lsp.tracer.inputs.signatures import hints_of, signature_of, takes_any
from fx_lsp.tracer.inputs.start import is_given, resumed, start_plans
from fx_lsp.tracer.inputs.task import MIN_SECONDS, Task, attempt, search_failure
from fx_lsp.tracer.observe import Run, Statements
from fx_lsp.tracer.provenance import Sources

FUNCTION_RANKS = (2, 3, 4, 1)


@dataclass
class Prepared:
    """A call with fake arguments that ran once, how they read to the user, and what was seen in that run."""

    call: Call
    inputs: tuple[InputSpec, ...]
    run: Run
    notes: list[str] = field(default_factory=list[str])


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

    def bind(self, instance: Any) -> Subject:
        """The subject as a callable of that instance; a module is called itself, so that its hooks run."""
        if self.owner is None:
            return self
        is_module = isinstance(instance, nn.Module)
        function = instance if is_module and self.attribute == "forward" else getattr(instance, self.attribute)
        return dataclasses.replace(self, function=function, modules={"": instance} if is_module else {})


def prepare(
    request: TraceRequest, module: ModuleType, target: Any, sources: Sources, tree: ast.Module
) -> Prepared | Failure:
    """Resolve the inputs of `target`; call it inside the fake mode."""
    lines = request.source.splitlines()
    deadline = time.monotonic() + request.seconds
    context = Context(module, FUNCTION_RANKS, constructor(module))
    task = Task(request, module, sources, lines, tree, Statements(tree, request.file), deadline, context)
    written = written_offers(request.given, task.evaluate)
    if isinstance(written, Failure):
        return written
    subject = _subject(task, target)
    if isinstance(subject, Failure):
        return subject
    signature = subject.parameters()
    if signature is None:
        return Failure("unsupported", f"{request.name} has no readable signature")
    unknown = [n for n in written.author.args if n not in signature.parameters and not takes_any(signature)]
    if unknown:
        known = ", ".join(signature.parameters)
        message = f"`{unknown[0]}` is no parameter of {request.name}; its parameters are {known}"
        return Failure("comment", message, written.spans[unknown[0]], severity="error")
    last: Prepared | Failure | None = None
    for offer in _offers(task, subject, signature, written):
        last = _with_offer(task, subject, signature, written.author.over(offer), written)
        if isinstance(last, Prepared) or offer.final:
            return last
    assert last is not None, "there is always an offer that says nothing"
    return last


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
    return Subject(request.name, target)


def _offers(task: Task, subject: Subject, signature: inspect.Signature, written: Written) -> Iterator[Offer]:
    """What each source says, in their order; last an offer that leaves everything to the search."""
    yield from written.recorded
    if not written.author.args:
        is_module = task.request.kind == "module"
        made = signature_of(subject.owner) if is_module and subject.owner is not None else None
        yield from conventions(task.module, signature, made)
    yield Offer({})


def _with_offer(
    task: Task, subject: Subject, signature: inspect.Signature, offer: Offer, written: Written
) -> Prepared | Failure:
    made = Constructed(offer.instance)
    if subject.owner is not None and offer.instance is None:
        found = construct(task, subject.owner, offer.init or {})
        if isinstance(found, Failure):
            return found
        made = found
    bound = subject.bind(made.instance)
    function, modules = bound.described, bound.modules
    node = find_function(task.tree, subject.definition)
    facts = body_facts(node)
    if modules:
        add_layer_facts(node, facts, modules[""])
    context = dataclasses.replace(task.context, ranks=MODULE_RANKS if modules else FUNCTION_RANKS)
    start, alternatives = start_plans(
        signature, hints_of(subject.described, task.module), facts, offer.args, context, task.tree
    )

    def call_of(plans: Plans) -> tuple[Call, dict[int, str]]:
        arguments = materialize(plans, dict(written.named))
        names = tuple(n for n, _ in plans.items if n in plans.positional)
        return Call(function, arguments.args, arguments.kwargs, modules, names), arguments.paths

    def evaluate(plans: Plans) -> Attempt:
        return attempt(task, plans, alternatives, lambda: call_of(plans))

    found = search(start, evaluate, task.seconds, resumed(start, alternatives, task.request.previous))
    plans, run = found.best.plans, found.best.run
    inputs = made.inputs + input_specs(plans)
    if run.error is None:
        notes = [f"{name} was traced as {size}" for name, size in written.named.items()]
        return Prepared(call_of(plans)[0], inputs, run, notes)
    bad: Severity = "information"
    if made.trusted and is_given(start):
        bad = "error"
    elif made.trusted and task.seconds > MIN_SECONDS:
        bad = severity(found, evaluate)
    return search_failure(task, found, bad, inputs)
