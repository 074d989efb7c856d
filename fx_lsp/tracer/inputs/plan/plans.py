"""Plan a call of a target, in immutable plans that a search can change piece by piece.

Dimensions of equal size count as tied: unrelated dimensions start with different sizes, and changing a size changes
every dimension with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor

from fx_lsp.model import InputSource, InputSpec, Span
from fx_lsp.specs import FLOATS, Expression, TensorSpec
from fx_lsp.tracer.run.call import tensors_in
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.tensors import make_tensor, spec_of
from fx_lsp.tracer.run.values.constants import draw_input, give_known, give_values, known_numbers
from fx_lsp.tracer.run.values.symbols import size_hint

INIT = "init."
"""The prefix of the names of constructor arguments, among the inputs of a trace."""
FROM_ERROR = "sizes from an error"
OF_FILE = "a module of the file"
FROM_DOCSTRING = "shape from the docstring"
"""The details of sizes that come from the numbers in an error, and from a docstring."""
LEADING = (4, 8, 12, 16, 20, 24, 28, 36, 40, 44, 48, 52, 56, 60, 68, 72, 76, 80, 84, 88, 92, 100, 104)
LAST = (64, 32, 96, 160, 192, 224, 288, 320, 352, 384, 416)


@dataclass(frozen=True)
class TensorPlan:
    """Describe a tensor to create.

    With `grad` it requires a gradient (floating point only); if it is no `leaf`, it is the result of an operation then.
    `dtype_known` is True if its use fixes the dtype, and `rank_known` if the code fixes its number of dimensions. If
    the code needs its values, they are `values`, repeated, or the `numbers` that the program gave it.
    """

    spec: TensorSpec
    source: InputSource
    detail: str = ""
    grad: bool = True
    dtype_known: bool = False
    rank_known: bool = False
    values: tuple[int, ...] = ()
    numbers: object | None = field(default=None, compare=False)
    leaf: bool = True

    @property
    def is_guess(self) -> bool:
        """Return True if nothing says what it is, so that a search may change it."""
        return self.source == "search"


@dataclass(frozen=True)
class ValuePlan:
    """Describe any other value: `make()` creates it for every run, `shown` is its text.

    It is `certain` if nothing in it was guessed, although its source may not be the intended one. `cls` is the class of
    an object that is constructed from defaults.
    """

    make: Callable[[], Any]
    shown: str
    source: InputSource
    detail: str = ""
    certain: bool = False
    cls: type | None = None

    @property
    def is_guess(self) -> bool:
        """Return True if nothing says what it is, so that a search may change it."""
        return self.source == "search"

    @property
    def kind(self) -> str:
        """Return the name of its type; "" if creating it raises."""
        try:
            return type(self.make()).__name__
        except Exception:
            return ""


@dataclass(frozen=True)
class SequencePlan:
    """Describe a tuple or list of plans; with `keys` a dict, or an object of a `kind` that is constructed with them as
    arguments.
    """

    items: tuple[Plan, ...]
    kind: Callable[..., Any] = tuple
    keys: tuple[Any, ...] | None = None

    @property
    def is_guess(self) -> bool:
        """Return True if nothing says what any item is."""
        return all(item.is_guess for item in self.items)

    @property
    def is_object(self) -> bool:
        """Return True for an object with attributes."""
        return self.keys is not None and self.kind not in (dict, tuple)

    def paths(self, path: str) -> list[str]:
        """Return the path of each item, in a container at `path`."""
        if self.is_object and self.keys is not None:
            return [f"{path}.{key}" for key in self.keys]
        return [f"{path}[{key!r}]" for key in (self.keys if self.keys is not None else range(len(self.items)))]


Sizes: TypeAlias = "tuple[int | str, ...]"
Plan: TypeAlias = TensorPlan | ValuePlan | SequencePlan


@dataclass(frozen=True)
class Narrowing:
    """Hold what a search made of its guesses because the run ended at an expression of the user: `asked`.

    `before` and `after` are the changed tensors and values, by path.
    """

    asked: Span
    before: Mapping[str, TensorPlan | ValuePlan]
    after: Mapping[str, TensorPlan | ValuePlan]


@dataclass(frozen=True)
class Plans:
    """Hold a plan for each passed parameter, in the order of the signature.

    `positional` names those that are passed by position; `starred` is the sequence that is spread, as `*args`; with
    `takes_more`, others may be passed by keyword, as `**kwargs`. `init` are the plans for the constructor of the
    method's object, if it is constructed for the call. `trail` says how a search came to these plans.
    """

    items: tuple[tuple[str, Plan], ...]
    positional: frozenset[str] = frozenset()
    starred: str | None = None
    takes_more: bool = False
    init: Plans | None = None
    trail: tuple[Narrowing, ...] = field(default=(), compare=False)

    def __getitem__(self, name: str) -> Plan:
        return next(p for n, p in self.items if n == name)

    def with_plan(self, name: str, plan: Plan) -> Plans:
        """Return the same plans with another one for `name`."""
        return replace(self, items=tuple((n, plan if n == name else p) for n, p in self.items))

    def with_init(self, changed: Mapping[str, Plan]) -> Plans:
        """Return the same plans with other arguments for the constructor."""
        assert self.init is not None, "an object that was given is not constructed again"
        items = tuple((name, changed.get(name, plan)) for name, plan in self.init.items)
        return replace(self, init=replace(self.init, items=items))

    def with_keyword(self, name: str, plan: Plan) -> Plans:
        """Return the same plans with one more, which `**kwargs` takes."""
        return replace(self, items=(*self.items, (name, plan)))

    def map_tensors(self, change: Callable[[str, TensorPlan], TensorPlan]) -> Plans:
        """Return the same plans with every tensor plan changed; `change` gets the path of each (`x`, `xs[0]`)."""
        return replace(self, items=tuple((n, _map(p, n, change)) for n, p in self.items))

    def tensors(self) -> Iterator[tuple[str, TensorPlan]]:
        """Yield every tensor plan with its path."""
        for name, plan in self.items:
            yield from ((path, leaf) for path, leaf in _leaves(plan, name) if isinstance(leaf, TensorPlan))

    def leaves(self) -> Iterator[tuple[str, TensorPlan | ValuePlan]]:
        """Yield every tensor and value with its path, those of the constructor with `init.` before it."""
        for name, plan in self.items:
            yield from _leaves(plan, name)
        for name, plan in self.init.items if self.init is not None else ():
            yield from _leaves(plan, f"{INIT}{name}")

    def narrowed(self, failed: Plans, asked: Span | None) -> Plans:
        """Return these plans with the trail of those that `failed`, and what they changed because of it."""
        old, new = dict(failed.leaves()), dict(self.leaves())
        changed = {path for path in old.keys() & new.keys() if _shown(old[path]) != _shown(new[path])}
        before, after = ({path: plan for path, plan in leaves.items() if path in changed} for leaves in (old, new))
        step = () if asked is None or not changed else (Narrowing(asked, before, after),)
        return replace(self, trail=(*failed.trail, *step))

    def sizes(self) -> set[int]:
        """Return all sizes in use."""
        return {s for _, t in self.tensors() for s in t.spec.sizes if isinstance(s, int)}


def at(plan: Plan, home: TensorSpec) -> Plan:
    """Return a plan whose tensors are on another's device, and of its dtype if they may be of any floating dtype."""

    def moved(_: str, tensor: TensorPlan) -> TensorPlan:
        is_free = not tensor.dtype_known and tensor.spec.dtype == "f32"
        dtype = home.dtype if is_free else tensor.spec.dtype
        return replace(tensor, spec=replace(tensor.spec, dtype=dtype, device=home.device))

    return _map(plan, "", moved)


