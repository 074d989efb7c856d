"""Decide whether a search ended because of the code itself, for any arguments."""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from types import FrameType, ModuleType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from fx_lsp.model import InputSpec
from fx_lsp.syntax import FUNCTIONS
from fx_lsp.tracer.compat import FakeTensor, sympy
from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.failures.frames import expression_at, expressions_raising, tracebacks, value_in
from fx_lsp.tracer.inputs.guessed_variables import GuessedVariables
from fx_lsp.tracer.inputs.plan.plans import (
    OF_FILE,
    Plan,
    Plans,
    SequencePlan,
    TensorPlan,
    ValuePlan,
    input_specs,
)
from fx_lsp.tracer.inputs.plan.signatures import bound, signature_of
from fx_lsp.tracer.inputs.solve.attempt import (
    Attempt,
    involved,
    is_data_dependent,
    is_of_sizes,
    missing_name,
    place_of,
)
from fx_lsp.tracer.inputs.solve.conditions import code_of, statements_raising
from fx_lsp.tracer.inputs.solve.operands import ASKS_ONE_ELEMENT, of_other_sizes, tensors_of
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, guessed_number
from fx_lsp.tracer.inputs.solve.solver import is_one, is_readable, solutions, tied, with_sizes
from fx_lsp.tracer.program.absences import AbsentError

MAX_GOALS = 3
"""The most of the last conditions that must have no solution, and the most other plans that must be rejected."""
MIN_RANKS = 4
"""The number of choices of ranks with which an expression has to fail, if the intended one is unknown."""
_OWN_FAULTS = (RuntimeError, TypeError, AttributeError, ValueError, IndexError, NameError, AssertionError)
"""The errors that wrong code raises; an entry missing in a dictionary may come from elsewhere."""
_SUFFIX = re.compile(r"\w\.[A-Za-z]\w{1,9}$")
"""The suffix of file names."""
_DIFFERENTIATING = frozenset({torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward})
MAX_PLACES = 8
"""The most expressions that are checked for mistakes."""


def _with_any_dtypes(plans: Plans) -> Iterator[Plans]:
    """Yield the plans with other dtypes for each guessed tensor, and for all at once."""
    guessed = [path for path, plan in plans.tensors() if plan.is_guess]
    for paths in (*((path,) for path in guessed), tuple(guessed)):
        for dtype in ("f32", "i64", "b8"):

            def change(path: str, plan: TensorPlan, paths: Sequence[str] = paths, dtype: str = dtype) -> TensorPlan:
                return replace(plan, spec=replace(plan.spec, dtype=dtype), grad=False) if path in paths else plan

            yield plans.map_tensors(change)


@dataclass(frozen=True)
class DeadEnd:
    """Hold a search without a result: its attempts in order, and functions to make others.

    It is `exhausted` if no other ranks of inputs are left to try.
    """

    attempts: Sequence[Attempt]
    exhausted: bool
    evaluate: Callable[[Plans], Attempt]
    explore: Callable[[Plans], Exploration]


def at_fault(end: DeadEnd) -> Attempt | None:
    """Return the attempt that shows the mistake, if a search failed for no reason among the guesses; else None.

    Later inputs of a search are chosen to avoid a mistake. So the first attempt that ended at an expression counts, if
    none passed it.
    """
    firsts: dict[object, Attempt] = {}
    for attempt in end.attempts:
        firsts.setdefault(attempt.stop, attempt)
    unpassed = (attempt for attempt in firsts.values() if not any(_came_past(attempt, other) for other in end.attempts))
    return next((attempt for attempt in islice(unpassed, MAX_PLACES) if _is_own_fault(attempt, end)), None)


