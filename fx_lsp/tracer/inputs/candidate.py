"""Combine the target with one source of inputs: an instance, and plans that run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, TypeAlias

import torch
from torch import nn

from fx_lsp.model import Failure, Remark
from fx_lsp.specs import MODE, TensorSpec
from fx_lsp.syntax import FunctionNode
from fx_lsp.tracer.failures.exceptions import failure_of
from fx_lsp.tracer.failures.no_tensor_code import may_be_none, nothing
from fx_lsp.tracer.inputs.budget import CALLS_PER_PARAMETER
from fx_lsp.tracer.inputs.construct import (
    MODULE_RANKS,
    Constructed,
    construct,
    instance_of,
    require_state,
    shown_init,
    switch,
)
from fx_lsp.tracer.inputs.evidence.body import body_facts, find_class, find_function, lend_facts
from fx_lsp.tracer.inputs.evidence.layers import (
    add_documented_images,
    add_facts_of_functions,
    add_layer_facts,
    definition_of,
)
from fx_lsp.tracer.inputs.evidence.named_numbers import NamedSize, sizes_by_name, with_named_sizes
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.offer import Offer, Written
from fx_lsp.tracer.inputs.plan.plans import (
    INIT,
    Plan,
    Plans,
    ValuePlan,
    at,
    materialize,
)
from fx_lsp.tracer.inputs.plan.signatures import hints_of, signature_of
from fx_lsp.tracer.inputs.plan.start import Alternatives, passed, start_plans
from fx_lsp.tracer.inputs.solve.attempt import Attempt, attempt
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, Free, explore
from fx_lsp.tracer.inputs.subject import Subject
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.state import names_seen_by
from fx_lsp.tracer.run.tensors import spec_of

FUNCTION_RANKS = (2, 3, 4, 1)
_Made: TypeAlias = "tuple[Plans, str | None]"
"""The parts of an object: the arguments of its constructor, and the device that it is moved to."""


@dataclass(frozen=True)
class Candidate:
    """Hold the target with one offer of inputs, and the facts of its body on the rest.

    `constructed` is the object that it belongs to, and `bound` the target as a callable of that; `others` are objects
    constructed with other arguments, with their callables. `named_sizes` are sizes that names reveal, and `demands`
    caches requirements found for plans.
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
    named_sizes: list[NamedSize]
    others: dict[_Made, tuple[Any, Subject]] = field(default_factory=dict["_Made", "tuple[Any, Subject]"])
    demands: dict[Plans, list[Remark]] = field(default_factory=dict[Plans, "list[Remark]"])

    @property
    def constructor(self) -> Plans | None:
        """Return the plans of its object's constructor; None if a program created the object elsewhere."""
        owner, init = self.subject.owner, self.offer.init
        signature = signature_of(owner) if owner is not None else None
        if self.offer.instance is None:
            return self.constructed.plans
        return passed(signature, init) if signature is not None and init is not None else None

    def call_of(self, plans: Plans, sizes: Mapping[str, Any]) -> tuple[Call, Dependence]:
        """Return the call with arguments created from plans, with named `sizes`, and the inputs of its tensors."""
        return self._in_context(self._bound_with(plans.init, plans).call(plans, sizes))

    def evaluate(self, plans: Plans, init: Plans | None = None) -> Attempt:
        """Run plans once, on another instance if `init` has the plans for its constructor."""
        named = self.written.named
        return attempt(
            self.task,
            plans,
            self.alternatives,
            lambda: self._in_context(self._bound_with(init or plans.init, plans).call(plans, named)),
        )

    def explore(self, plans: Plans, whole: bool = False, chains: bool = False) -> Exploration:
        """Run plans once with a symbol for every guessed size.

        With `whole`, numbers among the arguments of the constructor are symbols, too; `chains` is as in `explore`.
        """

        def free_call(free: Free) -> tuple[Call, Dependence]:
            init = plans.init or self.constructed.plans
            freed = free.plans(init, INIT) if whole else init
            where = device_of(plans)
            bound = self._constructed_with(freed, where)[1] if freed != init else self._bound_with(init, plans)
            return self._in_context(bound.call(free.plans(plans), {**self.written.named, **free.sizes}))

        return explore(self.task, plans, self.alternatives, free_call, chains)

    def _in_context(self, traced: tuple[Call, Dependence]) -> tuple[Call, Dependence]:
        """Return a call as one in the context of the offer."""
        call, dependence = traced
        return dataclasses.replace(call, context=self.offer.context), dependence

    def _bound_with(self, init: Plans | None, plans: Plans) -> Subject:
        """Return the target as a callable of the object constructed with those arguments, cached.

        Its modules are on the device of the tensors of `plans`.
        """
        where = device_of(plans)
        if init is None or (init == self.constructed.plans and where == device_of(self.start)):
            return self.bound
        if (init, where) not in self.others:
            self.others[init, where] = self._constructed_with(init, where)
        return self.others[init, where][1]

    def with_object_of(self, plans: Plans) -> Candidate:
        """Return the candidate with the object that plans were tried with in place of its own."""
        init, where = plans.init, device_of(plans)
        if init is None or (init, where) not in self.others:
            return self
        instance, bound = self.others[init, where]
        inputs = (*shown_init(dict(init.items)), *(i for i in self.constructed.inputs if i.name == MODE))
        named = sizes_by_name(self.start, self.facts, init.items, self.task.request.kind == "module")
        constructed = Constructed(instance, inputs, init)
        return dataclasses.replace(self, constructed=constructed, bound=bound, named_sizes=named)

    def _constructed_with(self, init: Plans, where: str | None) -> tuple[Any, Subject]:
        """Return an object constructed with other arguments, and the target as a callable of it."""
        arguments = materialize(init, self.written.named)
        instance = instance_of(type(self.constructed.instance), *arguments.args, **arguments.kwargs)
        bound = self.subject.bind(instance)
        parameters = (parameter for module in bound.modules.values() for parameter in module.parameters())
        self.task.budget.work.spend_run(CALLS_PER_PARAMETER * sum(1 for _ in parameters))
        if self.offer.mode is not None and "" in bound.modules:
            bound.modules[""].train(self.offer.mode.make())
        _move(bound.modules, where)
        return instance, bound


