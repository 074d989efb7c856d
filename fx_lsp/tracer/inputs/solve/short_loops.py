"""Long loops: where one goes over a dimension of the inputs, a few of its steps say as much, and are traced sooner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from fx_lsp.model import InputSource
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, TensorPlan, ValuePlan, value
from fx_lsp.tracer.inputs.solve.attempt import Attempt
from fx_lsp.tracer.run.observation import TooManyCallsError

LONG = 256
"""How often one expression runs in a loop that is worth shortening where the size of the dimension was made up."""
OFTEN = 128
MANY = 1000
"""The same where the code has the size, and how many torch calls take so long to capture that few would wait."""
SHORT = (5, 6, 7, 9, 10)
"""Sizes of dimensions that such a loop goes over."""
MAX_TRIES = 8
FEW = 2
"""How many steps stand for a loop whose number of steps nobody gave."""
HEAVY = 200
"""From how many torch calls on a loop over such a number is shortened."""
SHARE = 0.7
"""What is left of the torch calls, at most, where a number was one of steps."""
MAX_CALLS = 2000
"""How many torch calls a run may make where a number of hundreds may be that of its steps."""
OFFERED: frozenset[InputSource] = frozenset({"convention", "call site", "recorded", "annotation"})
"""Sources that say what the code runs with, not what the author wants to see traced."""


def with_short_loops(best: Attempt, evaluate: Callable[[Plans], Attempt]) -> Attempt:
    """An attempt whose loops take a few steps where they took many; `best` itself where there is none.

    What a comment or a setting says is left as it is.
    """
    best = _with_few_steps(best, evaluate)
    steps = max(best.run.repeats.values(), default=0)
    sources: set[InputSource] = {"search"} if steps >= LONG else set()
    if steps >= OFTEN and best.run.calls >= MANY:
        sources |= OFFERED
    for plans in islice(_shorter(best.plans, steps, sources), MAX_TRIES):
        attempt = evaluate(plans)
        if attempt.run.error is None and max(attempt.run.repeats.values(), default=0) < steps:
            return with_short_loops(attempt, evaluate)
    return best


def call_limit(plans: Plans) -> int | None:
    """Return how many torch calls a run of plans may make; None for any number of them."""
    return MAX_CALLS if next(_many_steps(plans), None) is not None else None


def with_few_steps(attempt: Attempt) -> Iterator[Plans]:
    """Yield plans with few steps in place of a number of hundreds, for a run that made too many torch calls."""
    if isinstance(attempt.run.error, TooManyCallsError):
        for name, number in _many_steps(attempt.plans):
            few = value(FEW, "search", f"{FEW} steps for {number}, as a loop goes over it")
            yield attempt.plans.with_plan(name, few)


def _many_steps(plans: Plans) -> Iterator[tuple[str, int]]:
    """Yield the numbers of hundreds, with the parameters that have them, that no comment and no setting says."""
    for name, plan in plans.items:
        if isinstance(plan, ValuePlan) and plan.source not in ("comment", "settings") and plan.kind == "int":
            number = plan.make()
            if number >= OFTEN:
                yield name, number


def _with_few_steps(best: Attempt, evaluate: Callable[[Plans], Attempt]) -> Attempt:
    """An attempt with few steps in place of a number of them that was guessed, or of a default of hundreds."""
    for name, plan in best.plans.items if best.run.calls >= HEAVY else ():
        number = _steps(plan, best.run.repeats.values())
        if number <= FEW:
            continue
        instead = f" for {number}" if isinstance(plan, ValuePlan) and plan.source == "default" else ""
        few = value(FEW, "search", f"{FEW} steps{instead}, as a loop goes over it")
        attempt = evaluate(best.plans.with_plan(name, few))
        if attempt.run.error is None and attempt.run.calls < SHARE * best.run.calls:
            best = attempt
    return best


def _steps(plan: Plan, repeated: Iterable[int]) -> int:
    """The whole number that a plan for a parameter is and that may be one of steps; else 0.

    One of steps is where something was `repeated` as often, once less or more, or several times that.
    """
    if not isinstance(plan, ValuePlan) or plan.kind != "int":
        return 0
    number = plan.make()
    is_long = plan.source == "search" or (plan.source == "default" and number >= OFTEN)
    goes_over = (count >= number - 1 and (count + 1) % number < 3 for count in repeated) if number > FEW else ()
    return number if is_long and any(goes_over) else 0


def _shorter(plans: Plans, steps: int, sources: set[InputSource]) -> Iterator[Plans]:
    """The plans with one size made short, the likeliest first: everywhere, or else in one dimension of one tensor."""
    taken = plans.sizes()
    short = next(size for size in SHORT if size not in taken)
    places = [
        (path, dim, size)
        for path, plan in plans.tensors()
        if plan.source in sources
        for dim, size in enumerate(plan.spec.sizes)
        if isinstance(size, int) and max(SHORT) < size <= steps + 1
    ]
    for size in sorted({s for _, _, s in places}, key=lambda s: (abs(s - steps) > 1, -s)):
        found = {(path, dim) for path, dim, s in places if s == size}
        yield _resized(plans, found, short)
        if len(found) > 1:
            for place in sorted(found):
                yield _resized(plans, {place}, short)


def _resized(plans: Plans, places: set[tuple[str, int]], short: int) -> Plans:
    def changed(path: str, plan: TensorPlan) -> TensorPlan:
        sizes = tuple(short if (path, dim) in places else size for dim, size in enumerate(plan.spec.sizes))
        if sizes == plan.spec.sizes:
            return plan
        before = ", ".join(str(s) for dim, s in enumerate(plan.spec.sizes) if (path, dim) in places)
        given = plan.source != "search"
        detail = f"{plan.detail}, with {short} for {before}" if given else "short"
        detail = f"{detail}, as a long loop goes over it"
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=sizes), detail=detail)

    return plans.map_tensors(changed)
