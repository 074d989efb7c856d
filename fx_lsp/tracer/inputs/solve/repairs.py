"""Derive other plans from an exception, the most plausible first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from itertools import chain as concat
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.failures.fake_kernels import runs_only_on_real_tensors
from fx_lsp.tracer.failures.frames import CalledInVain, called_in_vain
from fx_lsp.tracer.inputs.plan.configs import with_value
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import (
    OF_FILE,
    Plan,
    Plans,
    SequencePlan,
    TensorPlan,
    ValuePlan,
    fresh_sizes,
    value,
)
from fx_lsp.tracer.inputs.plan.values import LENGTH_NAME, FirstOfSeveral, functions_for, giving, makes, tensors
from fx_lsp.tracer.inputs.solve.attempt import (
    Attempt,
    by_relevance,
    involved,
    is_data_dependent,
    is_of_sizes,
    lacks_state,
    mentioned_names,
    mentioned_tensors,
    missing_name,
    unbound_call,
)
from fx_lsp.tracer.inputs.solve.demands import described, guarded, single_batch
from fx_lsp.tracer.inputs.solve.missing_arguments import partially_applied, passed_on, tensor_for_default
from fx_lsp.tracer.inputs.solve.options import accepted
from fx_lsp.tracer.inputs.solve.passed_none import handed_as_none
from fx_lsp.tracer.inputs.solve.sizes import (
    fitting_dtypes,
    fitting_ranks,
    fitting_sizes,
    fitting_values,
    other_rank,
    same_for_all_channels,
    single_number,
    unpacked_ranks,
    unpacked_sizes,
    wanted_ranks,
)
from fx_lsp.tracer.inputs.solve.solver import enlarged
from fx_lsp.tracer.run.callables import Unfinished
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.torch_calls import tensors_among

LENGTHS = (4, 3, 1, 2)
"""The lengths that are tried for a list."""
NO_GRADIENT = "no gradient: the call is not differentiable, or writes to it in place"


def repairs(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans to try after an attempt that raised."""
    error = attempt.run.error
    assert error is not None
    if isinstance(error, Unfinished) or runs_only_on_real_tensors(error) or lacks_state(attempt):
        return
    seen = {attempt.plans}
    rules = (_on_one_device,) if kind_of(error) == "device" else RULES
    for plans in concat.from_iterable(rule(attempt) for rule in rules):
        if plans not in seen:
            seen.add(plans)
            yield plans


def _missing_value(attempt: Attempt) -> Iterator[Plans]:
    """Yield the next proposal for a parameter that is None, if a value is needed.

    Code that needs the values of tensors may do so because a number was not passed.
    """
    text = str(attempt.run.error)
    expected = isinstance(attempt.run.error, (TypeError, AttributeError, AssertionError, ValueError))
    if "NoneType" not in text and not expected and not is_data_dependent(attempt):
        return
    names = [n for n, p in attempt.plans.items if isinstance(p, ValuePlan) and p.shown == "None"]
    if "NoneType" not in text:
        mentioned = mentioned_names(attempt)
        names = [n for n in names if n in mentioned or n in text]
    assert attempt.run.error is not None
    handed = [n for n in handed_as_none(attempt.run.error, attempt.sources) if n in names]
    for name in dict.fromkeys([*handed, *by_relevance(attempt, names)]):
        for plan in attempt.alternatives.get(name, []):
            if not (isinstance(plan, ValuePlan) and plan.shown == "None"):
                yield attempt.plans.with_plan(name, _refreshed(plan, attempt.plans))


def _without_gradient(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with an input without a gradient, if the code writes to it or the call does not support gradients."""
    if not attempt.is_of_gradients:
        return
    for wanted in dict.fromkeys([*involved(attempt), *(p for p, _ in attempt.plans.tensors())]):

        def change(path: str, plan: TensorPlan, wanted: str = wanted) -> TensorPlan:
            return dataclasses.replace(plan, grad=False, detail=NO_GRADIENT) if path == wanted else plan

        yield attempt.plans.map_tensors(change)


def _on_one_device(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with inputs on the device of the other operands, if their device was guessed.

    A made-up number or name of one of the devices may be another.
    """
    failed = attempt.run.failed
    operands = tensors_among(failed.args, failed.kwargs) if failed is not None else ()
    devices = list(dict.fromkeys(spec_of(operand).device for operand in operands))
    for name, plan in attempt.plans.items:
        if isinstance(plan, ValuePlan) and plan.is_guess and _names_device(plan.make(), devices):
            others = (torch.device(device or "cpu") for device in devices if device not in (plan.shown, plan.make()))
            yield from (attempt.plans.with_plan(name, value(other, "search", "from an error")) for other in others)
    for device in devices:

        def change(path: str, plan: TensorPlan, device: str | None = device) -> TensorPlan:
            if not plan.is_guess:
                return plan
            return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, device=device))

        yield attempt.plans.map_tensors(change)


