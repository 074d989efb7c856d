"""Record the conditions of a target on the sizes of its inputs: run it on symbols, and log each condition in order."""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import nn

from fx_lsp.tracer.compat import ConstantSource, DimDynamic, ShapeEnv, sympy
from fx_lsp.tracer.inputs.budget import CALLS_PER_SECOND, QUESTIONS_PER_CALL
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, SequencePlan, TensorPlan, ValuePlan
from fx_lsp.tracer.inputs.solve.attempt import Attempt, attempt
from fx_lsp.tracer.inputs.solve.operands import stretches_ones
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.run.call import RUN_CODE, Call
from fx_lsp.tracer.run.conditions import with_shape_env
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.observation import Run
from fx_lsp.tracer.run.repeated_modules import repeated_modules_skipped
from fx_lsp.tracer.run.torch_calls import FailedCall, tensors_among
from fx_lsp.tracer.source.provenance import Chain, Sources


@dataclass(frozen=True)
class Condition:
    """Hold a condition on sizes whose truth the code, or an operation, evaluated, and the answer.

    `calls` is the number of torch calls that had returned by then. For equalities that hold, `chain` is the place of
    the evaluation, and `call` the torch call that made it.
    """

    expression: sympy.Basic
    held: bool
    calls: int
    chain: Chain = ()
    call: FailedCall | None = None

    @cached_property
    def operands(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors of the torch call."""
        return tuple(tensors_among(self.call.args, self.call.kwargs)) if self.call is not None else ()

    @property
    def function(self) -> Callable[..., Any] | None:
        """Return the function of the torch call."""
        return self.call.func if self.call is not None else None


@dataclass(frozen=True)
class Dimension:
    """Describe a guessed size: the path of its tensor, its index there and the tensor's rank; or a number at `path`."""

    path: str
    index: int = 0
    rank: int = 0


@dataclass(frozen=True)
class Exploration:
    """Hold a run with a symbol for every guessed size and number.

    The code converted the `taken` symbols to numbers: values derived from those show no symbol.
    """

    attempt: Attempt
    conditions: list[Condition]
    dimensions: Mapping[sympy.Symbol, Dimension]
    hints: Mapping[sympy.Symbol, int]
    taken: Set[sympy.Symbol] = frozenset()

    @cached_property
    def stretches(self) -> bool:
        """Return True unless it ended at an operation that accepts no size 1 in place of another."""
        question = self.attempt.question
        return question is None or stretches_ones(question)

    def ends_like(self, attempt: Attempt) -> bool:
        """Return True if the run failed like an attempt, after the same number of torch calls."""
        return self.attempt.run.error is not None and self.attempt.run.calls == attempt.run.calls

    def stopping(self) -> Iterator[Condition]:
        """Yield the conditions since the last torch call that returned, the last first: one of them ended the run."""
        calls = self.attempt.run.calls
        last = [c for c in self.conditions if c.calls == calls]
        return iter(dict.fromkeys(reversed(last)))


GRACE = 1.0
"""The seconds of work for a run on symbols that begins when the budget of a search is spent."""
numbers.Integral.register(torch.SymInt)  # layers test so whether a size is one number or several


@contextmanager
def symbols_are_integers() -> Generator[None, None, None]:
    """Let symbols pass as `int` in PyTorch's layers, and be keys of dictionaries and of cached functions."""

    def is_instance(value: Any, kinds: Any) -> bool:
        counted = kinds if isinstance(kinds, tuple) else (kinds,)
        return isinstance(value, kinds) or (isinstance(value, torch.SymInt) and int in counted)

    layers = [module for name, module in sys.modules.items() if name.startswith("torch.nn.modules.")]
    for module in layers:
        module.__dict__["isinstance"] = is_instance
    kind: Any = torch.SymInt
    unhashable, kind.__hash__ = kind.__hash__, lambda self: hash(int(self))  # pyright: ignore
    try:
        yield
    finally:
        kind.__hash__ = unhashable
        for module in layers:
            del module.__dict__["isinstance"]


@contextmanager
def floats_are_numbers() -> Generator[None, None, None]:
    """Convert float and NumPy results of symbols to numbers: they are tables and scales, not sizes.

    `dim / 2` stays a symbol, which may be rounded to a size.
    """

    def of_floats(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda one, other: operation(_number(one), _number(other))

    def of_arrays(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*map(_number, inputs), **kwargs)

    operations: dict[str, Callable[[Any, Any], Any]] = {
        f"__{name}__": getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "pow")
    }
    reflected = {name.replace("__", "__r", 1): _reflected(do) for name, do in operations.items()}
    every = operations | reflected
    patches: dict[tuple[type, str], Callable[..., Any]] = {
        (torch.SymFloat, name): of_floats(do) for name, do in every.items()
    }
    patches[torch.SymInt, "__rtruediv__"] = of_floats(reflected["__rtruediv__"])
    patches |= {(kind, "__array_ufunc__"): of_arrays for kind in (torch.SymInt, torch.SymFloat)}
    before = {place: place[0].__dict__.get(place[1]) for place in patches}
    for (kind, name), method in patches.items():
        setattr(kind, name, method)
    try:
        yield
    finally:
        for (kind, name), method in before.items():
            setattr(kind, name, method) if method is not None else delattr(kind, name)


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: operation(other, one)


@contextmanager
def without_initialization() -> Generator[None, None, None]:
    """Leave parameters uninitialized: their initial values do not affect sizes."""

    def leave(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return tensor

    names = [name for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")]
    before = {name: getattr(nn.init, name) for name in names}
    for name in names:
        setattr(nn.init, name, leave)
    try:
        yield
    finally:
        for name, initialize in before.items():
            setattr(nn.init, name, initialize)


def _number(value: Any) -> Any:
    """Return the number of a symbol."""
    if isinstance(value, torch.SymInt):
        return int(value)
    return float(value) if isinstance(value, torch.SymFloat) else value


class PathConditions(ShapeEnv):
    """Create symbols that answer every question with their numbers, and record it.

    Unlike in a trace, an answer restricts nothing: equal symbols stay separate. After `most` questions, the next one
    raises.
    """

    def __init__(self, run: Run, sources: Sources, chains: bool, most: float = math.inf) -> None:
        super().__init__(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
        self.conditions: list[Condition] = []
        self.values: dict[sympy.Symbol, int] = {}
        self.taken: set[sympy.Symbol] = set()
        self._run, self._sources, self._chains = run, sources, chains
        self._seen: set[tuple[Any, int]] = set()
        self.asked, self._most = 0, most

    def size(self, name: str, hint: int) -> torch.SymInt:
        """Return a symbolic size with the number `hint`."""
        source = ConstantSource(name)
        symbol = self.create_symbol(hint, source, DimDynamic.DYNAMIC)
        assert isinstance(symbol, sympy.Symbol)
        self.values[symbol] = hint
        symint = self.create_symintnode(symbol, hint=hint, source=source)
        assert isinstance(symint, torch.SymInt)
        return symint

    def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
        """Answer from the numbers of the symbols. Numbers that depend on values are computed by PyTorch."""
        self.asked += 1
        if self.asked > self._most:
            raise TimeoutError("a run on symbols asks too much")
        symbols = getattr(orig_expr, "free_symbols", None)
        if orig_expr == sympy.false:
            self._note(sympy.false, False)
        if not symbols or not symbols <= self.values.keys():
            return super().evaluate_expr(orig_expr, *args, **kwargs)
        answer = orig_expr.xreplace(self.values)
        if answer in (sympy.true, sympy.false):
            self._note(orig_expr, answer == sympy.true)
        else:
            self.taken |= symbols
            if answer == 0:  # the rest of a divided size: no code is written for empty tensors
                self._note(sympy.Eq(orig_expr, 0), True)
        return answer

    def _note(self, expression: sympy.Basic, held: bool) -> None:
        key = (expression, self._run.calls)
        if key in self._seen and self.conditions[-1].expression == expression:
            return
        self._seen.add(key)
        chain: Chain = ()
        call: FailedCall | None = None
        if self._chains and held and isinstance(expression, (sympy.Eq, sympy.And)):
            chain = self._sources.chain(sys._getframe(2), RUN_CODE)
            call = self._run.calling
        self.conditions.append(Condition(expression, held, self._run.calls, chain, call))


CallOf: TypeAlias = Callable[[Plans, Mapping[str, Any]], tuple[Call, Dependence]]
"""Makes the call of plans with a value for each named size, and the inputs that tensors depend on."""


def explore(
    task: Task,
    plans: Plans,
    alternatives: dict[str, list[Plan]],
    call_of: Callable[[Free], tuple[Call, Dependence]],
    chains: bool = False,
) -> Exploration:
    """Run plans on symbols; `call_of` makes the call, with `Free.plans` for plans whose guesses become symbols.

    With `chains`, equalities that hold have the place of their evaluation.
    """
    run = Run()
    most = (task.seconds + GRACE) * CALLS_PER_SECOND * QUESTIONS_PER_CALL
    conditions = PathConditions(run, task.sources, chains, most)
    free = Free(conditions)
    with (
        with_shape_env(task.mode, conditions),
        symbols_are_integers(),
        floats_are_numbers(),
        without_initialization(),
        repeated_modules_skipped(run),
    ):
        tried = attempt(task, plans, alternatives, lambda: call_of(free), run)
    task.budget.work.spend_exploration(conditions.asked)
    return Exploration(tried, conditions.conditions, free.dimensions, conditions.values, conditions.taken)


@dataclass
class Free:
    """Convert guesses to symbols; `sizes` are those of dimensions, by their name in the plans."""

    conditions: PathConditions
    dimensions: dict[sympy.Symbol, Dimension] = field(default_factory=dict[sympy.Symbol, Dimension])
    sizes: dict[str, Any] = field(default_factory=dict[str, Any])

    def plans(self, plans: Plans, prefix: str = "") -> Plans:
        """Return the plans with a symbol for each guessed dimension and integer.

        0 and 1 stay numbers: operations treat them specially.
        """
        return replace(plans, items=tuple((n, self._free(plan, f"{prefix}{n}")) for n, plan in plans.items))

    def _free(self, plan: Plan, path: str) -> Plan:
        if isinstance(plan, SequencePlan):
            parts = zip(plan.paths(path), plan.items, strict=True)
            return replace(plan, items=tuple(self._free(item, where) for where, item in parts))
        if isinstance(plan, TensorPlan):
            return self._tensor(plan, path)
        number = guessed_number(plan)
        if number is None or number < 2:
            return plan
        symbol = self._symbol(path, number, Dimension(path))
        return replace(plan, make=lambda: symbol)

    def _tensor(self, plan: TensorPlan, path: str) -> TensorPlan:
        if not plan.is_guess or plan.spec.strides is not None:
            return plan
        names: list[int | str] = []
        for index, size in enumerate(plan.spec.sizes):
            if isinstance(size, int) and size > 1:
                name = f"{path}.{index}"
                self.sizes[name] = self._symbol(name, size, Dimension(path, index, len(plan.spec.sizes)))
                names.append(name)
            else:
                names.append(size)
        return replace(plan, spec=replace(plan.spec, sizes=tuple(names)))

    def _symbol(self, name: str, hint: int, dimension: Dimension) -> torch.SymInt:
        size = self.conditions.size(name, hint)
        self.dimensions[size.node.expr] = dimension
        return size


def guessed_number(plan: Plan) -> int | None:
    """Return the guessed integer of a plan, or None."""
    if not isinstance(plan, ValuePlan) or not plan.is_guess or not plan.shown.isdigit():
        return None
    return int(plan.shown)
