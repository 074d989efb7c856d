"""Values of tensors that depend on no input: masks, index tables, schedules, all that code makes from numbers.

An operation whose operands all have values is run on them, too, beside its run on fake tensors. Whoever asks for such a
value (`if mask.all()`, `betas.tolist()`, `lengths.max()`) has it. What is trained, or random, has none; but a program
that is followed to a call draws its integers, as lengths and places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_map_only

from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensor, FakeTensorMode
from fx_lsp.tracer.run.values.checks import Checks

MAX_ELEMENTS = 1 << 20
"""How many numbers a tensor may have for its value to be computed."""
MAX_NUMBERS = 512
"""For how many numbers of one tensor that nobody knows there are symbols."""
_VALUE = "_fx_lsp_value"
"""The attribute of a fake tensor that holds its value."""
_CHECKS = "_fx_lsp_checks"
"""The attribute of a mode that holds what notes the checks that were taken to pass."""
_ASKING = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape
_UNINITIALIZED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")

Dispatch = Callable[..., Any]


@dataclass
class _Storage:
    """Say of what tensors share that are views of each other whether its contents are still known."""

    is_known: bool = True


@dataclass(frozen=True)
class _Value:
    tensor: torch.Tensor
    storage: _Storage = field(default_factory=_Storage)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Value:
        with no_dispatch():
            return _Value(self.tensor.clone(), _Storage(self.storage.is_known))


def keep_values(mode: FakeTensorMode) -> None:
    """Have a mode compute the values of what depends on no input."""
    run: Dispatch = mode.dispatch

    def dispatch(func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return run(func, types, args, kwargs)
        if not _has_values(func, args, kwargs):
            _check_bounds(func, args)
            _forget_written(func, args, kwargs)
            return _run_or_assume(mode, run, func, types, args, kwargs)
        if any(tag in func.tags for tag in _ASKING):
            devices = [t.device for t in _tensors((args, kwargs)) if isinstance(t, FakeTensor)]
            device = next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
            return tree_map_only(torch.Tensor, lambda t: _as_fake(t, mode, device), _computed(func, args, kwargs))
        result = run(func, types, args, kwargs)
        if all(_is_small(tensor) and tensor.layout is torch.strided for tensor in _tensors(result)):
            _attach(result, func, args, kwargs)
        else:
            _forget_written(func, args, kwargs)
        return result

    mode.__dict__["dispatch"] = dispatch


_INDEXED = {
    # operation: (its operand that is indexed, the dimension or what argument says which, its operand of indices)
    "embedding": (0, 0, 1),
    "nll_loss_forward": (0, 1, 1),
    "nll_loss2d_forward": (0, 1, 1),
    "index_select": (0, None, 2),
    "gather": (0, None, 2),
}


def _check_bounds(func: Any, args: Sequence[Any]) -> None:
    """Raise IndexError where indices whose values are known lie outside of what they select from."""
    place = _INDEXED.get(func.overloadpacket.__name__)
    if place is None or len(args) <= max(place[0], place[2]) or not isinstance(args[place[2]], torch.Tensor):
        return
    indexed, dimension, indices = args[place[0]], place[1], _value(args[place[2]])
    dimension = args[1] if dimension is None else dimension
    if indices is None or indices.tensor.numel() == 0 or not isinstance(indexed, torch.Tensor) or indexed.dim() == 0:
        return
    size = indexed.shape[min(dimension, indexed.dim() - 1)]
    with no_dispatch():
        counted = indices.tensor if "nll" not in func.overloadpacket.__name__ else _counted(indices.tensor, args)
        low, high = (int(counted.min()), int(counted.max())) if counted.numel() else (0, 0)
    if type(size) is int and not (low >= 0 and high < size):
        outside = high if high >= size else low
        raise IndexError(f"index {outside} is out of bounds for dimension {dimension} with size {size}")


def _counted(labels: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """The labels without those that a loss is told to ignore."""
    return labels[labels != (args[4] if len(args) > 4 else -100)]


def _run_or_assume(mode: FakeTensorMode, run: Dispatch, func: Any, *arguments: Any) -> Any:
    """Run an operation; where it asks for a value that only a check needs, say that the check passes."""
    try:
        return run(func, *arguments)
    except DATA_DEPENDENT:
        checks: Checks | None = mode.__dict__.get(_CHECKS)
        is_truth = func is torch.ops.aten._local_scalar_dense.default
        passes = checks.outcome(sys._getframe(1)) if checks is not None and is_truth else None
        if passes is None:
            raise
        return passes


@contextmanager
def checks_pass(mode: FakeTensorMode, checks: Checks) -> Generator[None, None, None]:
    """Inside, checks of values that nobody knows pass, and `checks` notes which."""
    mode.__dict__[_CHECKS] = checks
    try:
        yield
    finally:
        del mode.__dict__[_CHECKS]


def _value(tensor: torch.Tensor) -> _Value | None:
    if not isinstance(tensor, FakeTensor):
        plain = type(tensor) is torch.Tensor and not tensor.requires_grad and not tensor.is_meta and _is_small(tensor)
        return _Value(tensor) if plain else None
    value: _Value | None = tensor.__dict__.get(_VALUE)
    return value if value is not None and value.storage.is_known and not tensor.requires_grad else None


def has_value(tensor: torch.Tensor) -> bool:
    """Return True for a tensor whose numbers are known."""
    return _value(tensor) is not None


@contextmanager
def integers_are_drawn() -> Generator[None, None, None]:
    """Inside, integers drawn at random have values: whatever they are, a program goes on with them."""
    token = _drawing.set(True)
    try:
        yield
    finally:
        _drawing.reset(token)


@contextmanager
def arrays_refuse_gradients() -> Generator[None, None, None]:
    """Inside, a tensor that wants a gradient is no array: the program itself has made it want one."""
    token = _refusing.set(True)
    try:
        yield
    finally:
        _refusing.reset(token)


_drawing = ContextVar("drawing", default=False)
_refusing = ContextVar("refusing", default=False)
_DRAWN = frozenset({"randint", "randperm", "random", "random_"})


def _has_values(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return True if the result of an operation depends on nothing unknown."""
    is_drawn = _drawing.get() and func.overloadpacket.__name__ in _DRAWN
    if func.namespace == "prim" or (torch.Tag.nondeterministic_seeded in func.tags and not is_drawn):
        return False
    if func.overloadpacket.__name__ in _UNINITIALIZED:
        return False
    return not any(_is_unknown(item) for item in _leaves((args, kwargs)))


