"""Search best-first for inputs that the target accepts: run, read the error, repair, run again."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain as concat
from itertools import count, islice, product
from typing import TypeAlias

from fx_lsp.model import Failure, InputSpec, Severity
from fx_lsp.tracer.failures.exceptions import failure_of, is_of_made_up, showing_inputs
from fx_lsp.tracer.inputs.budget import Budget
from fx_lsp.tracer.inputs.plan.plans import FROM_DOCSTRING, FROM_ERROR, Plans, TensorPlan, ValuePlan
from fx_lsp.tracer.inputs.solve.attempt import Attempt, Evaluate, is_data_dependent, is_of_sizes, place_of
from fx_lsp.tracer.inputs.solve.demands import of_one_shape
from fx_lsp.tracer.inputs.solve.operands import wants_other_rank
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, guessed_number
from fx_lsp.tracer.inputs.solve.repairs import other_values, repairs
from fx_lsp.tracer.inputs.solve.short_loops import with_short_loops
from fx_lsp.tracer.inputs.solve.sizes import aligned_ranks, batched, with_rank
from fx_lsp.tracer.inputs.solve.solver import enlarged, has_vanishing_sizes, of_operands, solved, with_sizes
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.run.observation import Run
from fx_lsp.tracer.run.values.decisions import needed

Explore = Callable[[Plans, bool], Exploration]
"""Runs plans on symbols, if True with symbols for numbers of the constructor."""
Reconstruct = Callable[[Attempt], Iterator[Plans]]
"""Yields plans with other arguments for the constructor."""

MAX_ATTEMPTS = 400
MAX_REPEATS = 16
"""The most consecutive attempts that teach nothing: each stops where another one did, with the same error."""
REPAIRS_PER_RANK, REPAIRS_PER_COMBINATION = 12, 4
"""The attempts that another rank gets to fit better than plans that already run; a combination gets fewer."""
SHARE_OF_RANKS = 0.3
"""The share of its work that a search reserves for other ranks than the first."""
LATEST = 3.0
"""The additional seconds of work for a search whose last attempt came further than any before."""
DETOUR = 5
"""The number of attempts without progress until one is made from another place."""
MAX_VISITS = 8
"""The most times that sizes are solved for at one place."""
MAX_COMBINED = 3
"""The most tensors whose ranks are changed at once."""
MAX_COMBINATIONS = 20
MAX_SIZE = 1 << 16
NO_EFFECT = 20
"""The doubt added to the children of a repair that did not change the error."""


@dataclass
class Found:
    """Hold the result of a search: the best attempt (it ran if `run.error` is None), the failed ones, and those with
    inputs of other ranks. It is `exhausted` if no other ranks are left to try.
    """

    best: Attempt
    failures: list[Attempt] = field(default_factory=list)
    of_other_ranks: list[Attempt] = field(default_factory=list)
    exhausted: bool = False


@dataclass(frozen=True)
class Extent:
    """Hold how far a search goes: the `attempts` of its first part, and the parameters whose ranks are `open` in place
    of any.
    """

    attempts: int = MAX_ATTEMPTS
    open: frozenset[str] | None = None


WHOLE = Extent()


@dataclass(frozen=True)
class Search:
    """Hold what a search works with: the plans that it begins with, a function that runs plans, and a budget of work.

    Sizes that do not fit are solved for with a `solver`, if passed. Plans that run but `fit_by_accident` are replaced
    if others fit. `seen` are the plans that a search began with.
    """

    start: Plans
    evaluate: Evaluate
    budget: Budget
    solver: Solver | None = None
    fit_by_accident: Callable[[Attempt], bool] = lambda attempt: False
    extent: Extent = WHOLE
    seen: set[Plans] = field(default_factory=set[Plans])

    def unseen(self, several: Iterable[Plans]) -> Iterator[Plans]:
        """Yield the plans that no search began with yet, while the budget lasts."""
        for plans in several:
            if plans not in self.seen and not self.budget.is_spent:
                self.seen.add(plans)
                yield plans


def run_search(search: Search, earlier: Plans | None = None) -> Found:
    """Try plans until some run, within about the budget; then check whether other ranks fit better.

    Plans fit better if fewer element-wise operations add dimensions, and if they do not fit by accident. The result of
    an `earlier` search is kept if it still runs.
    """
    if earlier is not None and earlier != search.start:
        attempt = search.evaluate(earlier)
        if attempt.run.error is None:
            return _of_fitting_rank(search, Found(attempt))
    search.seen.add(search.start)
    part = search.budget.part(search.budget.seconds * (1 - SHARE_OF_RANKS))
    result = _first_that_runs(dataclasses.replace(search, budget=part), search.start, search.extent.attempts)
    if result.best.run.error is None:
        result.best = _with_fewest_accidents(search, result.best)
    result.best = _of_other_values(search, result.best)
    result = _of_fitting_rank(search, result)
    if result.best.run.error is not None and not is_data_dependent(result.best):
        result = _of_other_ranks(search, result)
    if result.best.run.error is None and not search.budget.is_spent:
        result.best = with_short_loops(_simplest(search, result.best), search.evaluate)
    return result


def _of_fitting_rank(search: Search, result: Found) -> Found:
    """Return the result of a search; if it runs by accident, with other ranks of which that is not true, if there are
    such. It is `exhausted` if there are none.
    """
    if result.best.run.error is not None or not search.fit_by_accident(result.best):
        return result

    def fits(attempt: Attempt) -> bool:
        ranks = [len(plan.spec.sizes) for _, plan in attempt.plans.tensors() if plan.is_guess]
        is_meant = all(ranks) and not _accidents(attempt) and _has_ranks_of_docstring(attempt, search.start)
        return is_meant and not search.fit_by_accident(attempt)

    other = _of_other_rank(search, result.best, fits)
    is_exhausted = other is None and not search.budget.is_spent
    return dataclasses.replace(result, best=other or result.best, exhausted=is_exhausted)


def _with_fewest_accidents(search: Search, best: Attempt) -> Attempt:
    """Return an attempt of other ranks that runs with fewer signs of wrong ranks, or the same one."""
    while accidents := _accidents(best):

        def has_fewer(attempt: Attempt, accidents: int = accidents) -> bool:
            return _has_ranks_of_docstring(attempt, search.start) and _accidents(attempt) < accidents

        better = _of_other_rank(search, best, has_fewer)
        if better is None:
            break
        best = better
    return best


def _accidents(attempt: Attempt) -> int:
    """Return the number of signs in a run that its inputs have unintended ranks."""
    return attempt.run.expansions + len(attempt.run.unbatched)


def _has_ranks_of_docstring(attempt: Attempt, start: Plans) -> bool:
    """Return True if tensors have the ranks in the docstring."""
    ranks = {path: len(plan.spec.sizes) for path, plan in attempt.plans.tensors()}
    said = ((path, len(plan.spec.sizes)) for path, plan in start.tensors() if plan.detail == FROM_DOCSTRING)
    return all(ranks.get(path, rank) == rank for path, rank in said)


def _simplest(search: Search, best: Attempt) -> Attempt:
    """Return the attempt with repairs undone for parameters that also run with their default."""
    for name, plan in search.start.items:
        if getattr(plan, "source", "") == "default" and best.plans[name] != plan and not search.budget.is_spent:
            attempt = search.evaluate(best.plans.with_plan(name, plan))
            if attempt.run.error is None:
                best = attempt
    return best


def _first_that_runs(search: Search, start: Plans, attempts: int) -> Found:
    """Search best-first from `start` on: children of the furthest run, and among those the plans with the fewest
    unlikely repairs.

    A run that computes nothing is no result if others failed in what they computed: it avoids the code. The search ends
    when it learns nothing: `MAX_REPEATS` attempts have moved neither the stop nor a size in its error.
    """
    order = count()
    queue: list[_Entry] = [((0, 0), 0, next(order), start, None)]
    seen = {start}
    furthest: Attempt | None = None
    furthest_reached = (-2, 0, 0)
    failures: list[Attempt] = []
    stops = set[object]()
    stagnation = repeats = 0
    while queue and len(failures) < attempts and repeats < MAX_REPEATS:
        if furthest is not None and -search.budget.seconds > (0 if stagnation else LATEST):
            break
        _, doubt, _, plans, parent = _next(queue, stagnation)
        attempt = search.evaluate(plans)
        if attempt.run.error is None:
            if attempt.run.calls or furthest_reached[0] <= 0:
                return Found(attempt, failures)
            continue
        failures.append(attempt)
        stagnation += 1
        calls, line, ended = reached(attempt)
        if (calls, line, ended) > furthest_reached:
            furthest, furthest_reached, stagnation = attempt, (calls, line, ended), 0
        place = place_of(attempt)
        stop = (place, str(attempt.run.error))
        repeats = repeats + 1 if stop in stops else 0
        stops.add(stop)
        if stop == parent:
            doubt += NO_EFFECT
        for unlikely, child in enumerate(c for c in _children(search, attempt, start) if c not in seen):
            seen.add(child)
            child = child.narrowed(plans, place)
            heapq.heappush(queue, ((-calls, -line), doubt + unlikely, next(order), child, stop))
    assert furthest is not None
    return Found(furthest, failures)


def _children(search: Search, failed: Attempt, start: Plans) -> Iterator[Plans]:
    """Yield the plans to try after a failed attempt, the likely ones first."""
    fitting = search.solver.all_plans(failed) if search.solver is not None else ()
    ones = _ones(failed.plans)
    for child in concat(batched(failed), aligned_ranks(failed), of_one_shape(failed), fitting, repairs(failed)):
        is_small = max(child.sizes(), default=0) <= MAX_SIZE and _ones(child) <= ones
        if is_small and not _is_emptied(child, start):
            yield child


@dataclass
class Solver:
    """Solve for sizes at the end of a run, a few times for each place and choice of ranks, and for the arguments of the
    constructor.
    """

    explore: Explore
    reconstruct: Reconstruct = lambda attempt: iter(())
    visits: Counter[object] = field(default_factory=Counter[object])

    def all_plans(self, attempt: Attempt) -> Iterator[Plans]:
        """Yield plans with fitting sizes, and then with other arguments for the constructor."""
        yield from self.plans(attempt)
        yield from self.reconstruct(attempt)

    def plans(self, attempt: Attempt) -> Iterator[Plans]:
        """Yield plans with fitting sizes, if the same run on symbols stops at the same place."""
        if not is_of_sizes(attempt) or (attempt.question is not None and wants_other_rank(attempt.question)):
            return
        ranks = tuple((path, len(plan.spec.sizes)) for path, plan in attempt.plans.tensors())
        place = place_of(attempt), attempt.run.calls, ranks
        self.visits[place] += 1
        if self.visits[place] > MAX_VISITS:
            return
        small = self.explore(attempt.plans, False)
        fitting = self._fitting(attempt, small, False)
        yield from fitting
        init = attempt.plans.init.items if attempt.plans.init is not None else ()
        is_open = any(guessed_number(plan) is not None for _, plan in init) and small.ends_like(attempt)
        if is_open and (not fitting or self.visits[place] > 2):
            fitting = self._fitting(attempt, self.explore(attempt.plans, True), True)
            yield from fitting
        if not fitting:  # other sizes will not help either
            self.visits[place] = MAX_VISITS

    def _fitting(self, attempt: Attempt, small: Exploration, whole: bool) -> list[Plans]:
        """Return plans with fitting sizes; with `whole`, or with other numbers for the constructor."""
        fitting = list(_fitting(attempt, attempt.plans, small))
        large = enlarged(attempt.plans)
        is_open = not fitting and any(condition.expression.free_symbols for condition in small.stopping())
        if large != attempt.plans and small.ends_like(attempt) and (is_open or has_vanishing_sizes(small)):
            fitting = list(_fitting(attempt, large, self.explore(large, whole))) or fitting
        return fitting


def _fitting(attempt: Attempt, plans: Plans, exploration: Exploration) -> Iterator[Plans]:
    """Yield plans with fitting sizes, from a run of `plans` on symbols, which may have other sizes."""
    run = exploration.attempt.run
    if exploration.ends_like(attempt):
        asked = of_operands(exploration, attempt.question) if attempt.question is not None else ()
        yield from (with_sizes(attempt.plans, exploration, sizes) for sizes in concat(asked, solved(exploration)))
    elif plans != attempt.plans and (run.error is None or run.calls > attempt.run.calls):
        yield plans


def _ones(plans: Plans) -> int:
    """Count the dimensions of size 1 in tensors whose sizes come from the numbers of an error.

    Code that only runs with a size of 1 is wrong for every other.
    """
    return sum(plan.spec.sizes.count(1) for _, plan in plans.tensors() if plan.detail == FROM_ERROR)


def _is_emptied(plans: Plans, start: Plans) -> bool:
    """Return True if a number with a default in the code became 0: an empty model needs no repair."""
    numbers = {name: plan for name, plan in start.items if isinstance(plan, ValuePlan) and plan.source == "default"}
    emptied = (name for name, plan in plans.items if isinstance(plan, ValuePlan) and plan.shown == "0")
    return any(numbers[name].shown.strip("0").isdigit() for name in emptied if name in numbers)


def reached(attempt: Attempt) -> tuple[int, int, int]:
    """Return how far an attempt came: torch calls, the line in the target's file, and the kind of its end.

    An attempt that ended at a tensor's value has fitting sizes (2); one that ended only because of gradients is last
    (0).
    """
    error = attempt.run.error
    chain = attempt.sources.traceback_chain(error.__traceback__ if error else None)
    lines = [span.line for span in chain if span.file == attempt.sources.file]
    ended = 0 if attempt.is_of_gradients else 2 if is_data_dependent(attempt) else 1
    return attempt.run.calls, lines[-1] if lines else 0, ended


_Entry: TypeAlias = "tuple[tuple[int, int], int, int, Plans, object]"


def _next(queue: list[_Entry], stagnation: int) -> _Entry:
    """Pop a child of the furthest run; every few attempts without progress, the least unlikely entry of all."""
    if stagnation == 0 or stagnation % DETOUR:
        return heapq.heappop(queue)
    entry = min(queue, key=lambda entry: entry[1:3])
    queue.remove(entry)
    heapq.heapify(queue)
    return entry


def _of_other_rank(search: Search, best: Attempt, is_better: Callable[[Attempt], bool]) -> Attempt | None:
    """Return an attempt with other ranks than `best` or the first one that runs and is better, or None."""
    combined = () if search.extent.open is not None else _rank_combinations(search.start)
    for plans in search.unseen(concat(combined, _other_ranks(best.plans, search.extent.open))):
        attempt = _first_that_runs(search, plans, REPAIRS_PER_RANK).best
        if attempt.run.error is None and is_better(attempt):
            return attempt
    return None


def _of_other_values(search: Search, best: Attempt) -> Attempt:
    """Return an attempt with another value for a guessed number or flag, if a tensor loses all elements.

    With the returned plans no tensor does, if there are such plans.
    """
    for plans in search.unseen(other_values(best) if best.run.error is None and best.run.emptied else ()):
        attempt = _first_that_runs(search, plans, REPAIRS_PER_RANK).best
        if attempt.run.error is None and not attempt.run.emptied:
            return attempt
    return best


def _of_other_ranks(search: Search, result: Found) -> Found:
    """Try other ranks after a search: they may run, or come further."""
    single = ((plans, REPAIRS_PER_RANK) for plans in _other_ranks(result.best.plans))
    combined = ((plans, REPAIRS_PER_COMBINATION) for plans in _rank_combinations(search.start))
    for plans, attempts in concat(single, combined):
        if search.budget.is_spent:
            return result
        if plans in search.seen:
            continue
        search.seen.add(plans)
        other = _first_that_runs(search, plans, attempts)
        if other.best.run.error is None:
            return other
        result.of_other_ranks += other.failures
        if reached(other.best) > reached(result.best):
            result.best = other.best
    result.exhausted = True
    return result


def _rank_combinations(start: Plans) -> Iterator[Plans]:
    """Yield the first plans with other ranks of several tensors at once, the fewest changes first."""
    ranks = {path: len(p.spec.sizes) for path, p in start.tensors() if p.is_guess and not p.rank_known}
    paths = list(ranks)[:MAX_COMBINED]
    changes = sorted(product((0, -1, 1, -2, 2), repeat=len(paths)), key=lambda change: sum(map(abs, change)))
    for change in islice(changes, 1, MAX_COMBINATIONS):
        plans = start
        for path, by in zip(paths, change, strict=True):
            plans = with_rank(plans, path, max(ranks[path] + by, 1)) if by else plans
        yield plans


def _guessed(plans: Plans, parameters: frozenset[str] | None) -> Iterator[tuple[str, TensorPlan]]:
    """Yield the guessed tensors of plans, or those of some parameters, with their paths."""
    for path, plan in plans.tensors():
        if plan.is_guess and (parameters is None or path.partition("[")[0] in parameters):
            yield path, plan


def _other_ranks(plans: Plans, parameters: frozenset[str] | None = None) -> Iterator[Plans]:
    """Yield the plans with another rank for all tensors of equal rank, which may belong together, then for one; with
    `parameters`, only for one of those.
    """
    guessed = list(_guessed(plans, parameters))
    ranks = Counter(len(plan.spec.sizes) for _, plan in guessed if parameters is None)
    for rank in (rank for rank, tensors in ranks.items() if tensors > 1):
        for other in (r for r in (rank - 1, rank + 1, rank + 2) if r > 1):
            together = plans
            for path, plan in plans.tensors():
                if plan.is_guess and len(plan.spec.sizes) == rank:
                    together = with_rank(together, path, other)
            yield together
    for path, plan in guessed:
        rank = len(plan.spec.sizes)
        most = 5 if plan.spec.dtype.startswith(("f", "bf", "c")) else 3  # of indices, labels and masks
        for other in sorted(set(range(1, most + 1)) - {rank}, key=lambda other: (abs(other - rank), -other)):
            if abs(other - rank) < 3:
                yield with_rank(plans, path, other)


HARD = frozenset({"data-dependent", "effect", "unsupported", "exit", "memory", "import", "nothing"})
"""Kinds of failures that other inputs do not repair."""


def search_failure(task: Task, result: Found, bad: Severity, inputs: tuple[InputSpec, ...]) -> Failure:
    """Return the failure of a search: the error of the attempt that came furthest."""
    run: Run = result.best.run
    assert run.error is not None
    error = needed(run.made_up) if is_of_made_up(run, task.sources) else run.error
    failure = showing_inputs(failure_of(error, task.sources, run.failed, task.lines, bad), inputs)
    if bad != "information" or failure.kind in HARD:
        return failure
    return dataclasses.replace(failure, kind="inputs")
