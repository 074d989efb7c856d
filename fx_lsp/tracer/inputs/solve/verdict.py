"""Judge whether a search ended because of the code itself, by experiment: change each guess that the end follows from.

If no change of a guess moves the end, the code is wrong for any arguments. What nobody can list is not changed, so an
end that follows from it is open: files, state that other code sets, values, the code's own checks, foreign objects.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from itertools import chain as concat
from itertools import islice, takewhile
from types import FrameType, ModuleType
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from fx_lsp.model import Severity
from fx_lsp.syntax import FUNCTIONS
from fx_lsp.tracer.compat import FakeTensor, sympy
from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.failures.frames import expression_at, expressions_raising, tracebacks, value_in
from fx_lsp.tracer.inputs.guessed_variables import GuessedVariables
from fx_lsp.tracer.inputs.plan.plans import OF_FILE, Plan, Plans, SequencePlan, TensorPlan, ValuePlan, input_specs
from fx_lsp.tracer.inputs.solve.attempt import (
    Attempt,
    innermost,
    is_data_dependent,
    is_of_sizes,
    missing_name,
    place_of,
    unbound_call,
)
from fx_lsp.tracer.inputs.solve.conditions import code_of, statements_raising
from fx_lsp.tracer.inputs.solve.operands import ASKS_ONE_ELEMENT, of_other_dtypes
from fx_lsp.tracer.inputs.solve.path_conditions import Exploration, guessed_number
from fx_lsp.tracer.inputs.solve.sizes import with_rank
from fx_lsp.tracer.inputs.solve.solver import is_one, is_readable, solutions, tied, with_sizes
from fx_lsp.tracer.program.absences import AbsentError

MAX_GOALS = 3
"""The most of the last conditions that must have no solution, and the most of their solutions that are tried."""
MAX_PLACES = 8
"""The most expressions at which a search ended that are judged."""
RANKS, DTYPES = (1, 2, 3, 4), ("f32", "i64", "b8")
"""The ranks and dtypes that are tried for a guessed tensor."""


class Aspect(Enum):
    """Name what is unknown of a value; nobody can list what the last three may be.

    `VALUES` are those of tensors and of foreign objects, `STATE` is what other code of the project sets, `MACHINE` what
    a real run has and this one lacks.
    """

    RANK = auto()
    SIZE = auto()
    DTYPE = auto()
    KIND = auto()
    VALUES = auto()
    STATE = auto()
    MACHINE = auto()


OPEN = frozenset({Aspect.VALUES, Aspect.STATE, Aspect.MACHINE})


@dataclass(frozen=True)
class Unknown:
    """Name what is unknown: an aspect of the input or of the attribute at a path ("" for the whole program)."""

    path: str
    aspect: Aspect


@dataclass(frozen=True)
class DeadEnd:
    """Hold a search without a result: its attempts in order, and functions to make others."""

    attempts: Sequence[Attempt]
    evaluate: Callable[[Plans], Attempt]
    explore: Callable[[Plans], Exploration]


@dataclass(frozen=True)
class Verdict:
    """Hold the attempt that shows a mistake, and how certain it is."""

    attempt: Attempt
    severity: Severity


def verdict(end: DeadEnd) -> Verdict | None:
    """Return the mistake for which a search ended; None if it may have ended because of its guesses.

    Later inputs of a search are chosen to avoid a mistake. So the first attempt that ended at an expression counts, if
    none passed it; those in which layers took inputs for single examples are the last.
    """
    firsts: dict[object, Attempt] = {}
    for attempt in sorted(end.attempts, key=lambda attempt: len(attempt.run.unbatched)):
        firsts.setdefault(attempt.stop, attempt)
    unpassed = (attempt for attempt in firsts.values() if not any(_came_past(attempt, other) for other in end.attempts))
    for attempt in islice(unpassed, MAX_PLACES):
        severity = Stop(attempt, end).severity if attempt.run.error is not None else None
        if severity is not None:
            return Verdict(attempt, severity)
    return None


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


@dataclass(frozen=True)
class Stop:
    """Hold the end of an attempt, to find what it follows from and whether a change of that moves it."""

    attempt: Attempt
    end: DeadEnd

    @cached_property
    def follows(self) -> frozenset[Unknown]:
        """Return the unknowns that the end follows from; if there is an open one, the others may be missing."""
        attempt = self.attempt
        kinds = (of_machine(attempt), _of_values(attempt), _of_state(attempt), _of_objects(self))
        return next(filter(None, map(frozenset, kinds)), None) or frozenset(_of_inputs(self))

    @cached_property
    def operands(self) -> list[Any]:
        """Return the values that the failing expression computes with: the arguments of its call of PyTorch, or what it
        reads; nothing for a call with other arguments than its function has.
        """
        failed = self.attempt.run.failed
        if failed is not None:
            return [*failed.args, *failed.kwargs.values()]
        if unbound_call(self.attempt) is not None:
            return []
        lacking = getattr(self.attempt.run.error, "obj", None)
        return [lacking] if lacking is not None else [value for _, value in _parts_read(self.attempt)]

    @property
    def severity(self) -> Severity | None:
        """Return how certainly the code is wrong; None if the end is open, or if a change of an unknown moves it.

        Not all is tried of several ranks together, nor of the dtype of an input that the failing call accepts.
        """
        experiments = (_EXPERIMENTS[unknown.aspect](self, unknown.path) for unknown in self.follows)
        if any(unknown.aspect in OPEN for unknown in self.follows) or any(concat.from_iterable(experiments)):
            return None
        question, dependence = self.attempt.question, self.attempt.run.dependence
        accepted = of_other_dtypes(question) if question is not None else ()
        is_open = len(self.paths(Aspect.RANK)) > 1 or any(dependence.input_of(change.operand) for change in accepted)
        return "warning" if is_open else "error"

    def paths(self, aspect: Aspect) -> frozenset[str]:
        """Return the paths of the inputs of which an aspect is unknown."""
        return frozenset(unknown.path for unknown in self.follows if unknown.aspect is aspect)

    def moves(self, plans: Plans, or_reason: bool = False) -> bool:
        """Return True if plans run, or end later; `or_reason`: or there for another kind of reason."""
        other, attempt = self.end.evaluate(plans), self.attempt
        if other.run.error is None or is_data_dependent(other) or _came_past(attempt, other):
            return True
        is_here = or_reason and place_of(other) == place_of(attempt)
        return is_here and _kind_of_end(other) != _kind_of_end(attempt)

    @cached_property
    def exploration(self) -> Exploration:
        """Return the same run on symbols."""
        return self.end.explore(self.attempt.plans)


def _of_inputs(stop: Stop) -> Iterator[Unknown]:
    """Yield the unknown aspects of the inputs from which the operands of the end are computed."""
    attempt = stop.attempt
    plans, behind = dict(attempt.plans.tensors()), attempt.run.dependence.of(*stop.operands)
    for path in behind:
        if path in plans and plans[path].is_guess:
            if not plans[path].rank_known:
                yield Unknown(path, Aspect.RANK)
            if not plans[path].dtype_known:
                yield Unknown(path, Aspect.DTYPE)
    if is_of_sizes(attempt):
        if stop.exploration.ends_like(attempt):
            yield Unknown("", Aspect.SIZE)
        elif any(path in plans and plans[path].is_guess for path in behind):
            yield Unknown("", Aspect.VALUES)  # its conditions on sizes are unknown
    yield from _inputs_themselves(stop)


def _kind_of_end(attempt: Attempt) -> str:
    """Return the kind of failure of an attempt."""
    return "" if attempt.run.error is None else kind_of(attempt.run.error, attempt.run.failed)


def _inputs_themselves(stop: Stop) -> Iterator[Unknown]:
    """Yield the kinds of the inputs that are operands of the end themselves, or parts of them, if it rejected a kind:
    tensors that may be something else, and numbers and None as far as they may be one.

    No other kinds are known of an argument of the constructor, nor of what Python itself rejected: `h, c = state`.
    """
    attempt, names, error = stop.attempt, dict(stop.attempt.plans.items), stop.attempt.run.error
    traceback = innermost(attempt)
    is_inside = traceback is None or attempt.sources.rank(traceback.tb_frame.f_code.co_filename) == 2
    is_of_torch = is_inside or attempt.question is not None or isinstance(error, AttributeError)
    values = stop.operands if is_of_torch else [value for _, value in _parts_read(attempt, directly=True)]
    paths = {attempt.run.dependence.input_of(value) for value in tree_leaves(values)}
    tensors = {re.split(r"[\[.]", path)[0] for path in paths if path is not None} & names.keys()
    if not is_of_torch:
        yield from (Unknown(name, Aspect.VALUES) for name in tensors if names[name].is_guess)
    if not isinstance(error, TypeError | AttributeError):
        return
    for name in tensors:
        if not all(isinstance(plan, TensorPlan) for plan in attempt.alternatives.get(name, ())):
            yield Unknown(name, Aspect.KIND)
    yield from _plain_inputs(stop)


def _plain_inputs(stop: Stop) -> Iterator[Unknown]:
    """Yield the kinds of the guessed numbers, and of the arguments that are None, that may be operands of the end."""
    names, init, plain = dict(stop.attempt.plans.items), stop.attempt.plans.init, _plain_operands(stop)
    for name, plan in (*names.items(), *(init.items if init is not None else ())):
        if isinstance(plan, ValuePlan) and (plan.is_guess or plan.shown == "None") and plan.shown in plain:
            yield Unknown(name, Aspect.KIND if name in names else Aspect.VALUES)


def _plain_operands(stop: Stop) -> set[str]:
    """Return the numbers and None among the operands, as text, without those that are sizes or computed from sizes."""
    numbers = {symbol for symbol, dimension in stop.exploration.dimensions.items() if not dimension.rank}
    failed = stop.exploration.attempt.run.failed if stop.exploration.ends_like(stop.attempt) else None
    symbolic = [*failed.args, *failed.kwargs.values()] if failed is not None else stop.operands
    are_sizes = [isinstance(value, torch.SymInt) and value.node.expr not in numbers for value in symbolic]
    plain = (value for value, is_size in zip(stop.operands, are_sizes, strict=False) if not is_size)
    return {str(value) for value in plain if isinstance(value, int | float | None)}


def _ranks(stop: Stop, path: str) -> Iterator[bool]:
    """Yield whether another rank of an input moves the end, alone or with that of the others."""
    attempt, paths = stop.attempt, stop.paths(Aspect.RANK)
    plans, question = attempt.plans, attempt.question
    if question is not None:
        operands = [o for o in question.operands if attempt.run.dependence.input_of(o) in paths]
        yield question.takes_together(operands)
    ranks = {where: len(plan.spec.sizes) for where, plan in plans.tensors() if where in paths}
    for changed in dict.fromkeys((frozenset({path}), paths)):
        for difference in (rank - ranks[path] for rank in RANKS if rank != ranks[path]):
            other = plans
            for where in changed:
                other = with_rank(other, where, max(ranks[where] + difference, 1))
            yield stop.moves(other)


def _dtypes(stop: Stop, path: str) -> Iterator[bool]:
    """Yield whether another dtype of an input moves the end, alone or with that of the others."""
    for changed in dict.fromkeys((frozenset({path}), stop.paths(Aspect.DTYPE))):
        for dtype in DTYPES:

            def change(where: str, plan: TensorPlan, changed: frozenset[str] = changed, to: str = dtype) -> TensorPlan:
                return replace(plan, spec=replace(plan.spec, dtype=to), grad=False) if where in changed else plan

            yield stop.moves(stop.attempt.plans.map_tensors(change), or_reason=True)


def _kinds(stop: Stop, name: str) -> Iterator[bool]:
    """Yield whether an input of another kind moves the end: by the failing call itself, and by the other guesses."""
    attempt = stop.attempt
    if attempt.question is not None and isinstance(attempt.run.error, TypeError):
        values = [("", value) for value in attempt.question.operands if attempt.run.dependence.is_input(value)]
        yield bool(attempt.question.fitting_values(values)) if values else False
    now = attempt.plans[name]
    for other in attempt.alternatives.get(name, ()):
        if type(other) is not type(now) or not isinstance(other, TensorPlan):
            yield stop.moves(attempt.plans.with_plan(name, other), or_reason=True)


def _sizes(stop: Stop, _: str) -> Iterator[bool]:
    """Yield whether other sizes move the end. Operations test for 1 to broadcast; if that helps, an attempt passed."""
    attempt, exploration, evaluate = stop.attempt, stop.exploration, stop.end.evaluate
    groups = tied(exploration)
    doubled = {other: 2 * exploration.hints[other] for symbol in exploration.taken for other in groups[symbol]}
    if doubled:  # the code converted them to numbers, so that their conditions do not show
        yield place_of(evaluate(with_sizes(attempt.plans, exploration, doubled))) != place_of(attempt)
    asked = takewhile(lambda goal: goal.expression != sympy.false, exploration.stopping())
    goals = [goal for goal in islice(asked, MAX_GOALS) if not is_one(goal, exploration)]
    yield not all(is_readable(goal, exploration) for goal in goals)
    fitting = (solution for goal in goals for solution in solutions(exploration, goal))
    natural = (with_sizes(attempt.plans, exploration, s.sizes) for s in fitting if s.coherent and not s.degenerate)
    for other in map(evaluate, islice(natural, MAX_GOALS)):
        yield other.chain != attempt.chain or other.stop == attempt.stop  # else the changed sizes were right before


_Experiment: TypeAlias = Callable[[Stop, str], Iterator[bool]]
_EXPERIMENTS: dict[Aspect, _Experiment] = {
    Aspect.RANK: _ranks,
    Aspect.DTYPE: _dtypes,
    Aspect.KIND: _kinds,
    Aspect.SIZE: _sizes,
}


_OWN_FAULTS = (RuntimeError, TypeError, AttributeError, ValueError, IndexError, NameError, AssertionError)
"""The errors that wrong code raises; an entry missing in a dictionary may come from elsewhere."""
_SUFFIX = re.compile(r"\w\.[A-Za-z]\w{1,9}$")
"""The suffix of file names."""
_DIFFERENTIATING = frozenset({torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward})
_AS_USERS_WRITE = ("torch.nn", "torch.functional", "torch.distributions", "torch.optim")


def of_machine(attempt: Attempt) -> Iterator[Unknown]:
    """Yield the causes of an end that only a real run has: files, modules, values of tensors, collections that
    other parts of a program fill, and what Python's own functions refuse in a shortened program.
    """
    error, parts = attempt.run.error, _parts_read(attempt)
    values = list(attempt.run.failed.args) if attempt.run.failed is not None else [value for _, value in parts]
    is_of_fakes = isinstance(error, RuntimeError) and FakeTensor.__name__ in str(error)
    is_absent = isinstance(error, AbsentError) or is_of_fakes or any(map(_names_missing_file, tree_leaves(values)))
    if is_absent or any(map(_is_empty, values)) or _is_raised_elsewhere(attempt):
        yield Unknown("", Aspect.MACHINE)
    if isinstance(error, AttributeError):
        yield from _of_names(attempt, error, parts)


def _of_names(attempt: Attempt, error: AttributeError, parts: Sequence[tuple[ast.expr, Any]]) -> Iterator[Unknown]:
    """Yield the module or the variable of a module that lacks an attribute because a program sets it elsewhere."""
    if isinstance(error.obj, ModuleType):
        file = getattr(error.obj, "__file__", None)
        if file is None or file in (span.file for span in attempt.chain):  # a program imports another file elsewhere
            yield Unknown(error.obj.__name__, Aspect.MACHINE)
    if error.obj is None and (frame := _users_innermost(attempt)[0]) is not None:
        names = {part.id for part, value in parts if isinstance(part, ast.Name) and value is None}
        yield from (Unknown(name, Aspect.MACHINE) for name in names - frame.f_locals.keys() if name in frame.f_globals)


def _is_raised_elsewhere(attempt: Attempt) -> bool:
    """Return True if Python's own code ended an attempt, or a part of PyTorch that users do not call."""
    traceback = innermost(attempt)
    if traceback is None or attempt.sources.rank(traceback.tb_frame.f_code.co_filename) < 2:
        return False
    module = traceback.tb_frame.f_globals.get("__name__", "")
    is_inside = module.startswith("torch.") and not module.startswith(_AS_USERS_WRITE)
    return module.partition(".")[0] not in ("torch", "fx_lsp") or (attempt.run.failed is None and is_inside)