def _came_past(attempt: Attempt, other: Attempt) -> bool:
    """Return True if another attempt passed the expression at which one ended: it ended in an outer expression, or only
    because it needs a value, or came further, and the lines ran and none of them was running at the end.
    """
    chain, others = attempt.chain, other.chain
    if chain[:1] == others[:1] and is_data_dependent(other):
        return True
    parting = ((mine, its) for mine, its in zip(reversed(chain), reversed(others), strict=False) if mine != its)
    mine, its = next(parting, (None, None))
    if mine is not None and its is not None and its.contains(mine) and other.run.calls >= attempt.run.calls:
        return True  # in an earlier iteration of a loop it would not have come as far
    if other.run.calls <= attempt.run.calls:
        return False
    if chain == others:  # in a later iteration of a loop, if another error occurs there, or only sizes differ
        return attempt.stop != other.stop or _without_sizes(attempt.plans) == _without_sizes(other.plans)
    own = next((span for span in chain if span.file == attempt.sources.file), None)
    return own is not None and other.came_past(own)


def _without_sizes(plans: Plans) -> object:
    """Return the plans without the sizes of tensors."""
    ranks = [(path, len(plan.spec.sizes)) for path, plan in plans.tensors()]
    return ranks, plans.init, [item for item in plans.items if isinstance(item[1], ValuePlan)]


def _may_be_judged(attempt: Attempt, end: DeadEnd) -> bool:
    """Return True if an attempt ended as wrong code may, and all guesses have alternatives."""
    error, failed = attempt.run.error, attempt.run.failed
    if not isinstance(error, _OWN_FAULTS) or attempt.run.calls < 0 or is_of_environment(attempt):
        return False
    if failed is not None and failed.func in _DIFFERENTIATING and not _loses_gradients(attempt):
        return False  # that one tensor was computed from another cannot be guessed
    if failed is not None and failed.func in ASKS_ONE_ELEMENT and not has_known_ranks(attempt):
        return False  # another kind may be intended
    if not all(isinstance(plan, TensorPlan) for plan in _alternatives_of(getattr(error, "obj", None), attempt)):
        return False
    if _is_made_elsewhere(attempt) or _is_raised_by_user(attempt) or _reads_state(attempt):
        return False
    is_open = _is_of_open_length(attempt) or _follows_from_open(attempt, end.attempts)
    return kind_of(error, failed) in ("shape", "dtype", "error") and not is_open


def _follows_from_open(attempt: Attempt, attempts: Sequence[Attempt]) -> bool:
    """Return True if the failing statement may follow from a guess that is neither a tensor nor a number.

    What an operation of PyTorch returns is of one kind whatever its operands are; a tensor may also be the result of
    an argument that was called. A module of the file is not open if the statement fails with another one alike.
    """
    settled = _without_effect([other.plans for other in attempts if other.stop == attempt.stop])
    plans = {n: plan for n, plan in attempt.plans.items if n not in settled and not _is_tensor_or_number(plan)}
    if not plans:
        return False
    frame, statement = next(statements_raising(attempt), (None, None))
    function = code_of(frame) if frame is not None else None
    if frame is None or statement is None or not isinstance(function, FUNCTIONS) or _is_called_inside(attempt):
        return True
    open_names = GuessedVariables.among(function, plans).names
    is_called = any(isinstance(plan, ValuePlan) and callable(plan.make()) for plan in plans.values())
    read = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)} & open_names
    kinds = [attempt.run.dependence.kind_of(frame.f_locals.get(name)) for name in read]
    return "input" in kinds or (is_called and "tensor" in kinds)


def _without_effect(several: Sequence[Plans]) -> set[str]:
    """Return the parameters for which plans have several objects, and one of them is a module of the file."""
    objects: dict[str, dict[str, str]] = {}
    for name, plan in (item for plans in several for item in plans.items):
        if isinstance(plan, ValuePlan):
            objects.setdefault(name, {})[plan.shown] = plan.detail
    return {name for name, details in objects.items() if len(details) > 1 and OF_FILE in details.values()}


def _is_called_inside(attempt: Attempt) -> bool:
    """Return True if an attempt ended in a function that the target calls."""
    frames = tracebacks(attempt.run.error, attempt.sources)
    return sum(attempt.sources.rank(frame.tb_frame.f_code.co_filename) == 0 for frame in frames) > 1


