"""Shorten long loops over a dimension of the inputs: a few iterations show the same, and are traced faster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from fx_lsp.model import InputSource
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, TensorPlan, ValuePlan, value
from fx_lsp.tracer.inputs.solve.attempt import Attempt
from fx_lsp.tracer.run.observation import LongLoop, repeats_at_most

LONG = 256
"""The fewest runs of one expression that make a loop long, if the size of the dimension was assumed."""
OFTEN = 128
MANY = 1000
"""The same if the size is given, and the number of torch calls that takes too long to capture."""
SHORT = (5, 6, 7, 9, 10)
"""Sizes of dimensions for shortened loops."""
MAX_TRIES = 8
FEW = 2
"""The number of iterations of a loop with a guessed number of iterations."""
HEAVY = 200
"""The number of torch calls from which a loop with such a number is shortened."""
SHARE = 0.7
"""The largest remaining share of torch calls that shows a number to be one of iterations."""
OFFERED: frozenset[InputSource] = frozenset({"convention", "call site", "recorded", "annotation"})
"""Sources that show what the code runs with, not what the author wants to trace."""


def with_short_loops(best: Attempt, evaluate: Callable[[Plans], Attempt]) -> Attempt:
    """Return an attempt with few iterations of long loops; `best` itself if there is none.

    Inputs from a comment or from settings are not changed.
    """
    best = _with_few_guessed_steps(best, evaluate)
    steps = max(best.run.repeats.values(), default=0)
    sources: set[InputSource] = {"search"} if steps >= LONG else set()
    if steps >= OFTEN and best.run.calls >= MANY:
        sources |= OFFERED
    for plans in islice(_shorter(best.plans, steps, sources), MAX_TRIES):
        attempt = evaluate(plans)
        if attempt.run.error is None and max(attempt.run.repeats.values(), default=0) < steps:
            return with_short_loops(attempt, evaluate)
    return best


def with_few_steps(evaluate: Callable[[Plans], Attempt], plans: Plans) -> Attempt:
    """Evaluate plans with few iterations in place of a number of hundreds, if it is one of iterations: an expression
    runs about as often, and a run with one more makes more torch calls.
    """
    for name, number in sorted(_many_steps(plans), key=lambda item: item[1]):
        with repeats_at_most(min(number - 1, LONG)):
            attempt = evaluate(plans)
        if not isinstance(attempt.run.error, LongLoop):
            return attempt
        detail = f"{FEW} steps instead of {number}: a loop iterates over it"
        first = evaluate(plans.with_plan(name, value(FEW, "search", detail)))
        if first.run.error is not None:
            continue
        growth = evaluate(plans.with_plan(name, value(FEW + 1, "search", detail))).run.calls - first.run.calls
        if growth > 0 and first.run.calls + growth * (number - FEW) >= HEAVY:
            plans = first.plans
    return evaluate(plans)


def _many_steps(plans: Plans) -> Iterator[tuple[str, int]]:
    """Yield the numbers of hundreds, with their parameters, that do not come from a comment or settings."""
    for name, plan in plans.items:
        if isinstance(plan, ValuePlan) and plan.source not in ("comment", "settings") and plan.kind == "int":
            number = plan.make()
            if number >= OFTEN:
                yield name, number


def _with_few_guessed_steps(best: Attempt, evaluate: Callable[[Plans], Attempt]) -> Attempt:
    """Return an attempt with few iterations in place of a guessed number of them."""
    for name, plan in best.plans.items if best.run.calls >= HEAVY else ():
        if _guessed_steps(plan, best.run.repeats.values()) > FEW:
            few = value(FEW, "search", f"{FEW} steps: a loop iterates over it")
            attempt = evaluate(best.plans.with_plan(name, few))
            if attempt.run.error is None and attempt.run.calls < SHARE * best.run.calls:
                best = attempt
    return best


def _guessed_steps(plan: Plan, repeated: Iterable[int]) -> int:
    """Return the guessed integer of a parameter, if it may be one of iterations; else 0.

    That is the case if an expression was `repeated` as often, once less or more, or a multiple of that.
    """
    if not isinstance(plan, ValuePlan) or plan.kind != "int" or not plan.is_guess:
        return 0
    number = plan.make()
    goes_over = (count >= number - 1 and (count + 1) % number < 3 for count in repeated) if number > FEW else ()
    return number if any(goes_over) else 0


def _shorter(plans: Plans, steps: int, sources: set[InputSource]) -> Iterator[Plans]:
    """Yield the plans with one size made short, the most likely first: everywhere, or else in one dimension of one
    tensor.
    """
    used_sizes = plans.sizes()
    short = next(size for size in SHORT if size not in used_sizes)
    places = [
        (path, dim, size)
        for path, plan in plans.tensors()
        if plan.source in sources
        for dim, size in enumerate(plan.spec.sizes)
        if isinstance(size, int) and max(SHORT) < size <= steps + 1
    ]
    for size in sorted({s for _, _, s in places}, key=lambda s: (abs(s - steps) > 1, -s)):
        same_size = {(path, dim) for path, dim, s in places if s == size}
        yield _resized(plans, same_size, short)
        if len(same_size) > 1:
            for place in sorted(same_size):
                yield _resized(plans, {place}, short)


def _resized(plans: Plans, places: set[tuple[str, int]], short: int) -> Plans:
    def changed(path: str, plan: TensorPlan) -> TensorPlan:
        sizes = tuple(short if (path, dim) in places else size for dim, size in enumerate(plan.spec.sizes))
        if sizes == plan.spec.sizes:
            return plan
        before = ", ".join(str(s) for dim, s in enumerate(plan.spec.sizes) if (path, dim) in places)
        is_given = not plan.is_guess
        detail = f"{plan.detail}, with {short} instead of {before}" if is_given else "short"
        detail = f"{detail}: a long loop iterates over it"
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=sizes), detail=detail)

    return plans.map_tensors(changed)