def _names_device(named: Any, devices: Sequence[str | None]) -> bool:
    """Return True if a value names one of the devices: `2` for `cuda:2`."""
    names = [device.partition(":") for device in devices if device is not None]
    if isinstance(named, bool) or not isinstance(named, int | str):
        return False
    return any(str(named) in ("".join(parts), parts[0], parts[2] or "0") for parts in names)


def _as_given(attempt: Attempt) -> Iterator[Plans]:
    """Yield the plans without gradients if all inputs are given: a program's inputs require none unless stated."""
    tensors = [plan for _, plan in attempt.plans.tensors()]
    if isinstance(attempt.run.error, RuntimeError) and tensors and all(not plan.is_guess for plan in tensors):
        yield attempt.plans.map_tensors(lambda _, plan: dataclasses.replace(plan, grad=False))


def _something_to_call(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with functions in place of a guess that was called, wherever it was passed: it is not callable, or
    takes fewer arguments. A module of the file is called as it is.
    """
    unbound = unbound_call(attempt)
    called = CalledInVain(unbound, True) if unbound is not None else called_in_vain(attempt.run.error, attempt.sources)
    if called is None:
        return
    for name, plan in attempt.plans.items:
        is_tensor = isinstance(called.value, torch.Tensor)
        is_it = attempt.run.dependence.input_of(called.value) == name if is_tensor else makes(plan, called.value)
        if is_it and plan.is_guess and getattr(plan, "detail", "") != OF_FILE:
            yield from (attempt.plans.with_plan(name, function) for function in functions_for(plan, called.more))


def _other_result(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans in which a called model returns its own tensor, in place of its argument."""
    for name, plan in attempt.plans.items:
        if plan.is_guess and isinstance(plan, ValuePlan) and isinstance(plan.make(), FirstOfSeveral | nn.Identity):
            results = tensors(name, Facts(), attempt.plans.sizes(), attempt.context)
            yield from (attempt.plans.with_plan(name, giving(result)) for result in results)


def _missing_attribute(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with an attribute or a key that an object of settings lacks."""
    missing = missing_name(attempt.run.error)
    if missing is None or not missing.name.isidentifier():
        return
    guessed = {
        n: p for n, p in attempt.plans.items if isinstance(p, ValuePlan) and p.source in ("search", "annotation")
    }
    for parameter in by_relevance(attempt, guessed):
        kind = guessed[parameter].kind
        if kind and missing.kind in ("", kind):
            called = FirstOfSeveral() if _is_called(attempt, missing.name) else None
            plan = with_value(guessed[parameter], missing.name, attempt.context.module, called)
            if plan is not None:
                yield attempt.plans.with_plan(parameter, plan)


def _is_called(attempt: Attempt, name: str) -> bool:
    """Return True if one of the running lines calls a method of that name."""
    error, lines = attempt.run.error, attempt.lines
    chain = attempt.sources.traceback_chain(error.__traceback__ if error else None)
    numbers = (span.line for span in chain if span.file == attempt.sources.file and span.line <= len(lines))
    return any(f".{name}(" in lines[number - 1] for number in numbers)


def _missing_part(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with another tensor in an object or a dictionary of tensors, under a name that it lacks."""
    missing = missing_name(attempt.run.error)
    if missing is None or not missing.name.isidentifier():
        return
    added = tensors(missing.name, Facts(), attempt.plans.sizes(), attempt.context)[0]

    def extended(plan: Plan) -> Plan:
        if not isinstance(plan, SequencePlan):
            return plan
        if plan.keys is None:
            return dataclasses.replace(plan, items=tuple(extended(item) for item in plan.items))
        is_same = plan.kind in (dict, SimpleNamespace) and missing.kind in ("", plan.kind.__name__)
        if (
            not is_same
            or missing.name in plan.keys
            or any(not isinstance(p, SequencePlan) and not p.is_guess for p in plan.items)
        ):
            return plan
        return dataclasses.replace(plan, items=(*plan.items, added), keys=(*plan.keys, missing.name))

    for name, plan in attempt.plans.items:
        if (other := extended(plan)) is not plan and other != plan:
            yield attempt.plans.with_plan(name, other)


def _larger(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with larger images, if one may have become too small."""
    if is_of_sizes(attempt):
        yield enlarged(attempt.plans)


def _other_length(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with more or fewer items in a list of guessed length."""
    several = {name: plan for name, plan in attempt.plans.items if isinstance(plan, SequencePlan) and not plan.keys}
    for name in by_relevance(attempt, several):
        plan = several[name]
        if plan.items and name != attempt.plans.starred and plan.is_guess:
            lengths = (n for n in LENGTHS if n != len(plan.items))
            yield from (
                attempt.plans.with_plan(name, dataclasses.replace(plan, items=(*plan.items, *plan.items[-1:] * n)[:n]))
                for n in lengths
            )


def _other_kind(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with a value of another kind for a parameter that the failing expression mentions."""
    names = [n for n, _ in attempt.plans.items]
    for name in by_relevance(attempt, names):
        for plan in attempt.alternatives.get(name, []):
            yield attempt.plans.with_plan(name, _refreshed(plan, attempt.plans))


def other_values(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with another value for a guess that is not a tensor."""
    for name, guess in attempt.plans.items:
        if isinstance(guess, ValuePlan) and guess.is_guess:
            for plan in attempt.alternatives.get(name, []):
                yield attempt.plans.with_plan(name, _refreshed(plan, attempt.plans))


def _with_values(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with values for one of the guessed integer tensors, if values are needed.

    They are indices, the first two of any dimension, or lengths of other inputs.
    """
    if not is_data_dependent(attempt):
        return
    guessed = {
        path: plan
        for path, plan in attempt.plans.tensors()
        if plan.is_guess and not plan.values and plan.spec.dtype in _WHOLE
    }
    mentioned = mentioned_tensors(attempt)
    for path in sorted(guessed, key=lambda path: path not in mentioned):
        for values in _values_of(path, guessed[path], attempt.plans):

            def change(where: str, plan: TensorPlan, path: str = path, values: tuple[int, ...] = values) -> TensorPlan:
                return dataclasses.replace(plan, values=values) if where == path else plan

            yield attempt.plans.map_tensors(change)


def _values_of(path: str, plan: TensorPlan, plans: Plans) -> Iterator[tuple[int, ...]]:
    """Yield plausible values of an integer tensor, the most plausible first."""
    places = (0, 1)
    if len(plan.spec.sizes) > 1:
        yield places
        return
    others = (other.spec.sizes[1:] for where, other in plans.tensors() if where != path)
    lengths = sorted({size for sizes in others for size in sizes if isinstance(size, int) and size > 1})
    lengths = lengths or list(fresh_sizes(1, plans.sizes(), features=False))
    if LENGTH_NAME.search(path):
        yield from ((length,) for length in lengths)
        yield places
    else:
        yield places
        yield from ((length,) for length in lengths)


_WHOLE = frozenset({"i8", "i16", "i32", "i64", "u8"})
Rule = Callable[[Attempt], Iterator[Plans]]
RULES: tuple[Rule, ...] = (
    _without_gradient,
    _with_values,
    _something_to_call,
    passed_on,
    partially_applied,
    tensor_for_default,
    _missing_attribute,
    _missing_part,
    fitting_values,
    single_number,
    unpacked_ranks,
    unpacked_sizes,
    guarded,
    wanted_ranks,
    fitting_sizes,
    fitting_dtypes,
    _missing_value,
    described,
    accepted,
    single_batch,
    same_for_all_channels,
    fitting_ranks,
    _larger,
    other_rank,
    _other_length,
    _other_result,
    _other_kind,
    _as_given,
)


def _refreshed(plan: Plan, plans: Plans) -> Plan:
    """Return the same plan with unused sizes; small ones are meaningful and stay."""
    used_sizes = plans.sizes()

    def fresh(plan: Plan) -> Plan:
        if isinstance(plan, SequencePlan):
            return dataclasses.replace(plan, items=tuple(fresh(p) for p in plan.items))
        if isinstance(plan, TensorPlan) and plan.is_guess:
            new = fresh_sizes(len(plan.spec.sizes), used_sizes)
            kept = (s if isinstance(s, int) and s <= SMALL else n for s, n in zip(plan.spec.sizes, new, strict=True))
            return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=tuple(kept)))
        return plan

    return fresh(plan)


SMALL = 3
"""Sizes up to this are never guessed: they are channels, coordinates, kernels."""
