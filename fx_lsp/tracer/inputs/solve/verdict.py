"""Whether what ended a search is the code's own fault, whatever it is called with."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from fx_lsp.tracer.absent import AbsentError
from fx_lsp.tracer.failures import kind_of
from fx_lsp.tracer.inputs.plan.plans import Plan, SequencePlan, TensorPlan
from fx_lsp.tracer.inputs.solve.attempt import Attempt, is_of_sizes, place_of
from fx_lsp.tracer.inputs.solve.conditions import expression_at
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, guessed_number
from fx_lsp.tracer.inputs.solve.sizes import plain_conflicts
from fx_lsp.tracer.inputs.solve.solver import is_one, is_readable, solutions

MAX_GOALS = 3
"""How many of the last conditions have to have no solution."""
_OWN_FAULTS = (RuntimeError, TypeError, AttributeError, ValueError, IndexError, NameError)


def is_own_fault(best: Attempt, rivals: Iterable[Attempt], exploration: Exploration) -> bool:
    """Whether the furthest attempt of a search failed for no reason that lies in what was guessed.

    Every rival, an attempt that came as far, has to fail at the same place. `exploration` is the attempt on symbols.
    """
    error = best.run.error
    if not isinstance(error, _OWN_FAULTS) or kind_of(error, best.run.failed) not in ("shape", "dtype", "error"):
        return False
    if _is_raised_by_user(best) or any(place_of(rival) != place_of(best) for rival in rivals):
        return False
    if not all(_is_tensor_or_number(plan) for _, plan in best.plans.items) or not has_known_ranks(best):
        return False
    if best.run.failed is not None and is_of_sizes(best) and kind_of(error, best.run.failed) == "shape":
        return _fits_no_sizes(best, exploration)
    guessed = [name for name, plan in best.plans.items if getattr(plan, "source", "search") == "search"]
    return kind_of(error, best.run.failed) == "error" and not _mentions(best, guessed)


def has_known_ranks(attempt: Attempt) -> bool:
    """Whether the code says the rank of every tensor that was guessed; of a single one, any rank may be tried."""
    guessed = [path for path, plan in attempt.plans.tensors() if plan.source == "search"]
    return len(guessed) < 2 or all(_has_known_rank(attempt.alternatives.get(path, [])) for path in guessed)


def _has_known_rank(alternatives: Sequence[Plan]) -> bool:
    ranks = {len(plan.spec.sizes) for plan in alternatives if isinstance(plan, TensorPlan)}
    return len(ranks) == 1


def is_of_environment(attempt: Attempt) -> bool:
    """Whether something that is not here stopped it: what could not be had before a step, or a library that PyTorch
    needs for what is neither an operation nor a layer."""
    if isinstance(attempt.run.error, AbsentError):
        return True
    traceback = attempt.run.error.__traceback__ if attempt.run.error is not None else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return attempt.run.failed is None and module.startswith("torch.") and not module.startswith(_AS_USERS_WRITE)


_AS_USERS_WRITE = ("torch.nn", "torch.functional", "torch.distributions", "torch.optim")


def are_numbers(plans: Iterable[Plan]) -> bool:
    """Whether nothing but numbers was guessed."""
    return all(_is_tensor_or_number(plan) and not isinstance(plan, TensorPlan) for plan in plans)


def _fits_no_sizes(best: Attempt, exploration: Exploration) -> bool:
    """Whether the sizes that do not fit are the code's own numbers, or fit only where one of them is 1."""
    if exploration.attempt.run.calls != best.run.calls or exploration.attempt.run.error is None:
        return False
    numbered = enumerate(islice(exploration.stopping(), MAX_GOALS))
    goals = [goal for number, goal in numbered if number == 0 or not is_one(goal)]
    if not goals:
        return bool(plain_conflicts(str(best.run.error)))
    if not all(is_readable(goal, exploration) for goal in goals):
        return False
    fitting = [solution for goal in goals for solution in solutions(exploration, goal)]
    return not any(solution.coherent and not solution.degenerate for solution in fitting)


def _is_tensor_or_number(plan: Plan) -> bool:
    """Whether a plan is no guess, or a guessed tensor or number."""
    if isinstance(plan, (TensorPlan, SequencePlan)):
        return isinstance(plan, TensorPlan)
    if plan.source == "annotation":
        return plan.kind in _PLAIN_KINDS  # an object of an annotated class is made of guesses
    return plan.source != "search" or guessed_number(plan) is not None


_PLAIN_KINDS = frozenset({"bool", "str", "NoneType", "dtype"})


def _is_raised_by_user(attempt: Attempt) -> bool:
    """Whether a `raise` or an `assert` ended an attempt, in code that is not PyTorch's."""
    traceback = attempt.run.error.__traceback__ if attempt.run.error is not None else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or attempt.sources.rank(traceback.tb_frame.f_code.co_filename) == 2:
        return False
    return expression_at(attempt, traceback) is None


def _mentions(attempt: Attempt, names: Collection[str]) -> bool:
    """Whether the expression that failed reads one of `names`."""
    traceback = attempt.run.error.__traceback__ if attempt.run.error is not None else None
    read: set[str] = set()
    while traceback is not None:
        if attempt.sources.rank(traceback.tb_frame.f_code.co_filename) == 0:
            node = expression_at(attempt, traceback)
            read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set(names)
        traceback = traceback.tb_next
    return not read.isdisjoint(names)