def _is_unknown(item: Any) -> bool:
    if isinstance(item, torch.Tensor):
        return _value(item) is None
    return isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Generator))


def _leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, (tuple, list)):
        for part in item:  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(part)
    elif isinstance(item, dict):
        for part in item.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(part)
    else:
        yield item


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in _leaves(item) if isinstance(leaf, torch.Tensor))


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() <= MAX_ELEMENTS


def _computed(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    def real(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            value = _value(item)
            assert value is not None
            return value.tensor
        return torch.device("cpu") if isinstance(item, torch.device) else item

    args, kwargs = tree_map_only((torch.Tensor, torch.device), real, (args, kwargs))
    with no_dispatch():
        return func(*args, **kwargs)


def _attach(result: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Give the results of an operation their values; what PyTorch cannot compute here stays unknown.

    Raises IndexError where an index is out of bounds, as the operation would.
    """
    try:
        computed = _computed(func, args, kwargs)
    except IndexError:
        raise
    except Exception:
        _forget_written(func, args, kwargs)
        return
    operands = [value for tensor in _tensors((args, kwargs)) if (value := _value(tensor)) is not None]
    storages = {value.tensor.untyped_storage().data_ptr(): value.storage for value in operands}
    for fake, real in zip(_tensors(result), _tensors(computed), strict=True):
        if isinstance(fake, FakeTensor) and fake.shape == real.shape and not fake.is_meta:
            storage = storages.get(real.untyped_storage().data_ptr()) or _Storage()
            setattr(fake, _VALUE, _Value(real, storage))


def _forget_written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Forget the values of what an operation writes to, and of all its views."""
    if not func._schema.is_mutable:
        return
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        written = args[position] if position < len(args) else kwargs.get(argument.name)
        for tensor in _tensors(written):
            value: _Value | None = tensor.__dict__.get(_VALUE)
            if value is not None:
                value.storage.is_known = False


def known_list(tensor: torch.Tensor) -> list[Any] | None:
    """Return the numbers in a tensor; None where they are not known."""
    value = _value(_inner(tensor))
    if value is None:
        return None
    with no_dispatch():
        return value.tensor.tolist()


def fake_of(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """Return a fake tensor on the CPU with the value of a real one."""
    return _as_fake(tensor, mode, torch.device("cpu"))


def _as_fake(tensor: torch.Tensor, mode: FakeTensorMode, device: torch.device) -> torch.Tensor:
    fake = mode.from_tensor(tensor, static_shapes=True)
    fake = fake if device.type == "cpu" else FakeTensor(mode, fake.to("meta"), device)
    setattr(fake, _VALUE, _Value(tensor))
    return fake


def _as_numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    def numpy(self: torch.Tensor, **options: Any) -> Any:
        if _refusing.get() and self.requires_grad and not options.get("force"):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        value = _value(_inner(self))
        if value is None:
            return original(self, **options)
        with no_dispatch():
            return value.tensor.numpy(**options)

    return numpy


def _as_list(original: Callable[..., Any]) -> Callable[..., Any]:
    def tolist(self: torch.Tensor) -> Any:
        value = _value(_inner(self))
        if value is None:
            if self.numel() > MAX_NUMBERS:
                raise DATA_DEPENDENT[0](torch.ops.aten._local_scalar_dense.default)
            return original(self)
        with no_dispatch():
            return value.tensor.tolist()

    return tolist


def _inner(tensor: Any) -> Any:
    return torch._from_functional_tensor(tensor.elem) if isinstance(tensor, FunctionalTensor) else tensor


for kind in (FakeTensor, FunctionalTensor):
    kind.numpy = _as_numpy(kind.numpy)
    kind.tolist = _as_list(kind.tolist)
