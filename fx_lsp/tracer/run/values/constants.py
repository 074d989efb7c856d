"""Compute values of tensors that depend on no input: masks, index tables, schedules, and others computed from numbers.

An operation whose operands all have values also runs on these, besides its run on fake tensors. Code that reads such a
value (`if mask.all()`, `betas.tolist()`, `lengths.max()`) gets it. Trained and random values are unknown. But random
integers are generated, as lengths and indices, and guessed integers may have values, like sizes; if code reads them,
the user gets a note that they are assumed. Unknown floating-point numbers are those of `numbers.py`, unless all unknown
values are random, as in `drawn.py`.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_map_only

from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensor, FakeTensorMode
from fx_lsp.tracer.run.values.decisions import Decisions, current_decisions, needed
from fx_lsp.tracer.run.values.drawn import MAX_ELEMENTS as MAX_DRAWN
from fx_lsp.tracer.run.values.drawn import (
    Draws,
    current_draws,
    drawing_nothing,
    numbers_of_held,
    numbers_of_input,
    numbers_of_result,
    plainly,
    takes_long,
)
from fx_lsp.tracer.run.values.numbers import NUMBER, number_of_data
from fx_lsp.tracer.run.values.reads import reading, reads_whole_numbers
from fx_lsp.tracer.run.values.selections import count_key, note_computed
from fx_lsp.tracer.run.values.symbols import Symbols, size_hint

MAX_ELEMENTS = 1 << 20
"""The most elements of a tensor whose value is computed."""
MAX_NUMBERS = 512
"""The most unknown numbers of one tensor that get symbols."""
_VALUE = "_fx_lsp_value"
"""The attribute of a fake tensor with its value."""
_ASKING = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape
_UNINITIALIZED = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")

Dispatch = Callable[..., Any]


@dataclass
class _Storage:
    """Hold for tensors that are views of each other whether their contents are still known."""

    is_known: bool = True


class _Origin(IntEnum):
    """Name the origin of a value. A result has the least certain origin of its operands."""

    CODE = 0
    DRAWN = 1
    GUESSED = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class _Value:
    tensor: torch.Tensor
    storage: _Storage = field(default_factory=_Storage)
    origin: _Origin = _Origin.CODE

    def __deepcopy__(self, memo: dict[int, Any]) -> _Value:
        with no_dispatch():
            return _Value(self.tensor.clone(), _Storage(self.storage.is_known), self.origin)


def keep_values(mode: FakeTensorMode) -> None:
    """Make a mode compute the values of tensors that depend on no input."""
    plain: Dispatch = mode.dispatch

    def run(func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Any) -> Any:
        with drawing_nothing():  # for the operations that this one consists of
            return _with_one_count(mode, plain, func, types, args, kwargs)

    def dispatch(func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            return _with_drawn(run(func, types, args, kwargs), current_draws())
        draws = current_draws()
        if draws is not None:
            _draw_unknown(draws, args, kwargs)
        has_values = _has_values(func, args, kwargs)
        origin = _origin_of(func, args, kwargs) if has_values else _Origin.GUESSED
        if func is _NUMBER and origin is not _Origin.CODE and (truth := _decided(origin)) is not None:
            return truth
        if not has_values:
            _check_bounds(func, args)
            _forget_written(func, args, kwargs)
            return _with_drawn(run(func, types, args, kwargs), draws, func)
        if any(tag in func.tags for tag in _ASKING):
            _tell(origin, next(_tensors((args, kwargs))))
            devices = [t.device for t in _tensors((args, kwargs)) if isinstance(t, FakeTensor)]
            device = next((d for d in devices if d.type != "cpu"), torch.device("cpu"))
            computed = _computed(func, args, kwargs)
            return tree_map_only(torch.Tensor, lambda t: _as_fake(t, mode, device, origin), computed)
        result = run(func, types, args, kwargs)
        is_worth = draws is None or not takes_long(func, args, kwargs, result)
        if is_worth and all(_is_small(tensor) for tensor in _tensors(result)):
            _attach(result, origin, func, args, kwargs)
        else:
            _forget_written(func, args, kwargs)
        return _with_drawn(result, draws)

    mode.__dict__["dispatch"] = dispatch


def _with_one_count(
    mode: FakeTensorMode, plain: Dispatch, func: Any, types: Sequence[type], args: Sequence[Any], kwargs: Any
) -> Any:
    """Run an operation; selections with equal masks have one size."""
    symbols = mode.shape_env
    if not isinstance(symbols, Symbols) or not isinstance(func, OpOverload):
        return plain(func, types, args, kwargs)
    asks = any(tag in func.tags for tag in _ASKING)
    with symbols.counting(count_key(func, args, kwargs) if asks else None):
        result = plain(func, types, args, kwargs)
    note_computed(func, args, kwargs, _tensors(result))
    return result


def _draw_unknown(draws: Draws, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Generate values for the operands without any. Trained tensors begin with their initial values."""
    for tensor in _tensors((args, kwargs)):
        if not isinstance(tensor, FakeTensor) or tensor.is_meta or _value(tensor) is not None or not _is_small(tensor):
            continue
        before: _Value | None = tensor.__dict__.get(_VALUE)
        if before is not None and before.storage.is_known:
            setattr(tensor, _VALUE, replace(before, origin=_Origin.UNKNOWN))
        else:
            setattr(tensor, _VALUE, _Value(numbers_of_held(draws, tensor, tensor.shape), origin=_Origin.UNKNOWN))