def _of_values(attempt: Attempt) -> Iterator[Unknown]:
    """Yield the values that an end follows from: of arguments that the code refuses itself, of tensors of which one has
    to be computed from another, or has to have one element.
    """
    error, failed, traceback = attempt.run.error, attempt.run.failed, innermost(attempt)
    is_own = isinstance(error, _OWN_FAULTS) and _kind_of_end(attempt) in ("shape", "dtype", "error")
    is_of_user = traceback is not None and attempt.sources.rank(traceback.tb_frame.f_code.co_filename) < 2
    is_raised = is_of_user and traceback is not None and expression_at(traceback, attempt.sources) is None
    if not is_own or attempt.run.calls < 0 or is_raised or (is_of_user and isinstance(error, AssertionError)):
        yield Unknown("", Aspect.VALUES)
    if failed is not None and failed.func in _DIFFERENTIATING and not _loses_gradients(attempt):
        yield Unknown("", Aspect.VALUES)
    if failed is not None and failed.func in ASKS_ONE_ELEMENT and not _has_known_ranks(attempt):
        yield Unknown("", Aspect.VALUES)


def _of_state(attempt: Attempt) -> Iterator[Unknown]:
    """Yield the attributes that an end follows from and that other methods set, or that are None, or missing there."""
    frame, node = _users_innermost(attempt)
    tree, missing = ast.parse("\n".join(attempt.lines)), missing_name(attempt.run.error)
    texts = (part.value for part in ast.walk(tree) if isinstance(part, ast.Constant) and isinstance(part.value, str))
    if missing is not None and missing.kind and missing.name in {*_stored(tree), *texts}:
        yield Unknown(missing.name, Aspect.STATE)
    instance = frame.f_locals.get("self") if frame is not None else None
    attributes: dict[str, Any] = getattr(instance, "__dict__", {})
    if frame is not None and node is not None and attributes:
        read = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)} & attributes.keys()
        stored = {*_stored(tree, besides=("__init__", frame.f_code.co_name))}
        yield from (
            Unknown(f"self.{name}", Aspect.STATE) for name in read if name in stored or attributes[name] is None
        )


