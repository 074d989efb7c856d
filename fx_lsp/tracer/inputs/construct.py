"""Construct instances of the target's class, on fake tensors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from fx_lsp.messages.targets import NO_SIGNATURE_OF_CONSTRUCTOR
from fx_lsp.messages.texts import MODE_WITHOUT_MODULE
from fx_lsp.model import Failure, InputSpec, Severity, Span
from fx_lsp.specs import MODE
from fx_lsp.tracer.failures.exceptions import comment_hint, failure_of
from fx_lsp.tracer.inputs.evidence.body import constructor_facts, find_class
from fx_lsp.tracer.inputs.evidence.layers import add_facts_of_functions
from fx_lsp.tracer.inputs.plan.plans import INIT, Plan, Plans, ValuePlan, input_specs, materialize
from fx_lsp.tracer.inputs.plan.signatures import constructor_hints, signature_of, takes_any
from fx_lsp.tracer.inputs.plan.start import is_given, resumed, start_plans
from fx_lsp.tracer.inputs.search import HARD, Search, Solver, run_search, search_failure
from fx_lsp.tracer.inputs.solve.attempt import Attempt, attempt
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, explore
from fx_lsp.tracer.inputs.solve.verdict import DeadEnd, are_numbers, of_machine, verdict
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.program.absences import AbsentError
from fx_lsp.tracer.program.effects import EffectBlocked
from fx_lsp.tracer.program.load import constructor_lines, find, without_what_raises
from fx_lsp.tracer.program.scratch import scratch_files
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.fakes import construct_fake
from fx_lsp.tracer.source.likely_numbers import says_number

MODULE_RANKS = (3, 4, 2, 1, 5)


@dataclass(frozen=True)
class Constructed:
    """Hold an object of the target's class and the constructor arguments that differ from the defaults.

    `plans` are all arguments, if it was constructed here.
    """

    instance: Any
    inputs: tuple[InputSpec, ...] = ()
    plans: Plans = field(default_factory=lambda: Plans(()))

    @property
    def trusted(self) -> bool:
        """Return True if no argument was guessed."""
        return all(not i.is_guess for i in self.inputs)


def construct(
    task: Task, cls: type, arguments: Mapping[str, Plan], is_certain: bool = True, is_lenient: bool = False
) -> Constructed | Failure:
    """Construct an instance with the given constructor arguments; the others are searched for.

    A failure of given arguments is an error of the code only if they are `is_certain`. If a constructor needs a missing
    package or missing data, it runs without the statements that raise; it is `is_lenient` then.
    """
    signature, hints = signature_of(cls), constructor_hints(cls, task.module)
    if signature is None:
        return NO_SIGNATURE_OF_CONSTRUCTOR.failure(name=cls.__name__)
    facts = constructor_facts(find_class(task.tree, cls.__name__))
    add_facts_of_functions(facts, task.module)
    context = dataclasses.replace(task.context, ranks=MODULE_RANKS, constructing=True)
    outer, task = task, dataclasses.replace(task, context=context)
    start, alternatives = start_plans(signature, hints, facts, arguments, context)

    def call_of(plans: Plans, sizes: Mapping[str, Any]) -> tuple[Call, Dependence]:
        materialized = materialize(plans, sizes)
        return Call(partial(instance_of, cls), materialized.args, materialized.kwargs), materialized.dependence

    def evaluate(plans: Plans) -> Attempt:
        return attempt(task, plans, alternatives, lambda: call_of(plans, {}))

    def explored(plans: Plans, whole: bool) -> Exploration:
        return explore(task, plans, alternatives, lambda free: call_of(free.plans(plans), free.sizes))

    earlier = resumed(start, alternatives, task.request.previous, INIT)
    result = run_search(Search(start, evaluate, task.budget.part(task.seconds / 2), Solver(explored)), earlier)
    if result.best.run.error is not None:
        lenient = _lenient(task, cls) if isinstance(result.best.run.error, _NOT_HERE) and not is_lenient else None
        if lenient is not None:
            again = construct(task, lenient, arguments, is_certain, is_lenient=True)
            if isinstance(again, Constructed):
                return again
        bad: Severity = "error" if is_certain and _is_evident(start, result.best) else "information"
        is_clear = all(_is_of_one_kind(name, options) for name, options in alternatives.items())
        if bad != "error" and is_clear and not takes_any(signature):
            attempts = [a for a in result.failures if not any(p.is_guess for _, p in a.plans.tensors())]
            mistake = verdict(DeadEnd(attempts, evaluate, lambda plans: explored(plans, whole=True)))
            result.best, bad = (mistake.attempt, "warning") if mistake is not None else (result.best, bad)
        failure = search_failure(task, result, bad, input_specs(result.best.plans, INIT))
        if failure.kind in HARD:
            return failure
        message = f"{failure.message} (constructing {cls.__name__})"
        hint = (
            ""
            if bad == "error"
            else comment_hint(input_specs(result.best.plans, INIT))
            or "Write its arguments in a comment: `# fx: init(…)`."
        )
        return dataclasses.replace(failure, kind="construct", message=message, hint=hint)
    plans = result.best.plans
    outer.budget = outer.budget.beside_run(result.best.run.calls)  # a large model leaves a search its time
    return Constructed(result.best.run.result, shown_init(dict(plans.items)), plans)


def _is_evident(start: Plans, failed: Attempt) -> bool:
    """Return True if a constructor failed with given arguments only, and not because of the environment."""
    return is_given(start) and not any(of_machine(failed))


def _is_of_one_kind(name: str, options: Sequence[Plan]) -> bool:
    """Return True if a parameter is evidently a number, or nothing about it is guessed."""
    is_guessed = any(spec.guessed for spec in input_specs(Plans(((name, options[0]),))))
    return not is_guessed or says_number(name) or are_numbers(options)


_NOT_HERE = (ImportError, OSError, EffectBlocked, AbsentError)
"""Errors of missing resources, which are not mistakes of the code."""


def _lenient(task: Task, cls: type) -> type | None:
    """Return the class with a constructor that continues after statements that raise; None if its file has none."""
    if not constructor_lines(task.tree, cls.__qualname__):
        return None
    before = sys.modules.get(task.request.module)
    try:
        return find(without_what_raises(task.request, task.mode), cls.__qualname__)
    except Exception:
        return None
    finally:
        if before is not None:
            sys.modules[task.request.module] = before


def instance_of(cls: type, *args: Any, **kwargs: Any) -> Any:
    """Construct one instance; its files are scratch files. Raises TypeError for a module without initialized state, or
    with such a part.

    PyTorch raises it only at the first access to the parameters that `super().__init__()` creates.
    """
    with scratch_files():
        instance = construct_fake(cls, args, kwargs)
    require_state([instance])
    return instance


def require_state(objects: Iterable[object]) -> None:
    """Raise TypeError for modules without initialized state, or with such parts."""
    waiting, seen = [*objects], set[int]()
    while waiting:
        part = waiting.pop()
        if not isinstance(part, nn.Module) or id(part) in seen:
            continue
        if "_parameters" not in vars(part):
            raise TypeError(f"the constructor of {type(part).__name__} does not call `super().__init__()`")
        seen.add(id(part))
        waiting += part._modules.values()


def switch(
    task: Task, modules: Mapping[str, nn.Module], mode: ValuePlan, span: Span | None
) -> tuple[InputSpec, ...] | Failure:
    """Put the target's module into a mode, with its own `train` or `eval`; `span` is the place of the written mode.

    One that a program calls in this mode is left alone: parts of it may be in the other one.
    """
    if "" not in modules:
        return MODE_WITHOUT_MODULE.failure(span, mode="train" if mode.make() else "eval", name=task.request.name)
    try:
        if mode.source != "call site" or modules[""].training != mode.make():
            modules[""].train() if mode.make() else modules[""].eval()
    except Exception as error:
        return failure_of(error, task.sources, None, task.lines, "information")
    return input_specs(Plans(((MODE, mode),)))


def shown_init(plans: Mapping[str, Plan]) -> tuple[InputSpec, ...]:
    """Return the constructor arguments for the user, without those that are the defaults."""
    return tuple(i for i in input_specs(Plans(tuple(plans.items())), INIT) if i.source != "default")