def _with_drawn(result: Any, draws: Draws | None, func: Any = None) -> Any:
    """Return the result of an operation, with random values if it has none and they are wanted.

    Uninitialized tensors are zero: how often an operation creates some internally differs between runs.
    """
    decisions = current_decisions() if draws is not None else None
    if decisions is None:
        return result
    is_empty = isinstance(func, OpOverload) and func.overloadpacket.__name__ in _UNINITIALIZED
    for tensor in _tensors(result):
        if isinstance(tensor, FakeTensor) and not tensor.is_meta and _value(tensor) is None and _is_small(tensor):
            seed = None if is_empty else decisions.next_seed(sys._getframe(1))
            real = numbers_of_result(seed, tensor.shape, tensor.dtype)
            setattr(tensor, _VALUE, _Value(real, origin=_Origin.UNKNOWN))
    return result


_INDEXED = {
    # operation: (its indexed operand, the dimension or its argument, its operand of indices)
    "embedding": (0, 0, 1),
    "nll_loss_forward": (0, 1, 1),
    "nll_loss2d_forward": (0, 1, 1),
    "index_select": (0, None, 2),
    "gather": (0, None, 2),
}


def _check_bounds(func: Any, args: Sequence[Any]) -> None:
    """Raise IndexError if indices with known values are out of bounds."""
    place = _INDEXED.get(func.overloadpacket.__name__)
    if place is None or len(args) <= max(place[0], place[2]) or not isinstance(args[place[2]], torch.Tensor):
        return
    indexed, dimension, indices = args[place[0]], place[1], _value(args[place[2]])
    dimension = args[1] if dimension is None else dimension
    if indices is None or indices.origin >= _Origin.GUESSED or indices.tensor.numel() == 0:
        return
    if not isinstance(indexed, torch.Tensor) or indexed.dim() == 0:
        return
    size = indexed.shape[min(dimension, indexed.dim() - 1)]
    with no_dispatch():
        counted = indices.tensor if "nll" not in func.overloadpacket.__name__ else _counted(indices.tensor, args)
        low, high = (int(counted.min()), int(counted.max())) if counted.numel() else (0, 0)
    if type(size) is int and not (low >= 0 and high < size):
        outside = high if high >= size else low
        raise IndexError(f"index {outside} is out of bounds for dimension {dimension} with size {size}")