def _loses_gradients(attempt: Attempt) -> bool:
    """Return True if the code differentiates what it has computed without gradients, of inputs that all require one."""
    failed, dependence = attempt.run.failed, attempt.run.dependence
    leaves = tree_leaves(failed.args[:1]) if failed is not None else []
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    is_lost = bool(outputs) and not any(output.requires_grad or dependence.is_input(output) for output in outputs)
    plans = dict(attempt.plans.tensors())
    sources = [plans[path] for path in dependence.of(*outputs) if path in plans]
    return is_lost and all(plan.grad and plan.spec.dtype.startswith(("f", "bf", "c")) for plan in sources)


def _is_own_fault(attempt: Attempt, end: DeadEnd) -> bool:
    """Return True if an attempt failed for no reason among the guesses.

    Kinds and dtypes of values do not depend on ranks, and the constants that meet hardly do.
    """
    if attempt.run.error is None or not _may_be_judged(attempt, end):
        return False
    if not _has_guesses(attempt):
        return True
    kind = kind_of(attempt.run.error, attempt.run.failed)
    if _is_of_kinds(attempt, end):
        return True
    if kind == "dtype":
        return not _may_be_no_tensor(attempt) and _fits_no_dtypes(attempt, end.evaluate)
    exploration = end.explore(attempt.plans)
    is_known = has_known_ranks(attempt) or (end.exhausted and _is_refused(attempt))
    ranks = math.inf if is_known else choices_of_ranks(attempt, end.attempts)
    if is_of_sizes(attempt) and _is_of_constants(attempt, exploration, end):
        return True
    if ranks < MIN_RANKS or (attempt.question is not None and attempt.question.takes_together(_open_operands(attempt))):
        return False
    if _is_refused(attempt) and is_of_sizes(attempt) and _fits_no_sizes(attempt, exploration, end):
        return True
    return kind != "shape" and _is_of_no_input(attempt, exploration, end.evaluate)


def _alternatives_of(value: Any, attempt: Attempt) -> Sequence[Plan]:
    """Return the plans for the input that a value is, or is a part of, such as an item of a loop."""
    path = attempt.run.dependence.input_of(value) or ""
    return attempt.alternatives.get(re.split(r"[\[.]", path)[0], [])


def _open_operands(best: Attempt) -> list[torch.Tensor]:
    """Return the operands of the failing call that are inputs of unknown rank themselves."""
    paths = {path for path, plan in best.plans.tensors() if plan.is_guess and not plan.rank_known}
    operands = best.question.operands if best.question is not None else []
    return [operand for operand in operands if best.run.dependence.input_of(operand) in paths]


def _is_of_no_input(best: Attempt, exploration: Exploration, evaluate: Callable[[Plans], Attempt]) -> bool:
    """Return True if the failing expression reads no guessed input, or has no condition on its sizes and fits
    no dtype.
    """
    guessed = [name for name, plan in best.plans.items if plan.is_guess]
    depends = is_of_sizes(best) and _has_guessed_sizes(best, exploration)
    if not depends and not _mentions(best, guessed):
        return True
    if depends and not exploration.ends_like(best):
        return False  # its conditions on sizes are unknown
    if isinstance(best.run.error, TypeError) and (_hands_a_guess(best) or _fits_another_kind(best, evaluate)):
        return False  # a tensor may be intended, or a number
    return _is_refused(best) and next(exploration.stopping(), None) is None and _fits_no_dtypes(best, evaluate)


def _hands_a_guess(attempt: Attempt) -> bool:
    """Return True if the failing call received a guessed number, or another guess that is not a tensor."""
    _, node = _users_innermost(attempt)
    guessed = {n for n, plan in attempt.plans.items if isinstance(plan, ValuePlan) and plan.is_guess}
    arguments = (*node.args, *(k.value for k in node.keywords)) if isinstance(node, ast.Call) else ()
    return any(isinstance(argument, ast.Name) and argument.id in guessed for argument in arguments)