def located(plan: Plan, detail: str) -> Plan:
    """Return the plan of a value that a program passes, with the place of the call."""
    if isinstance(plan, SequencePlan):
        return replace(plan, items=tuple(located(item, detail) for item in plan.items))
    return replace(plan, detail=detail) if plan.source == "call site" else plan


@dataclass(frozen=True)
class _Constant:
    """Return the same value at each call; two are equal if that is one object, or if they are equal literals."""

    constant: Any = field(compare=False)
    key: object

    def __call__(self) -> Any:
        return self.constant


def value(constant: Any, source: InputSource, detail: str = "") -> ValuePlan:
    """Return a plan for a value that all runs may share."""
    is_literal = constant is None or isinstance(constant, (bool, int, float, str, tuple, list))
    key = (type(constant), repr(constant)) if is_literal else id(constant)
    return ValuePlan(_Constant(constant, key), readable(constant), source, detail)


def has_made_up_values(plans: Plans) -> bool:
    """Return True if a tensor has made-up values."""
    return any(plan.values for _, plan in plans.tensors())


def readable(constant: Any) -> str:
    """Return a value as source text, if that is short: `4`, `torch.nn.functional.relu`, `LlamaConfig(…)`."""
    if isinstance(constant, torch.Tensor):
        return str(spec_of(constant))
    if isinstance(constant, (type, FunctionType, BuiltinFunctionType)):
        module, name = constant.__module__ or "", constant.__qualname__
        if getattr(torch, constant.__name__, None) is constant:
            return f"torch.{constant.__name__}"
        return f"{module}.{name}" if module.startswith("torch") else name
    shown = repr(constant)
    short = len(shown) <= 60 and "\n" not in shown and type(constant).__repr__ is not object.__repr__
    return shown if short else f"{type(constant).__name__}(…)"


