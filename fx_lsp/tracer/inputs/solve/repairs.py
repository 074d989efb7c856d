"""What an exception says about the inputs: other plans to try, the most plausible first."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain as concat
from types import SimpleNamespace
from typing import Any

import torch

from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.failures.fake_kernels import lacks_fake_kernel
from fx_lsp.tracer.inputs.plan.configs import with_value
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import (
    Plan,
    Plans,
    SequencePlan,
    TensorPlan,
    ValuePlan,
    fresh_sizes,
    value,
)
from fx_lsp.tracer.inputs.plan.values import tensors
from fx_lsp.tracer.inputs.solve.attempt import Attempt, by_relevance, involved, is_data_dependent, mentioned_names
from fx_lsp.tracer.inputs.solve.demands import described, guarded, one_that_is_asked, single_batch, single_number, typed
from fx_lsp.tracer.inputs.solve.missing_arguments import handed_on, partially_applied, tensor_for_default
from fx_lsp.tracer.inputs.solve.options import accepted
from fx_lsp.tracer.inputs.solve.passed_none import handed_as_none
from fx_lsp.tracer.inputs.solve.sizes import (
    divisible,
    named_sizes,
    other_rank,
    other_sizes,
    same_for_all_channels,
    single_element,
    tied,
)
from fx_lsp.tracer.run.coroutines import Unfinished
from fx_lsp.tracer.run.observation import tensors_among
from fx_lsp.tracer.run.tensors import short_name, spec_of

_RANK_ALONE = re.compile(
    r"[Nn]umber of dim|[Ee]xpected \d-?D|\d dims?\b|\d-dimensional|values to unpack|Dimension out of range|many indices"
)
"""Errors that no other sizes mend."""


def repairs(attempt: Attempt) -> Iterator[Plans]:
    """Plans worth trying after an attempt that raised."""
    error = attempt.run.error
    assert error is not None
    if isinstance(error, Unfinished) or lacks_fake_kernel(error):
        return
    seen = {attempt.plans}
    rules = RULES if not _RANK_ALONE.search(str(error)) else [rule for rule in RULES if rule not in _ABOUT_SIZES]
    rules = (_on_one_device,) if kind_of(error) == "device" else rules
    for plans in concat(*(rule(attempt, str(error)) for rule in rules)):
        if plans not in seen:
            seen.add(plans)
            yield plans


def is_of_gradients(error: BaseException | None) -> bool:
    """Whether an error is only there because an input was made to need a gradient."""
    return _why_no_gradient(error) is not None


def _why_no_gradient(error: BaseException | None) -> str | None:
    text = str(error)
    return next((why for words, why in _NO_GRADIENT.items() if words in text), None)


_NO_GRADIENT = {
    "leaf Variable": "no gradient: written in place",
    "cannot have requires_grad True": "no gradient: PyTorch has none for it",
}
"""What errors about inputs say that cannot need a gradient, and what is said of such an input."""


def _missing_value(attempt: Attempt, text: str) -> Iterator[Plans]:
    """`None` where something is needed: the next proposal for a parameter that is None.

    What needs the values of tensors may do so because it was not told a number.
    """
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


def _dtype(attempt: Attempt, text: str) -> Iterator[Plans]:
    wanted: list[str] = []
    if _WANTS_INTEGERS.search(text):
        wanted.append("i64")
    if re.search(r"Promotion of|result type (Float|Double) can't be cast", text):
        wanted.append("i64")
    if re.search(r"bool", text, re.IGNORECASE):
        wanted.append("b8")
    if re.search(r"complex", text):
        wanted.append("c64")
    if re.search(r"Float|float|floating|same dtype|complex|'Long'|'Bool'|Half", text):
        wanted.append("f32")
    operands = tensors_among(attempt.run.failed.args, attempt.run.failed.kwargs) if attempt.run.failed else ()
    if wanted:
        wanted += [short_name(t.dtype) for t in operands if t.is_floating_point() and short_name(t.dtype) not in wanted]
    for dtype in wanted:
        for path in involved(attempt):
            yield _with_dtype(attempt.plans, path, dtype)
    for dtype in wanted:
        for path, _ in attempt.plans.tensors():
            yield _with_dtype(attempt.plans, path, dtype)


_WANTS_INTEGERS = re.compile(
    r"must be long|\blong (type|tensor)|Long, Int|type LongTensor|must be.*(int64|integer)|scalar type (Long|Int)|"
    r"indices.*(long|int)|int64|only integer tensors",
    re.IGNORECASE,
)


def _with_dtype(plans: Plans, wanted: str, dtype: str) -> Plans:
    def change(path: str, plan: TensorPlan) -> TensorPlan:
        if path != wanted or plan.source != "search" or plan.dtype_known:
            return plan
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, dtype=dtype), detail="dtype from an error")

    return plans.map_tensors(change)


def _without_gradient(attempt: Attempt, text: str) -> Iterator[Plans]:
    """An input that the code writes to in place, or that an operation is constant in, cannot need a gradient."""
    why = _why_no_gradient(attempt.run.error)
    if why is None:
        return
    for wanted in dict.fromkeys([*involved(attempt), *(p for p, _ in attempt.plans.tensors())]):

        def change(path: str, plan: TensorPlan, wanted: str = wanted) -> TensorPlan:
            return dataclasses.replace(plan, grad=False, detail=why) if path == wanted else plan

        yield attempt.plans.map_tensors(change)


def _on_one_device(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Inputs where the other operands are: nobody said on which device they are.

    A number or a name that was made up and names one of the devices may be another.
    """
    failed = attempt.run.failed
    operands = tensors_among(failed.args, failed.kwargs) if failed is not None else ()
    devices = list(dict.fromkeys(spec_of(operand).device for operand in operands))
    for name, plan in attempt.plans.items:
        if isinstance(plan, ValuePlan) and plan.source == "search" and _names_device(plan.make(), devices):
            others = (torch.device(device or "cpu") for device in devices if device not in (plan.shown, plan.make()))
            yield from (attempt.plans.with_plan(name, value(other, "search", "from an error")) for other in others)
    for device in devices:

        def change(path: str, plan: TensorPlan, device: str | None = device) -> TensorPlan:
            if plan.source != "search":
                return plan
            return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, device=device))

        yield attempt.plans.map_tensors(change)