def candidate_of(
    task: Task, subject: Subject, signature: inspect.Signature, offer: Offer, written: Written
) -> Candidate | Failure:
    constructed = Constructed(offer.instance, shown_init(offer.init or {}))
    if subject.owner is not None and offer.instance is None:
        instance = construct(task, subject.owner, offer.init or {}, is_certain=not offer.guessed)
        if isinstance(instance, Failure):
            vague = offer.is_empty and not issubclass(subject.owner, nn.Module) and may_be_none(task.request)
            return nothing(task.request.name, instance.message) if vague and not task.request.evident else instance
        constructed = instance
    bound = subject.bind(constructed.instance)
    try:
        require_state(bound.modules.values())
    except TypeError as error:
        if offer.guessed and offer.instance is not None:  # statements before the call may have been left out
            return candidate_of(task, subject, signature, dataclasses.replace(offer, instance=None), written)
        return failure_of(error, task.sources, None, task.lines, "error")
    if offer.mode is not None:
        switched = switch(task, bound.modules, offer.mode, written.spans.get(MODE))
        if isinstance(switched, Failure):
            return switched
        constructed = dataclasses.replace(constructed, inputs=constructed.inputs + switched)
    node = find_function(task.tree, subject.definition)
    facts = _facts_of(task, subject, bound, node, offer)
    ranks = MODULE_RANKS if bound.modules else FUNCTION_RANKS
    context = dataclasses.replace(task.context, ranks=ranks, gradients=task.request.kind != "step")
    start, alternatives = start_plans(signature, hints_of(subject.described, task.module), facts, offer.args, context)
    start, alternatives = _at_home(bound.modules, start, alternatives)
    arguments = constructed.plans.items or tuple((offer.init or {}).items())
    named = sizes_by_name(start, facts, arguments, task.request.kind == "module")
    start = with_named_sizes(start, named)
    if offer.instance is None:
        _move(bound.modules, device_of(start))
        start = dataclasses.replace(start, init=constructed.plans if subject.owner is not None else None)
    return Candidate(task, subject, offer, written, constructed, bound, node, facts, start, alternatives, named)


def _facts_of(
    task: Task, subject: Subject, bound: Subject, node: FunctionNode | None, offer: Offer
) -> dict[str, Facts]:
    """Return the facts on the target's parameters, from its text or that of the base class with its method."""
    body = node or definition_of(innermost(subject.described))
    facts = body_facts(body)
    add_facts_of_functions(facts, task.module)
    around = {"self": bound.modules[""]} if bound.modules else _modules_around(bound.described)
    add_layer_facts(body, facts, {**around, **_modules_given(offer.args)})
    if subject.owner is not None:
        add_documented_images(find_class(task.tree, subject.owner.__name__), facts)
    lend_facts(task.tree, facts, bool(bound.modules))
    return facts


def _modules_given(plans: Mapping[str, Plan]) -> Mapping[str, nn.Module]:
    """Return the modules that a program passes to a function."""
    seen = {name: plan for name, plan in plans.items() if isinstance(plan, ValuePlan) and plan.source == "call site"}
    values = {name: plan.make() for name, plan in seen.items()}
    return {name: value for name, value in values.items() if isinstance(value, nn.Module)}


def _modules_around(function: Any) -> Mapping[str, nn.Module]:
    """Return the modules that a function refers to by name: the models and losses of a training step."""
    plain = innermost(function)
    if not isinstance(plain, FunctionType):
        return {}
    return {name: value for name, value in names_seen_by(plain).items() if isinstance(value, nn.Module)}


def _at_home(modules: Mapping[str, nn.Module], start: Plans, alternatives: Alternatives) -> tuple[Plans, Alternatives]:
    """Return plans whose guessed tensors are on the device and in the dtype of the modules' parameters."""
    home = _home_of(modules)
    if home is None or device_of(start) is not None:
        return start, alternatives
    items = tuple((name, at(plan, home) if name in alternatives else plan) for name, plan in start.items)
    tried = {name: [*(at(plan, home) for plan in plans), *plans] for name, plans in alternatives.items()}
    return dataclasses.replace(start, items=items), tried


def _home_of(modules: Mapping[str, nn.Module]) -> TensorSpec | None:
    """Return the dtype and the device of all floating parameters of modules; None for several, and for the defaults."""
    parameters = [parameter for module in modules.values() for parameter in module.parameters()]
    homes = {(p.dtype, p.device): p for p in parameters if p.is_floating_point()}
    if len(homes) != 1 or (torch.float32, torch.device("cpu")) in homes:
        return None
    return dataclasses.replace(spec_of(homes.popitem()[1]), sizes=(), strides=None)


def device_of(plans: Plans) -> str | None:
    """Return the device of all tensors of plans that have one; None for the CPU and for several."""
    devices = {plan.spec.device for _, plan in plans.tensors() if plan.spec.device}
    return devices.pop() if len(devices) == 1 else None


def _move(modules: Mapping[str, nn.Module], device: str | None) -> None:
    """Move modules that are constructed on the CPU to the device of their inputs."""
    if device is None:
        return
    for module in modules.values():
        if all(tensor.device.type == "cpu" for tensor in (*module.parameters(), *module.buffers())):
            module.to(device=torch.device(device))