def tensor(dtype: str, sizes: tuple[int, ...], source: InputSource = "search", detail: str = "") -> TensorPlan:
    """Return a plan for a contiguous CPU tensor."""
    return TensorPlan(TensorSpec(dtype, sizes), source, detail)


def fresh_sizes(rank: int, used_sizes: set[int], features: bool = True) -> tuple[int, ...]:
    """Return `rank` sizes that differ from each other and from those in use; with `features` the last is a
    larger one.
    """
    sizes: list[int] = []
    for position in range(rank):
        palette = LAST if features and position == rank - 1 else LEADING
        free = next((s for s in palette if s not in used_sizes and s not in sizes), 128 + 4 * len(used_sizes))
        sizes.append(free)
    return tuple(sizes)


def reranked(sizes: Sizes, rank: int, used_sizes: set[int]) -> Sizes:
    """Return the last `rank` sizes, with fresh ones in front if there are fewer."""
    added = fresh_sizes(rank, used_sizes)[: max(rank - len(sizes), 0)]
    return (*added, *sizes[max(len(sizes) - rank, 0) :])


def with_size(plans: Plans, old: int, new: int, detail: str = FROM_ERROR) -> Plans:
    """Return the plans with every searched dimension of size `old` changed to `new`; `detail` is the reason."""
    return resized(plans, lambda sizes: tuple(new if s == old else s for s in sizes), detail)


def resized(plans: Plans, change: Callable[[Sizes], Sizes], detail: str, path: str | None = None) -> Plans:
    """Return the plans with other sizes for every searched tensor, or for the one at `path`; `detail` is the reason."""

    def changed(where: str, plan: TensorPlan) -> TensorPlan:
        if not plan.is_guess or path not in (None, where):
            return plan
        sizes = change(plan.spec.sizes)
        if plan.rank_known and len(sizes) != len(plan.spec.sizes):
            return plan
        return plan if sizes == plan.spec.sizes else replace(plan, spec=replace(plan.spec, sizes=sizes), detail=detail)

    return plans.map_tensors(changed)