def _stored(tree: ast.AST, besides: Collection[str] | None = None) -> Iterator[str]:
    """Yield the attributes that code sets; those that functions set, `besides` some, if these are passed."""
    functions = (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name not in (besides or ()))
    for part in (part for whole in ((tree,) if besides is None else functions) for part in ast.walk(whole)):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.attr


def _of_objects(stop: Stop) -> Iterator[Unknown]:
    """Yield the guesses that an end may follow from and that are neither tensors nor numbers, and the numbers of
    arguments of `*args` and of a call `f(*several)`.

    A module of the file is not open if the statement fails with another one alike.
    """
    attempt = stop.attempt
    if attempt.plans.starred in attempt.alternatives:
        yield Unknown(attempt.plans.starred or "", Aspect.VALUES)
    running = (
        node for _, node in expressions_raising(attempt.run.error, attempt.sources) if isinstance(node, ast.Call)
    )
    spread = [part for node in running for part in node.args if isinstance(part, ast.Starred)]
    if isinstance(attempt.run.error, TypeError) and spread:
        yield Unknown("", Aspect.VALUES)
    settled = _without_effect([other.plans for other in stop.end.attempts if other.stop == attempt.stop])
    plans = {n: plan for n, plan in attempt.plans.items if n not in settled and not _is_tensor_or_number(plan)}
    if plans and _reads_objects(attempt, plans):
        yield from (Unknown(name, Aspect.VALUES) for name in plans)