def _has_guessed_sizes(best: Attempt, exploration: Exploration) -> bool:
    """Return True if sizes in the failing call depend on guesses, as far as visible."""
    if best.run.failed is None or not tensors_of(best.run.failed):
        return False
    failed = exploration.attempt.run.failed
    if failed is None or not exploration.ends_like(best):
        return True
    return any(isinstance(size, torch.SymInt) for tensor in tensors_of(failed) for size in tensor.shape)


def _may_be_no_tensor(best: Attempt) -> bool:
    """Return True if a call rejected the kind of an input: another kind may be intended."""
    has_several = any(isinstance(plan, SequencePlan) for _, plan in best.plans.items)
    return isinstance(best.run.error, TypeError) and (has_several or bool(involved(best)))


def _fits_no_dtypes(best: Attempt, evaluate: Callable[[Plans], Attempt]) -> bool:
    """Return True if an attempt also fails with other dtypes of its tensors, and neither because it needs their values
    nor later or for another reason.
    """
    attempts = (evaluate(plans) for plans in _with_any_dtypes(best.plans))
    return all(attempt.run.error is not None and not _fits_here(attempt, best) for attempt in attempts)


def _fits_here(attempt: Attempt, best: Attempt) -> bool:
    """Return True if another failed attempt, which came as far, was not stopped by the cause of the best one."""
    if is_data_dependent(attempt):
        return True
    stops = [(place_of(a), kind_of(a.run.error, a.run.failed)) for a in (attempt, best) if a.run.error is not None]
    return attempt.run.calls >= best.run.calls and len({*stops}) > 1


def _fits_another_kind(best: Attempt, evaluate: Callable[[Plans], Attempt]) -> bool:
    """Return True if an attempt passes with other values than tensors in place of one or two guesses."""
    others = {
        name: next((other for other in best.alternatives.get(name, ()) if isinstance(other, ValuePlan)), None)
        for name, plan in best.plans.items
        if isinstance(plan, TensorPlan)
    }
    numbers = [(name, other) for name, other in others.items() if other is not None]
    for changed in (*combinations(numbers, 1), *combinations(numbers, 2)):
        plans = best.plans
        for name, other in changed:
            plans = plans.with_plan(name, other)
        attempt = evaluate(plans)
        if attempt.run.error is None or _fits_here(attempt, best):
            return True
    return False


def _is_made_elsewhere(best: Attempt) -> bool:
    """Return True if the missing attribute is set somewhere in the file, perhaps under a condition."""
    missing = missing_name(best.run.error)
    if missing is None or not missing.kind:
        return False
    for node in ast.walk(ast.parse("\n".join(best.lines))):
        stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == missing.name
        named = isinstance(node, ast.Constant) and node.value == missing.name
        if stored or named:
            return True
    return False


def _is_of_kinds(best: Attempt, end: DeadEnd) -> bool:
    """Return True if a value is of the wrong kind, for any ranks, sizes and dtypes of inputs.

    That is an operand of an operation that runs with no other kind of a guess, an argument without a parameter in the
    called function, a list of layers that is called like a layer, or a tensor that lacks an attribute.
    """
    error, call = best.run.error, best.run.failed
    if not isinstance(error, (TypeError, NotImplementedError)):
        return isinstance(getattr(error, "obj", None), torch.Tensor)
    if call is None:
        return _fits_no_parameters(best) or _is_layer_without_forward(best)
    tuples = (value for value in _operands(best) if isinstance(value, tuple))
    several = any(best.run.dependence.kind_of(part) == "tensor" for value in tuples for part in value)
    if not isinstance(error, TypeError) or several:
        return several
    guesses = [("", value) for value in _guessed_operands(best, end)]
    return not guesses or (best.question is not None and not best.question.fitting_values(guesses))