@dataclass
class Materialized:
    """Hold created arguments, the inputs that tensors depend on, and the modules among them by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dependence: Dependence
    modules: dict[str, nn.Module]


def materialize(plans: Plans, named_sizes: Mapping[str, Any] | None = None) -> Materialized:
    """Create the arguments; call it inside the fake mode. Raises the errors of creating a tensor or value.

    Defaults are omitted, unless they are tensors or a `*args` follows; arguments after an omitted one are passed by
    keyword.
    """
    dependence = Dependence()
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    modules: dict[str, nn.Module] = {}
    in_order = True
    spread = dict(plans.items).get(plans.starred or "")
    spreads = isinstance(spread, SequencePlan) and bool(spread.items)
    for name, plan in plans.items:
        if _is_left_out(plan) and not (spreads and name in plans.positional):
            in_order = False
            continue
        argument = _make(plan, name, dependence, named_sizes)
        if name == plans.starred:
            args.extend(argument)
        elif in_order and name in plans.positional:
            args.append(argument)
        else:
            kwargs[name] = argument
        if isinstance(argument, nn.Module):
            modules[name] = argument
    return Materialized(tuple(args), kwargs, dependence, modules)


def _is_left_out(plan: Plan) -> bool:
    """Return True for a default that a call can omit; a tensor is only an input of the graph if it is passed."""
    return isinstance(plan, ValuePlan) and plan.source == "default" and not any(tensors_in(plan.make(), ""))


def _make(plan: Plan, path: str, dependence: Dependence, named_sizes: Mapping[str, Any] | None) -> Any:
    if isinstance(plan, SequencePlan):
        items = [
            _make(p, where, dependence, named_sizes) for where, p in zip(plan.paths(path), plan.items, strict=True)
        ]
        if plan.keys is None:
            return plan.kind(items)
        named = dict(zip(plan.keys, items, strict=True))
        return plan.kind(**named) if plan.is_object else named
    if isinstance(plan, ValuePlan):
        return plan.make()
    tensor = make_tensor(plan.spec, named_sizes)
    if plan.grad and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.requires_grad_()
        tensor = tensor if plan.leaf else Computed.apply(tensor)
    if plan.values:
        give_values(tensor, plan.values)
    elif plan.numbers is not None:
        give_known(tensor, plan.numbers)
    draw_input(tensor, path)
    dependence.begin(tensor, path)
    return tensor


class Computed(torch.autograd.Function):
    """Computes a tensor with the sizes and strides of a leaf, which can be written to."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


def input_specs(plans: Plans, prefix: str = "") -> tuple[InputSpec, ...]:
    """Return the plans for the user: one line for each argument and each tensor inside one."""
    specs: list[InputSpec] = []
    for name, plan in plans.items:
        _describe(plan, f"{prefix}{name}", specs)
    return tuple(specs)


def _describe(plan: Plan, path: str, specs: list[InputSpec]) -> None:
    if isinstance(plan, SequencePlan):
        for where, item in zip(plan.paths(path), plan.items, strict=True):
            _describe(item, where, specs)
    elif isinstance(plan, TensorPlan):
        values = f"assumed values: {', '.join(map(str, plan.values))}, …" if plan.values else ""
        detail = ", ".join(filter(None, (plan.detail, values)))
        needs = plan.grad if plan.spec.dtype in FLOATS else None
        specs.append(InputSpec(path, str(plan.spec), plan.source, detail, plan.is_guess, needs))
    else:
        specs.append(InputSpec(path, plan.shown, plan.source, plan.detail, plan.is_guess))


def _map(plan: Plan, path: str, change: Callable[[str, TensorPlan], TensorPlan]) -> Plan:
    if isinstance(plan, SequencePlan):
        items = zip(plan.paths(path), plan.items, strict=True)
        return replace(plan, items=tuple(_map(item, where, change) for where, item in items))
    return change(path, plan) if isinstance(plan, TensorPlan) else plan


