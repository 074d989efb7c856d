"""Find mistakes in what a search had to make of its guesses.

Code runs on almost any sizes that its author had in mind. If a search came to inputs that nobody has, and the code does
not run without that, the expression that asked for it is wrong: `u[:, t, :, None] * B[:, t, :]` made of `u[4, 8, 64]`
the inputs `u[64, 8, 64]`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from fx_lsp.messages.assumptions import ONLY_WHEN_UNMET
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import (
    FROM_ERROR,
    INIT,
    Narrowing,
    Plans,
    Sizes,
    TensorPlan,
    fresh_sizes,
    resized,
    with_size,
)
from fx_lsp.tracer.inputs.solve.attempt import Attempt, Evaluate, is_of_sizes, place_of
from fx_lsp.tracer.inputs.solve.forced import name_of
from fx_lsp.tracer.inputs.solve.operands import ASKS_ONE_ELEMENT
from fx_lsp.tracer.inputs.solve.path_conditions import Dimension
from fx_lsp.tracer.source.expressions import expression, shown_expression, verb_of

FEW = (1, 2)
"""The batches that nobody means if a search began with a larger one."""
INTEGERS = frozenset({"i64", "i32", "u8"})
"""The dtypes of tokens and labels: a batch of those is no square matrix."""


@dataclass(frozen=True)
class Odd:
    """Hold a requirement that nobody's inputs meet, and the plans without what the search did to meet it.

    With `alike`, another size for all that have the same has to do as well.
    """

    condition: str
    without: tuple[Plans, ...]
    alike: Plans | None = None


def odd_narrowings(
    ran: Attempt,
    evaluate: Evaluate,
    facts: Mapping[str, Facts],
    names: Mapping[tuple[str, int], str],
    stand_ins: Collection[object],
) -> Iterator[Remark]:
    """Yield a remark on each expression that asked for what nobody passes, and that fails without it.

    What guessed functions (`stand_ins`) ask for is no mistake, nor what the code asks for by raising, or by the truth
    of a tensor, which shows that it is of one example.
    """
    told = set[Span]()
    for step in ran.plans.trail:
        odd_sizes = (*_odd_batches(step, ran.plans, facts, names), *_odd_sizes(step, ran.plans, names))
        for odd in (*_odd_ranks(step, ran.plans, facts), *odd_sizes):
            if step.asked not in told and _is_needed(step.asked, odd, evaluate, stand_ins):
                told.add(step.asked)
                code, verb = shown_expression(step.asked, ran.lines), verb_of(expression(step.asked, ran.lines))
                yield ONLY_WHEN_UNMET.remark(step.asked, code=code, verb=verb, condition=odd.condition)


def _is_needed(asked: Span, odd: Odd, evaluate: Evaluate, stand_ins: Collection[object]) -> bool:
    """Return True if without it the target ends at the expression that asked, in an operation of its own."""
    for attempt in map(evaluate, odd.without):
        failed = attempt.run.failed
        if failed is None or place_of(attempt) != asked or not is_of_sizes(attempt):
            return False
        if failed.func in ASKS_ONE_ELEMENT or any(failed.func is function for function in stand_ins):
            return False
    if odd.alike is None:
        return True
    alike = evaluate(odd.alike)
    return alike.run.error is None or alike.came_past(asked)


def _changed(step: Narrowing, plans: Plans) -> Iterator[tuple[str, Sizes, Sizes, Sizes]]:
    """Yield the tensors of a step with their sizes before it, after it, and in the end."""
    now = dict(plans.tensors())
    for path, before in step.before.items():
        after, last = step.after[path], now.get(path)
        if isinstance(before, TensorPlan) and isinstance(after, TensorPlan) and last is not None:
            yield path, before.spec.sizes, after.spec.sizes, last.spec.sizes


def _odd_ranks(step: Narrowing, plans: Plans, facts: Mapping[str, Facts]) -> Iterator[Odd]:
    """Yield the ranks of a step that are not those for which the code indexes a tensor."""
    for path, before, after, last in _changed(step, plans):
        shown = facts[path].sliced_rank if path in facts else None
        if shown is None or shown != len(before) or len(after) == len(before) or len(last) != len(after):
            continue
        if len(last) > shown:
            others = [last[:index] + last[index + 1 :] for index in range(len(last))]
        else:
            (size,) = fresh_sizes(1, plans.sizes(), features=False)
            others = [(*last[:index], size, *last[index:]) for index in range(len(last) + 1)]
        without = tuple(resized(plans, lambda _, sizes=sizes: sizes, FROM_ERROR, path) for sizes in others)
        yield Odd(f"{path}.dim() == {len(last)}", without)


def _odd_batches(
    step: Narrowing, plans: Plans, facts: Mapping[str, Facts], names: Mapping[tuple[str, int], str]
) -> Iterator[Odd]:
    """Yield the batches of a step that nobody has; a size that a layer requires is none."""
    for path, before, after, last in _changed(step, plans):
        rank = len(last)
        if path in facts and not {0, -rank}.isdisjoint(facts[path].sizes):
            continue
        is_few = rank > 1 and len(after) == rank and after[0] == last[0] and last[0] in FEW
        if is_few and (len(before) != rank or before[0] not in FEW):
            (size,) = fresh_sizes(1, plans.sizes(), features=False)
            name = name_of(Dimension(path, 0, rank), names)
            without = resized(plans, lambda sizes, size=size: (size, *sizes[1:]), FROM_ERROR, path)
            yield Odd(f"{name} == {last[0]}", (without,))


def _odd_sizes(step: Narrowing, plans: Plans, names: Mapping[tuple[str, int], str]) -> Iterator[Odd]:
    """Yield the sizes of a step that plans still have, and that are also those of a dimension far from theirs."""
    dtypes = {path: plan.spec.dtype for path, plan in plans.tensors()}
    for path, before, after, last in _changed(step, plans):
        rank, is_counted = len(last), dtypes[path] in INTEGERS
        if len(before) != rank or len(after) != rank:
            continue
        for index, (old, new, kept) in enumerate(zip(before, after, last, strict=True)):
            if old == new or new != kept or not isinstance(old, int) or not isinstance(new, int):
                continue
            without = (_undone(step, old, new, plans),)
            for other in range(rank):
                first, second = sorted((index, other))
                is_far = (rank > 2 or is_counted) and (first == 0 or second - first > 1)
                if other != index and last[other] == new and before[other] != old and is_far:
                    both = " == ".join(name_of(Dimension(path, place, rank), names) for place in (second, first))
                    (size,) = fresh_sizes(1, plans.sizes(), features=False)
                    if first == 0:  # the batches of all tensors may have the size for another reason
                        yield Odd(both, (*without, _with_batches(plans, new, size)))
                    else:
                        yield Odd(both, without, with_size(plans, new, size))


def _undone(step: Narrowing, old: int, new: int, plans: Plans) -> Plans:
    """Return plans with the size before a step, wherever it changed that, and with the numbers before it."""
    there = {path: (before, after) for path, before, after, last in _changed(step, plans) if len(before) == len(last)}

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        before, after = there.get(path, ((), ()))
        changed = {index for index, sizes in enumerate(zip(before, after, strict=False)) if sizes == (old, new)}
        sizes = (old if index in changed and size == new else size for index, size in enumerate(plan.spec.sizes))
        return replace(plan, spec=replace(plan.spec, sizes=tuple(sizes)))

    undone = plans.map_tensors(change)
    numbers = {path.removeprefix(INIT): plan for path, plan in step.before.items() if path.startswith(INIT)}
    return undone.with_init(numbers) if numbers and undone.init is not None else undone


def _with_batches(plans: Plans, old: int, new: int) -> Plans:
    """Return plans with another size for the first dimension of every tensor that has the old one there."""

    def change(_: str, plan: TensorPlan) -> TensorPlan:
        sizes = (new, *plan.spec.sizes[1:]) if plan.spec.sizes[:1] == (old,) else plan.spec.sizes
        return replace(plan, spec=replace(plan.spec, sizes=sizes))

    return plans.map_tensors(change)