def _guessed_operands(best: Attempt, end: DeadEnd) -> list[Any]:
    """Return the operands of the failing call that are inputs or guessed values themselves, not computed from one."""
    values = _operands(best)
    plans = (*best.plans.items, *(best.plans.init.items if best.plans.init is not None else ()))
    shown = {plan.shown for _, plan in plans if isinstance(plan, ValuePlan) and (plan.is_guess or plan.shown == "None")}
    plain = [place for place, value in enumerate(values) if isinstance(value, int | None) and str(value) in shown]
    computed = _computed_sizes(best, end) if plain else set[int]()
    guesses = [value for value in values if best.run.dependence.is_input(value)]
    return [*guesses, *(values[place] for place in plain if place not in computed)]


def _computed_sizes(best: Attempt, end: DeadEnd) -> set[int]:
    """Return the places of operands of the failing call that are sizes, or computed from sizes and numbers."""
    exploration = end.explore(best.plans)
    numbers = {symbol for symbol, dimension in exploration.dimensions.items() if not dimension.rank}
    symbolic = enumerate(_operands(exploration.attempt) if exploration.ends_like(best) else ())
    return {place for place, size in symbolic if isinstance(size, torch.SymInt) and size.node.expr not in numbers}


def _operands(attempt: Attempt) -> list[Any]:
    """Return the arguments of the failing torch call."""
    failed = attempt.run.failed
    return [*failed.args, *failed.kwargs.values()] if failed is not None else []


def _innermost(attempt: Attempt) -> TracebackType | None:
    """Return the innermost frame of an error's traceback."""
    traceback = attempt.run.error.__traceback__ if attempt.run.error is not None else None
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback


def _fits_no_parameters(best: Attempt) -> bool:
    """Return True if the failing call has arguments without parameters in the called function.

    PyTorch's C++ functions only reject operands, and inputs may be of another kind.
    """
    innermost = _innermost(best)
    if innermost is None or not isinstance(best.run.error, TypeError):
        return False
    held, node = innermost.tb_frame.f_locals, expression_at(innermost, best.sources)
    spreads = any(_spreads_guess(node, best) for _, node in expressions_raising(best.run.error, best.sources))
    if spreads:
        return False
    if {"forward_call", "args", "kwargs"} <= held.keys():  # in the call by which a module runs its own `forward`
        function, args, kwargs = held["forward_call"], held["args"], held["kwargs"]
    elif isinstance(node, ast.Call) and not any(isinstance(argument, ast.Starred) for argument in node.args):
        if isinstance(node.func, ast.Attribute) and _is_input(node.func.value, innermost.tb_frame, best):
            return False
        function, args = value_in(node.func, innermost.tb_frame), node.args
        kwargs = {keyword.arg or "": keyword.value for keyword in node.keywords}
    else:
        return False
    if "" in kwargs:
        return False
    signature = signature_of(function) if callable(function) else None
    if signature is None:
        of_tensor = isinstance(getattr(function, "__self__", None), torch.Tensor)
        of_torch = of_tensor or (getattr(function, "__module__", None) or "").startswith("torch")
        return of_torch and not any(_is_input(value, innermost.tb_frame, best) for value in (*args, *kwargs.values()))
    return bound(signature, args, kwargs) is None


def _spreads_guess(node: ast.expr, attempt: Attempt) -> bool:
    """Return True for a call with an input spread over its arguments."""
    names = {name for name, _ in attempt.plans.items}
    spread = (a.value for a in (node.args if isinstance(node, ast.Call) else ()) if isinstance(a, ast.Starred))
    return any(isinstance(part, ast.Name) and part.id in names for part in spread)


def _is_input(node: ast.expr, frame: FrameType, attempt: Attempt) -> bool:
    """Return True if an expression is an unchanged input, or part of one."""
    value = value_in(node, frame)
    if isinstance(value, torch.Tensor):
        return attempt.run.dependence.is_input(value)
    names = {name for name, _ in attempt.plans.items}
    return any(isinstance(inside, ast.Name) and inside.id in names for inside in ast.walk(node)) and value is not None