def _reads_objects(attempt: Attempt, plans: Mapping[str, Plan]) -> bool:
    """Return True if the failing statement may follow from one of some objects.

    What an operation of PyTorch returns is of one kind whatever its operands are; a tensor may also be the result of
    an argument that was called.
    """
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


def _has_known_ranks(attempt: Attempt) -> bool:
    """Return True if the code fixes the rank of each guessed tensor; for a single one, all can be tried."""
    guessed = [path for path, plan in attempt.plans.tensors() if plan.is_guess]
    several = [[p for p in attempt.alternatives.get(path, ()) if isinstance(p, TensorPlan)] for path in guessed]
    return len(guessed) < 2 or all(len({len(plan.spec.sizes) for plan in plans}) == 1 for plans in several)


def _is_empty(value: Any) -> bool:
    """Return True for an empty collection or tensor: an option that is 0 creates such layers."""
    if isinstance(value, torch.Tensor):
        return any(type(size) is int and size == 0 for size in value.shape)
    return isinstance(value, (list, tuple, dict, set)) and not value


def _names_missing_file(value: Any) -> bool:
    """Return True for a text with the suffix of a file name, if the file does not exist."""
    return isinstance(value, str) and _SUFFIX.search(value) is not None and not os.path.exists(value)


def _users_innermost(attempt: Attempt) -> tuple[FrameType | None, ast.expr | None]:
    """Return the innermost frame of the user's own code at the end, and its expression, of an unpacking the value; None
    if a statement that is not an expression raised.
    """
    running = tracebacks(attempt.run.error, attempt.sources)
    own = next((t for t in running if attempt.sources.rank(t.tb_frame.f_code.co_filename) == 0), None)
    if own is None:
        return None, None
    node = expression_at(own, attempt.sources)
    statement = next((s for frame, s in statements_raising(attempt) if frame is own.tb_frame), None)
    if isinstance(statement, ast.Assign | ast.For) and isinstance(node, ast.Tuple):
        is_loop = isinstance(statement, ast.For)
        targets, value = ([statement.target], statement.iter) if is_loop else (statement.targets, statement.value)
        node = value if ast.unparse(node) in map(ast.unparse, targets) else node
    return own.tb_frame, node