def _leaves(plan: Plan, path: str) -> Iterator[tuple[str, TensorPlan | ValuePlan]]:
    if isinstance(plan, SequencePlan):
        for where, item in zip(plan.paths(path), plan.items, strict=True):
            yield from _leaves(item, where)
    else:
        yield path, plan


def _shown(plan: TensorPlan | ValuePlan) -> object:
    """Return a key of a plan to compare it by: the spec of a tensor, the text of a value."""
    return plan.spec if isinstance(plan, TensorPlan) else plan.shown


def plan_of(written: Any, source: InputSource, evaluate: Callable[[str], Any], detail: str = "") -> Plan:
    """Return the plan for a written value: a spec, an expression, a literal or a container of them.

    `evaluate` returns the value of an expression in the user's module.
    """
    if isinstance(written, TensorSpec):
        return TensorPlan(replace(written, detached=False), source, detail, grad=not written.detached)
    if isinstance(written, Expression):
        text = written.text
        return ValuePlan(lambda: evaluate(text), text, source, detail)
    if isinstance(written, (list, tuple)) and any(
        isinstance(g, (TensorSpec, Expression, list, tuple, dict)) for g in written
    ):
        return SequencePlan(tuple(plan_of(g, source, evaluate, detail) for g in written), type(written))
    if isinstance(written, dict):
        items = tuple(plan_of(g, source, evaluate, detail) for g in written.values())
        return SequencePlan(items, dict, tuple(written))
    return value(written, source, detail)


def plan_of_made(original: Any, source: InputSource, detail: str = "") -> Plan:
    """Return the plan for a value from user code: its tensors are described and created again."""
    if isinstance(original, torch.Tensor):
        return _plan_of_tensor(original, source, detail)
    if type(original) in (list, tuple):
        return SequencePlan(tuple(plan_of_made(g, source, detail) for g in original), type(original))
    if type(original) is dict:
        return SequencePlan(tuple(plan_of_made(g, source, detail) for g in original.values()), dict, tuple(original))
    plan = value(original, source, detail)
    snapshot = _snapshot(original)
    return plan if snapshot is original else replace(plan, make=lambda: _snapshot(snapshot))


def _plan_of_tensor(original: torch.Tensor, source: InputSource, detail: str) -> TensorPlan:
    """Return the plan for a tensor; for one with symbolic sizes, its hints, for one inside `vmap` or `grad`, its part.

    Such tensors live in the transformation, and so have neither numbers nor strides outside. Only a call says whether
    a tensor requires a gradient.
    """
    transformed, is_of_call = is_functorch_wrapped_tensor(original), source == "call site"
    grad, leaf = not is_of_call or original.requires_grad, not is_of_call or original.is_leaf or transformed
    if not transformed and not any(isinstance(size, torch.SymInt) for size in original.shape):
        spec, numbers = spec_of(original), known_numbers(original)
        return TensorPlan(spec, source, detail, grad=grad, leaf=leaf, numbers=numbers)
    spec = replace(spec_of(original), sizes=tuple(map(size_hint, original.shape)), strides=None)
    return TensorPlan(spec, source, detail, grad=grad, leaf=leaf)


def _snapshot(original: Any) -> Any:
    """Return a copy of an object that a call may change, such as settings; the object itself if it is shared.

    Modules in it are shared, too: every run has to find the same parameters.
    """
    if isinstance(original, (nn.Module, type, FunctionType, ModuleType)) or not hasattr(original, "__dict__"):
        return original
    try:
        with _modules_shared():
            snapshot = copy.deepcopy(original)
        if original.__dict__ is original:  # a dict whose items are its attributes
            snapshot.__dict__ = snapshot
        return snapshot
    except Exception:
        return original


@contextmanager
def _modules_shared() -> Generator[None, None, None]:
    """Make copies of objects refer to the same modules."""

    def shared(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
        return module

    module: Any = nn.Module
    module.__deepcopy__ = shared
    try:
        yield
    finally:
        del module.__deepcopy__