def _is_layer_without_forward(best: Attempt) -> bool:
    """Return True if a PyTorch module was called that only contains others, such as a list or dictionary of modules."""
    innermost = _innermost(best)
    module = innermost.tb_frame.f_locals.get("self") if innermost is not None else None
    is_missing = isinstance(best.run.error, NotImplementedError) and isinstance(module, nn.Module)
    return is_missing and type(module).__module__.startswith("torch.nn.")


def _is_of_constants(best: Attempt, exploration: Exploration, end: DeadEnd) -> bool:
    """Return True if the run ended at a condition on numbers that do not depend on guesses."""
    if not exploration.ends_like(best) or not _shows_all(best, exploration, end):
        return False
    last = next(exploration.stopping(), None)
    return (last is not None and last.expression == sympy.false) or _fits_other_constants(best, exploration)


def _fits_other_constants(best: Attempt, exploration: Exploration) -> bool:
    """Return True if the failing call only runs with a change of a size that does not depend on guesses."""
    failed, question = exploration.attempt.run.failed, best.question
    if failed is None or question is None:
        return False
    symbolic = dict(zip(map(id, tensors_of(question.call)), tensors_of(failed), strict=False))
    changes = [
        [
            isinstance(size, torch.SymInt)
            for have, need, size in zip(operand.shape, shape, symbolic[id(operand)].shape, strict=True)
            if have != need
        ]
        for operand, shape in ((change.operand, change.shape) for change in of_other_sizes(question))
    ]
    return bool(changes) and not any(map(all, changes))


def _shows_all(best: Attempt, exploration: Exploration, end: DeadEnd) -> bool:
    """Return True if an attempt also ends there with other numbers in place of symbols that the code converted."""
    groups = tied(exploration)
    doubled = {other: 2 * exploration.hints[other] for symbol in exploration.taken for other in groups[symbol]}
    return not doubled or place_of(end.evaluate(with_sizes(best.plans, exploration, doubled))) == place_of(best)


def choices_of_ranks(best: Attempt, attempts: Iterable[Attempt]) -> int:
    """Return the number of choices of ranks with which attempts ended at the same place as the best."""
    place = place_of(best)
    return len({tuple(len(p.spec.sizes) for _, p in a.plans.tensors()) for a in attempts if place_of(a) == place})


def has_known_ranks(attempt: Attempt) -> bool:
    """Return True if the code fixes the rank of each guessed tensor; for a single one, all can be tried."""
    guessed = [path for path, plan in attempt.plans.tensors() if plan.is_guess]
    several = [[p for p in attempt.alternatives.get(path, ()) if isinstance(p, TensorPlan)] for path in guessed]
    return len(guessed) < 2 or all(len({len(plan.spec.sizes) for plan in plans}) == 1 for plans in several)


def is_of_environment(attempt: Attempt) -> bool:
    """Return True if a missing resource stopped it: an absent value before a step, a list or a tensor that other parts
    of the program fill, a file, values of fake tensors, a module without a file or importing itself, or a library
    that PyTorch needs for something other than an operation or a layer.
    """
    error, call = attempt.run.error, attempt.run.failed
    values = list(call.args) if call is not None else [value for _, value in _parts_read(attempt)]
    is_empty = any(map(_is_empty, values))
    is_of_fakes = isinstance(error, RuntimeError) and FakeTensor.__name__ in str(error)
    if isinstance(error, AbsentError) or is_empty or is_of_fakes or any(map(_names_missing_file, tree_leaves(values))):
        return True
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        file = getattr(error.obj, "__file__", None)
        # a program started elsewhere imports another file
        return file is None or file in (span.file for span in attempt.chain)
    if isinstance(error, AttributeError) and error.obj is None and _reads_placeholder(attempt):
        return True
    traceback = _innermost(attempt)
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return attempt.run.failed is None and module.startswith("torch.") and not module.startswith(_AS_USERS_WRITE)