def _names_device(named: Any, devices: Sequence[str | None]) -> bool:
    """Return True if a value stands for one of the devices: `2` for `cuda:2`."""
    names = [device.partition(":") for device in devices if device is not None]
    if isinstance(named, bool) or not isinstance(named, int | str):
        return False
    return any(str(named) in ("".join(parts), parts[0], parts[2] or "0") for parts in names)


def _as_given(attempt: Attempt, text: str) -> Iterator[Plans]:
    """What a program gives needs no gradient unless it says so: where all is given, the same without any."""
    tensors = [plan for _, plan in attempt.plans.tensors()]
    if isinstance(attempt.run.error, RuntimeError) and tensors and all(plan.source != "search" for plan in tensors):
        yield attempt.plans.map_tensors(lambda _, plan: dataclasses.replace(plan, grad=False))


def _missing_attribute(attempt: Attempt, text: str) -> Iterator[Plans]:
    """An attribute or a key that an object of settings lacks."""
    missing = missing_name(attempt.run.error)
    if missing is None or not missing.name.isidentifier():
        return
    guessed = {
        n: p for n, p in attempt.plans.items if isinstance(p, ValuePlan) and p.source in ("search", "annotation")
    }
    for parameter in by_relevance(attempt, guessed):
        kind = guessed[parameter].kind
        if kind and missing.kind in ("", kind):
            plan = with_value(guessed[parameter], missing.name, attempt.context.module)
            if plan is not None:
                yield attempt.plans.with_plan(parameter, plan)


def _missing_part(attempt: Attempt, text: str) -> Iterator[Plans]:
    """A tensor that is asked for by a name under which an object or a dictionary of tensors has none."""
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
            or any(not isinstance(p, SequencePlan) and p.source != "search" for p in plan.items)
        ):
            return plan
        return dataclasses.replace(plan, items=(*plan.items, added), keys=(*plan.keys, missing.name))

    for name, plan in attempt.plans.items:
        if (other := extended(plan)) is not plan and other != plan:
            yield attempt.plans.with_plan(name, other)


@dataclasses.dataclass(frozen=True)
class Missing:
    """An attribute that an object of type `kind` lacks, or a key that some dict does."""

    name: str
    kind: str = ""


def missing_name(error: BaseException | None) -> Missing | None:
    """Return what an object lacks, if that is why an attempt failed."""
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        return Missing(error.name, type(error.obj).__name__)
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return Missing(error.args[0])
    return None


def _other_kind(attempt: Attempt, text: str) -> Iterator[Plans]:
    """Something else altogether for a parameter that the failing expression mentions."""
    names = [n for n, _ in attempt.plans.items]
    for name in by_relevance(attempt, names):
        for plan in attempt.alternatives.get(name, []):
            yield attempt.plans.with_plan(name, _refreshed(plan, attempt.plans))


Rule = Callable[[Attempt, str], Iterator[Plans]]
RULES: tuple[Rule, ...] = (
    _without_gradient,
    handed_on,
    partially_applied,
    tensor_for_default,
    _missing_attribute,
    _missing_part,
    typed,
    one_that_is_asked,
    single_number,
    named_sizes,
    guarded,
    _missing_value,
    _dtype,
    described,
    accepted,
    single_batch,
    same_for_all_channels,
    tied,
    divisible,
    other_sizes,
    other_rank,
    single_element,
    _other_kind,
    _as_given,
)
_ABOUT_SIZES = (named_sizes, tied, divisible, other_sizes)


def _refreshed(plan: Plan, plans: Plans) -> Plan:
    """The same plan with other sizes in place of those that are in use; small ones mean something and stay."""
    taken = plans.sizes()

    def fresh(plan: Plan) -> Plan:
        if isinstance(plan, SequencePlan):
            return dataclasses.replace(plan, items=tuple(fresh(p) for p in plan.items))
        if isinstance(plan, TensorPlan) and plan.source == "search":
            new = fresh_sizes(len(plan.spec.sizes), taken)
            kept = (s if isinstance(s, int) and s <= SMALL else n for s, n in zip(plan.spec.sizes, new, strict=True))
            return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=tuple(kept)))
        return plan

    return fresh(plan)


SMALL = 3
"""Sizes up to this are never made up: they are channels, coordinates, kernels."""