def _parts_read(attempt: Attempt, directly: bool = False) -> list[tuple[ast.Name | ast.Attribute, Any]]:
    """Return the variables and attributes in the user's innermost running expression, each with its value; `directly`:
    without the arguments of calls inside, whose results it computes with.
    """
    frame, node = _users_innermost(attempt)
    if frame is None or node is None:
        return []
    calls = (part for part in ast.walk(node) if directly and isinstance(part, ast.Call) and part is not node)
    arguments = (argument for call in calls for argument in (*call.args, *(k.value for k in call.keywords)))
    inside = {part for argument in arguments for part in ast.walk(argument)}
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute) and part not in inside)
    return [(part, value_in(part, frame)) for part in parts]


def are_numbers(plans: Iterable[Plan]) -> bool:
    """Return True if only numbers were guessed."""
    return all(_is_tensor_or_number(plan) and not isinstance(plan, TensorPlan) for plan in plans)


def are_tensors_or_numbers(attempt: Attempt) -> bool:
    """Return True if only tensors and numbers were guessed, and not the number of `*args`."""
    is_of_open_length = attempt.plans.starred in attempt.alternatives
    return not is_of_open_length and all(_is_tensor_or_number(plan) for _, plan in attempt.plans.items)


def _is_tensor_or_number(plan: Plan) -> bool:
    """Return True if a plan is not a guess, or is a guessed tensor or number."""
    if isinstance(plan, TensorPlan):
        return True
    if isinstance(plan, SequencePlan):
        is_known = all(isinstance(item, TensorPlan) and item.rank_known for item in plan.items)
        return is_known or not any(spec.is_guess for spec in input_specs(Plans((("", plan),))))
    if plan.source == "annotation":
        return plan.certain or plan.kind in _PLAIN_KINDS
    return not plan.is_guess or guessed_number(plan) is not None


_PLAIN_KINDS = frozenset({"bool", "str", "NoneType", "dtype"})


def reads_none(attempt: Attempt) -> bool:
    """Return True if the user's innermost expression reads a variable or an attribute that is None."""
    nothing = (part for part, value in _parts_read(attempt) if value is None)
    return any(not any(isinstance(inner, ast.Call) for inner in ast.walk(part)) for part in nothing)