def _is_empty(value: Any) -> bool:
    """Return True for an empty collection or tensor: an option that is 0 creates such layers."""
    if isinstance(value, torch.Tensor):
        return any(type(size) is int and size == 0 for size in value.shape)
    return isinstance(value, (list, tuple, dict, set)) and not value


def _names_missing_file(value: Any) -> bool:
    """Return True for a text with the suffix of a file name, if the file does not exist."""
    return isinstance(value, str) and _SUFFIX.search(value) is not None and not os.path.exists(value)


def _reads_placeholder(attempt: Attempt) -> bool:
    """Return True if the user's innermost expression reads a name of its module that is None, as if set elsewhere."""
    frame = _users_innermost(attempt)[0]
    names = [part.id for part, value in _parts_read(attempt) if isinstance(part, ast.Name) and value is None]
    return frame is not None and any(name in frame.f_globals for name in names if name not in frame.f_locals)


def _users_innermost(attempt: Attempt) -> tuple[FrameType | None, ast.expr | None]:
    """Return the innermost frame of the user's own code at the end, and its expression; None if a statement that is not
    an expression raised.
    """
    running = tracebacks(attempt.run.error, attempt.sources)
    own = (t for t in running if attempt.sources.rank(t.tb_frame.f_code.co_filename) == 0)
    innermost = next(own, None)
    return (None, None) if innermost is None else (innermost.tb_frame, expression_at(innermost, attempt.sources))


def _parts_read(attempt: Attempt) -> list[tuple[ast.Name | ast.Attribute, Any]]:
    """Return the variables and attributes in the user's innermost running expression, each with its value."""
    frame, node = _users_innermost(attempt)
    parts = (part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute))) if node is not None else ()
    return [(part, value_in(part, frame)) for part in parts] if frame is not None else []


def reads_none(attempt: Attempt) -> bool:
    """Return True if the user's innermost expression reads a variable or an attribute that is None."""
    nothing = (part for part, value in _parts_read(attempt) if value is None)
    return any(not any(isinstance(inner, ast.Call) for inner in ast.walk(part)) for part in nothing)


_AS_USERS_WRITE = ("torch.nn", "torch.functional", "torch.distributions", "torch.optim")


def are_numbers(plans: Iterable[Plan]) -> bool:
    """Return True if only numbers were guessed."""
    return all(_is_tensor_or_number(plan) and not isinstance(plan, TensorPlan) for plan in plans)


def _fits_no_sizes(best: Attempt, exploration: Exploration, end: DeadEnd) -> bool:
    """Return True if the sizes that do not fit are constants of the code, or only fit if one of them is 1.

    Operations test for 1 to broadcast; if that helps, an attempt passed.
    """
    if not exploration.ends_like(best) or not _shows_all(best, exploration, end):
        return False
    if next(exploration.stopping(), None) is None and not _fits_no_dtypes(best, end.evaluate):
        return False
    goals = [goal for goal in islice(exploration.stopping(), MAX_GOALS) if not is_one(goal, exploration)]
    if not all(is_readable(goal, exploration) for goal in goals):
        return False
    fitting = (solution for goal in goals for solution in solutions(exploration, goal))
    natural = (with_sizes(best.plans, exploration, s.sizes) for s in fitting if s.coherent and not s.degenerate)
    others = map(end.evaluate, islice(natural, MAX_GOALS))  # another error there: the changed sizes were right before
    return all(other.chain == best.chain and other.stop != best.stop for other in others)


def are_tensors_or_numbers(attempt: Attempt) -> bool:
    """Return True if only tensors and numbers were guessed, and not the number of `*args`."""
    return not _is_of_open_length(attempt) and all(_is_tensor_or_number(plan) for _, plan in attempt.plans.items)


def _is_of_open_length(attempt: Attempt) -> bool:
    """Return True if the number of `*args` was guessed."""
    return attempt.plans.starred in attempt.alternatives