def _counted(labels: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """Return the labels without those that a loss ignores."""
    return labels[labels != (args[4] if len(args) > 4 else -100)]


_NUMBER = torch.ops.aten._local_scalar_dense.default


def _decided(origin: _Origin) -> bool | None:
    """Return the assumed truth of a condition that reads a value; None without a condition, so that the value counts.

    If all numbers are random, only checks pass regardless of their value.
    """
    decisions = current_decisions()
    if decisions is None:
        return None
    return decisions.outcome(sys._getframe(1), only_checks=origin is _Origin.UNKNOWN)


def _tell(origin: _Origin, tensor: torch.Tensor) -> None:
    """Record for the user that values are assumed, if they are.

    Raises the error of reading an unknown value if random values were read too often.
    """
    decisions, value = current_decisions(), _value(_inner(tensor))
    if decisions is None or value is None or origin is _Origin.CODE:
        return
    if origin is _Origin.UNKNOWN and not decisions.may_read(sys._getframe(1)):
        raise needed(None)
    with no_dispatch():
        numbers = value.tensor.flatten()[: _SHOWN + 1].tolist()
    numbers = [int(number) for number in numbers] if reads_whole_numbers() else numbers
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
    decisions.note_value(sys._getframe(1), f"{shown}{_HOW_MADE_UP.get(origin, '')}")


_HOW_MADE_UP = {_Origin.DRAWN: ", random", _Origin.UNKNOWN: ", computed from random values"}
_SHOWN = 4
"""The number of displayed values of a tensor."""


def _value(tensor: torch.Tensor) -> _Value | None:
    if not isinstance(tensor, FakeTensor):
        plain = type(tensor) is torch.Tensor and not tensor.requires_grad and not tensor.is_meta and _is_small(tensor)
        return _Value(tensor) if plain and not _has_numbers_of_data(tensor) else None
    value: _Value | None = tensor.__dict__.get(_VALUE)
    if value is None or not value.storage.is_known:
        return None
    if value.origin is _Origin.UNKNOWN:
        return value if current_draws() is not None else None
    return None if tensor.requires_grad else value


def has_value(tensor: torch.Tensor) -> bool:
    """Return True for a tensor whose values are known."""
    return _value(tensor) is not None


def _has_numbers_of_data(tensor: torch.Tensor) -> bool:
    """Return True if a made-up array has become a tensor, with which only a rehearsal continues."""
    decisions = current_decisions()
    if decisions is None or decisions.place is None or not tensor.is_floating_point():
        return False
    with no_dispatch():
        is_made_up = bool((tensor == NUMBER).any())
    if is_made_up and not decisions.is_rehearsal:
        raise needed(decisions.place)
    return is_made_up


@contextmanager
def arrays_refuse_gradients() -> Generator[None, None, None]:
    """Make the conversion of a tensor that requires a gradient to an array fail inside: the program itself requires the
    gradient.
    """
    token = _refusing.set(True)
    try:
        yield
    finally:
        _refusing.reset(token)


_refusing = ContextVar("refusing", default=False)
_DRAWN = frozenset({"randint", "randint_like", "randperm", "random", "random_", "multinomial"})
"""Operations that return random integers. A program continues with any of them."""


def _has_values(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return True if the result of an operation depends on nothing unknown."""
    is_drawn = _is_drawn(func)
    if func.namespace == "prim" or (torch.Tag.nondeterministic_seeded in func.tags and not is_drawn):
        return False
    if func.overloadpacket.__name__ in _UNINITIALIZED:
        return False
    generators = torch.Generator if is_drawn else ()
    return not any(_is_unknown(item) for item in _leaves((args, kwargs)) if not isinstance(item, generators))


def _origin_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> _Origin:
    """Return the origin of the result of an operation whose operands all have values."""
    values = [value for tensor in _tensors((args, kwargs)) if (value := _value(tensor)) is not None]
    drawn = [_Origin.DRAWN] if _is_drawn(func) else []
    return max([_Origin.CODE, *drawn, *(value.origin for value in values)])


def _is_drawn(func: Any) -> bool:
    """Return True if an operation generates random values that a program may use: integers, or any that are wanted."""
    is_wanted = current_draws() is not None and torch.Tag.nondeterministic_seeded in func.tags
    return func.overloadpacket.__name__ in _DRAWN or is_wanted


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
    most = MAX_ELEMENTS if current_draws() is None else MAX_DRAWN
    return tensor.layout is torch.strided and math.prod(_sizes_of(tensor)) <= most


def _sizes_of(tensor: torch.Tensor) -> list[int]:
    """Return the sizes of a tensor as numbers, without guards on symbols."""
    return [size_hint(size) for size in tensor.shape]


def _computed(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    def real(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            value = _value(item)
            assert value is not None
            return value.tensor
        return torch.device("cpu") if isinstance(item, torch.device) else None  # random values have their own seed

    args, kwargs = tree_map_only((torch.Tensor, torch.device, torch.Generator), real, (args, kwargs))
    with plainly(), _seeded(func):
        # zeros of forward-mode differentiation have no memory
        return tree_map_only(torch.Tensor, lambda t: t.clone() if t._is_zerotensor() else t, func(*args, **kwargs))


@contextmanager
def _seeded(func: Any) -> Generator[None, None, None]:
    """Make an operation generate the same random values in each run of a target, without changing the user's
    generator.
    """
    decisions = current_decisions() if _is_drawn(func) else None
    if decisions is None:
        yield
        return
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(decisions.next_seed(sys._getframe(1)))
    try:
        yield
    finally:
        torch.default_generator.set_state(before)


def _attach(result: Any, origin: _Origin, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Set the values of an operation's results; they stay unknown if PyTorch cannot compute them here.

    Raises IndexError for an index out of bounds, as the operation would, unless it was guessed.
    """
    try:
        computed = _computed(func, args, kwargs)
    except Exception as error:
        if isinstance(error, IndexError) and origin < _Origin.GUESSED:
            raise
        _forget_written(func, args, kwargs)
        return
    operands = [value for tensor in _tensors((args, kwargs)) if (value := _value(tensor)) is not None]
    storages = {value.tensor.untyped_storage().data_ptr(): value.storage for value in operands}
    for fake, real in zip(_tensors(result), _tensors(computed), strict=True):
        if isinstance(fake, FakeTensor) and _sizes_of(fake) == list(real.shape) and not fake.is_meta:
            storage = storages.get(real.untyped_storage().data_ptr()) or _Storage()
            setattr(fake, _VALUE, _Value(real, storage, origin))


def _forget_written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Drop the values of tensors that an operation writes to, and of all their views."""
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


def give_values(tensor: torch.Tensor, values: Sequence[int]) -> None:
    """Set the values of a guessed tensor, repeated as needed."""
    sizes = _sizes_of(tensor)
    with no_dispatch(), torch._C.DisableTorchFunction():
        numbers = torch.tensor(values, dtype=tensor.dtype)
        count = math.prod(sizes)
        real = numbers.repeat(-(-count // len(values)))[:count].reshape(sizes)
    setattr(tensor, _VALUE, _Value(real, origin=_Origin.GUESSED))


def draw_input(tensor: torch.Tensor, path: str) -> None:
    """Generate random values for an input if unknown values are random, and it has none."""
    value = _value(tensor) if current_draws() is not None else None
    is_given = value is not None and value.origin is not _Origin.UNKNOWN
    if current_draws() is not None and not is_given and _is_small(tensor):
        setattr(tensor, _VALUE, _Value(numbers_of_input(path, tensor.shape, tensor.dtype), origin=_Origin.UNKNOWN))


def known_list(tensor: torch.Tensor) -> list[Any] | None:
    """Return the numbers in a tensor; None if they are unknown."""
    value = _value(_inner(tensor))
    if value is None or value.origin >= _Origin.GUESSED:
        return None
    with no_dispatch():
        return value.tensor.tolist()


def known_numbers(tensor: torch.Tensor) -> object | None:
    """Return the numbers of a tensor from its program, for `give_known`; None if there are none."""
    value = _value(_inner(tensor))
    return None if value is None or value.origin >= _Origin.GUESSED else value


def give_known(tensor: torch.Tensor, numbers: object) -> None:
    """Set the numbers of a tensor to those of another one, if they have the same sizes and dtype."""
    assert isinstance(numbers, _Value)
    if numbers.tensor.dtype == tensor.dtype and list(numbers.tensor.shape) == _sizes_of(tensor):
        setattr(tensor, _VALUE, copy.deepcopy(numbers))


def fake_of(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """Return a fake tensor on the CPU with the value of a real one."""
    return _as_fake(tensor, mode, torch.device("cpu"))


def _as_fake(
    tensor: torch.Tensor, mode: FakeTensorMode, device: torch.device, origin: _Origin = _Origin.CODE
) -> torch.Tensor:
    fake = mode.from_tensor(tensor, static_shapes=True)
    fake = fake if device.type == "cpu" else FakeTensor(mode, fake.to("meta"), device)
    setattr(fake, _VALUE, _Value(tensor, origin=origin))
    return fake


def _as_numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    def numpy(self: torch.Tensor, **options: Any) -> Any:
        if _refusing.get() and self.requires_grad and not options.get("force"):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        value = _value(_inner(self))
        if value is not None:
            _tell(value.origin, self)
            with no_dispatch():
                return value.tensor.numpy(**options)
        decisions = _makes_up(self)
        if decisions is None or decisions.is_rehearsal:
            return original(self, **options)
        decisions.make_up(sys._getframe(1))
        return _made_up(self, torch.Tensor.numpy)

    return numpy


def _as_list(original: Callable[..., Any]) -> Callable[..., Any]:
    def tolist(self: torch.Tensor) -> Any:
        value = _value(_inner(self))
        if value is not None:
            _tell(value.origin, self)
            with no_dispatch():
                return value.tensor.tolist()
        decisions = _makes_up(self)
        if decisions is not None and not decisions.is_rehearsal:
            place = decisions.make_up(sys._getframe(1))
            numbers = _made_up(self, torch.Tensor.tolist)
            return tree_map_only(float, lambda n: number_of_data(n, decisions, place), numbers)
        if self.numel() > MAX_NUMBERS:
            raise DATA_DEPENDENT[0](_NUMBER)
        return original(self)

    return tolist


def _as_number(original: Callable[..., Any]) -> Callable[..., Any]:
    def number(self: torch.Tensor) -> Any:
        decisions = _makes_up(self) if self.numel() == 1 else None
        if decisions is not None:
            return number_of_data(NUMBER, decisions, decisions.make_up(sys._getframe(1)))
        return original(self)

    return number


def _as_truth(original: Callable[..., Any], *kinds: torch.dtype) -> Callable[..., Any]:
    """Wrap a method that returns the truth of a tensor: in a rehearsal, unknown values are false.

    With `kinds`, this applies to tensors of these dtypes.
    """

    def truth(self: torch.Tensor) -> Any:
        decisions = current_decisions()
        if decisions is None or not decisions.is_rehearsal or self.numel() != 1 or _value(_inner(self)) is not None:
            return original(self)
        if kinds and self.dtype not in kinds:
            return original(self)
        outcome = decisions.outcome(sys._getframe(1))
        return False if outcome is None else outcome

    return truth


def _as_trained(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that makes a tensor require a gradient, which a functional tensor does not pass to its
    inner one.
    """

    def requires_grad_(self: torch.Tensor, requires_grad: bool = True) -> Any:
        value = _value(_inner(self)) if requires_grad else None
        if value is not None:
            value.storage.is_known = False
        return original(self, requires_grad)

    return requires_grad_


def _makes_up(tensor: torch.Tensor) -> Decisions | None:
    """Return the decisions if a tensor's numbers are assumed; None if they are known, symbols, or not floats."""
    decisions, inner = current_decisions(), _inner(tensor)
    if decisions is None or not tensor.dtype.is_floating_point or _value(inner) is not None:
        return None
    stands_for_values = getattr(getattr(inner, "fake_mode", None), "shape_env", None)
    return None if getattr(stands_for_values, "names_values", False) else decisions


def _made_up(tensor: torch.Tensor, convert: Callable[[torch.Tensor], Any]) -> Any:
    """Return numbers in place of a tensor's, converted."""
    with no_dispatch(), torch._C.DisableTorchFunction():
        return convert(torch.full(_sizes_of(tensor), NUMBER, dtype=tensor.dtype))


def _inner(tensor: Any) -> Any:
    return torch._from_functional_tensor(tensor.elem) if isinstance(tensor, FunctionalTensor) else tensor


for kind in (FakeTensor, FunctionalTensor):
    kind.numpy = reading("numpy", _as_numpy(kind.numpy))
    kind.tolist = reading("tolist", _as_list(kind.tolist))
    kind.item = reading("item", _as_truth(_as_number(kind.item), torch.bool))
    kind.__int__ = reading("__int__", kind.__int__)
    kind.__float__ = reading("__float__", _as_number(kind.__float__))
    kind.__bool__ = reading("__bool__", _as_truth(kind.__bool__))
    kind.__repr__ = reading("__repr__", kind.__repr__)
FunctionalTensor.requires_grad_ = _as_trained(FunctionalTensor.requires_grad_)