def _has_guesses(attempt: Attempt) -> bool:
    """Return True if an argument was guessed, of the call or of the constructor; None as a default is no value."""
    init = attempt.plans.init.items if attempt.plans.init is not None else ()
    specs = (spec for _, plan in (*attempt.plans.items, *init) for spec in _specs_of(plan))
    return any(spec.guessed or spec.spec == "None" for spec in specs)


def _specs_of(plan: Plan) -> tuple[InputSpec, ...]:
    return input_specs(Plans((("", plan),)))


def _is_tensor_or_number(plan: Plan) -> bool:
    """Return True if a plan is not a guess, or is a guessed tensor or number."""
    if isinstance(plan, TensorPlan):
        return True
    if isinstance(plan, SequencePlan):
        is_known = all(isinstance(item, TensorPlan) and item.rank_known for item in plan.items)
        return is_known or all(not spec.is_guess for spec in _specs_of(plan))
    if plan.source == "annotation":
        return plan.certain or plan.kind in _PLAIN_KINDS
    return not plan.is_guess or guessed_number(plan) is not None


_PLAIN_KINDS = frozenset({"bool", "str", "NoneType", "dtype"})


def _is_refused(attempt: Attempt) -> bool:
    """Return True if PyTorch ended an attempt, in an operation or in one of its own checks."""
    innermost = _innermost(attempt)
    of_torch = innermost is not None and innermost.tb_frame.f_globals.get("__name__", "").startswith("torch.")
    return attempt.run.failed is not None or of_torch


def _is_raised_by_user(attempt: Attempt) -> bool:
    """Return True if a `raise` or an `assert` outside of PyTorch ended an attempt, or if the standard library did,
    which reads the environment of a program.
    """
    traceback = _innermost(attempt)
    if traceback is None or is_raised_by_python(attempt):
        return traceback is not None
    if attempt.sources.rank(traceback.tb_frame.f_code.co_filename) == 2:
        return False
    return isinstance(attempt.run.error, AssertionError) or expression_at(traceback, attempt.sources) is None


def is_raised_by_python(attempt: Attempt) -> bool:
    """Return True if Python's own code ended an attempt, as `random.sample` of what a loop that was left would fill."""
    traceback = _innermost(attempt)
    if traceback is None or attempt.sources.rank(traceback.tb_frame.f_code.co_filename) != 2:
        return False
    return traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in ("torch", "fx_lsp")


def _reads_state(attempt: Attempt) -> bool:
    """Return True if the failing expression reads an attribute of the instance that is None, perhaps by default, or
    that another method sets: a caller of the method may check or set it before.
    """
    frame, node = _users_innermost(attempt)
    instance = frame.f_locals.get("self") if frame is not None else None
    if node is None or frame is None or instance is None:
        return False
    others = (
        function
        for function in ast.walk(ast.parse("\n".join(attempt.lines)))
        if isinstance(function, ast.FunctionDef) and function.name not in ("__init__", frame.f_code.co_name)
    )
    stored = {
        part.attr
        for function in others
        for part in ast.walk(function)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
    }
    read = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)} & vars(instance).keys()
    return any(name in stored or vars(instance)[name] is None for name in read)


def _mentions(attempt: Attempt, names: Collection[str]) -> bool:
    """Return True if the failing expression reads one of `names`, or a variable with its value, unchanged."""
    frame, node = _users_innermost(attempt)
    read: dict[str, Any] = {}
    if frame is not None:
        inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if node is not None else set(names)
        read = {name: frame.f_locals[name] for name in inside if name in frame.f_locals}
        held = (n for n in ast.walk(node) if isinstance(n, ast.Attribute)) if node is not None else ()
        read |= {ast.unparse(n): value_in(n, frame) for n in held}
    inputs = (value for value in read.values() if isinstance(value, torch.Tensor))
    others = (name for name, value in read.items() if not isinstance(value, (torch.Tensor, tuple)) and name in names)
    return any(map(attempt.run.dependence.is_input, inputs)) or any(others)
