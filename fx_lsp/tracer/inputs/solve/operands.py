"""Find the operands that a rejecting operation accepts: run it again with one operand changed at a time.

The failing call runs again, on tensors without storage, with another tensor or value in place of one argument. So no
message is parsed, and no operation is known by name: it works for any function of PyTorch or a library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map

from fx_lsp.tracer.failures.exceptions import kind_of
from fx_lsp.tracer.inputs.plan.signatures import signature_of
from fx_lsp.tracer.run.observation import checked_call
from fx_lsp.tracer.run.torch_calls import FailedCall
from fx_lsp.tracer.run.values.symbols import size_hint

Shape = tuple[int, ...]

MAX_RANK = 5
MAX_SHAPES, MAX_SHAPES_OF_RANK = 50, 8
"""The most other shapes of one operand to try: of the same rank, and of each other rank."""
MAX_DISTINCT = 4
"""The most sizes of other operands that are tried in pairs, as in an attention mask."""
MAX_TOGETHER = 3
"""The most operands whose ranks and dtypes are changed at once."""
MAX_MOVED = 6
"""The most changes to inspect with which a call raises another error."""
MAX_NUMBER = 1 << 16
DTYPES = (torch.int64, torch.float32, torch.bool, torch.complex64)
VALUES: tuple[Any, ...] = (
    *(False, 1, 2, 0.5, torch.float32, torch.device("cpu")),
    *((1, 1), (2,), (1, 1, 1, 1), (1, 1, 1), (-1,)),
)
"""The values tried in place of a tensor: one of each type that PyTorch's functions accept."""
MODES = ("constant", "reflect", "replicate", "circular", "mean", "sum", "none", "backward", "ortho", "forward")
"""The strings tried in place of a string: the modes of PyTorch's functions."""
SEVERAL = object()
"""Placeholder for a list of several tensors."""
ASKS_ONE_ELEMENT = frozenset(
    getattr(torch.Tensor, name) for name in ("__bool__", "__int__", "__float__", "__index__", "item")
)
"""The functions that only accept a tensor of one element."""


@dataclass(frozen=True)
class Replacement:
    """Describe a tensor of `shape` and `dtype` in place of an operand, with which a call runs."""

    operand: torch.Tensor
    shape: Shape
    dtype: torch.dtype


@dataclass(frozen=True)
class _Layout:
    """Describe a tensor of `shape` and `dtype`, with its dimensions in memory in an `order`, the outermost first."""

    shape: Shape
    dtype: torch.dtype
    order: tuple[int, ...]


def _laid_out(operand: torch.Tensor, shape: Shape, dtype: torch.dtype) -> _Layout:
    """Return the layout of a tensor in place of an operand; with equal rank, it has the operand's memory order."""
    strides = tuple(map(size_hint, operand.stride()))
    dims = range(len(shape))
    order = sorted(dims, key=lambda dim: -strides[dim]) if len(shape) == operand.dim() else dims
    return _Layout(shape, dtype, tuple(order))


class Question:
    """Test whether a failed call runs with other arguments.

    It runs on tensors without storage; on fake ones, which are slower, if it raises another error on those. `refused`
    is the error with the original arguments; None if it runs, so that nothing can be learned.
    """

    def __init__(self, call: FailedCall, error: BaseException | None, on_fakes: bool = False) -> None:
        self.call = call
        self._leaves = tree_leaves((call.args, call.kwargs))
        self._described = (call.func, *call.kwargs, *map(_described, self._leaves))
        self.tensors = list({id(tensor): tensor for tensor in tensors_of(call)}.values())
        positions = {id(tensor): (i, isinstance(tensor, nn.Parameter)) for i, tensor in enumerate(self.tensors)}
        self._roles = tuple(positions.get(id(leaf)) for leaf in self._leaves)
        self._go_to("cpu" if on_fakes else "meta")
        if not on_fakes and (self.refused is None or not _is_alike(self.refused, error)):
            self._go_to("cpu")

    def _go_to(self, device: str) -> None:
        """Switch to tensors without storage ("meta"), or to fake ones."""
        self._device = device
        self._mode: Callable[[], AbstractContextManager[Any]] = (
            nullcontext if device == "cpu" else self._outside_of_modes
        )
        with self._mode():
            tensors = self.tensors if device == "meta" else ()
            self._stand_ins = {id(tensor): _without_storage(tensor) for tensor in tensors}
        self.refused = self.error_with({})

    @contextmanager
    def _outside_of_modes(self) -> Generator[None, None, None]:
        """Run, inside, only PyTorch's own code; modes see the call if it names a device, which may be missing."""
        names_device = any(isinstance(leaf, (str, torch.device)) for leaf in self._leaves)
        with unset_fake_temporarily(), nullcontext() if names_device else torch._C.DisableTorchFunction():
            yield

    @property
    def operands(self) -> list[torch.Tensor]:
        """Return the tensors that other inputs may change: parameters of modules stay unchanged."""
        return [tensor for tensor in self.tensors if not isinstance(tensor, nn.Parameter)] if self.refused else []

    def remembered(self, find: Callable[[Question], Iterable[Replacement]]) -> list[Replacement]:
        """Return the replacements of `find` for this question, cached: equal calls have equal ones."""
        key = (find, self._device, self._described, self._roles)
        if key not in _replacements:
            positions = {id(tensor): i for i, tensor in enumerate(self.tensors)}
            _replacements[key] = [(positions[id(c.operand)], c.shape, c.dtype) for c in find(self)]
        return [Replacement(self.tensors[i], shape, dtype) for i, shape, dtype in _replacements[key]]

    def fitting(self, changes: Sequence[Replacement]) -> list[Replacement]:
        """Return the changes with which the call runs; if there are none, those with which it raises another error."""
        errors = [self._error_changed(change) for change in changes]
        fitting = [change for change, error in zip(changes, errors, strict=True) if error is None]
        others = (change for change, error in zip(changes, errors, strict=True) if not _is_alike(error, self.refused))
        return fitting or list(islice(others, MAX_MOVED))

    def runs_with(self, changes: Iterable[Replacement]) -> bool:
        """Return True if the call runs with one of the changes."""
        return any(self._error_changed(change) is None for change in changes)

    def _error_changed(self, change: Replacement) -> Exception | None:
        return self.error_with({id(change.operand): _laid_out(change.operand, change.shape, change.dtype)})

    def fitting_values(self, arguments: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return values with which the call runs in place of named arguments; `SEVERAL` means several tensors, also if
        another error remains then.
        """
        changes = [(name, argument, value) for name, argument in arguments for value in _values_like(argument)]
        errors = [self.error_with({id(argument): value}) for _, argument, value in changes]
        pairs = [((name, value), error) for (name, _, value), error in zip(changes, errors, strict=True)]
        several = [c for c, error in pairs if c[1] is SEVERAL and not _is_alike(error, self.refused)]
        return [change for change, error in pairs if error is None] or several

    def takes_tensor(self, argument: float) -> bool:
        """Return True if the call runs with a tensor in place of a number, or raises another error."""
        tensors = (_Layout((2,) * rank, torch.float32, tuple(range(rank))) for rank in range(1, MAX_RANK))
        return any(not _is_alike(self.error_with({id(argument): tensor}), self.refused) for tensor in tensors)

    def takes_together(self, operands: Sequence[torch.Tensor]) -> bool:
        """Return True if the call runs with other ranks and dtypes of two or three operands at once."""
        choices = [
            [
                (id(operand), _laid_out(operand, _of_rank(_shape(operand), rank), dtype))
                for rank in range(1, MAX_RANK)
                for dtype in dict.fromkeys((operand.dtype, torch.int64))
            ]
            for operand in operands
        ]
        is_several = 1 < len(operands) <= MAX_TOGETHER
        return is_several and any(self.error_with(dict(chosen)) is None for chosen in product(*choices))

    def takes_dtype(self, operands: Sequence[torch.Tensor], dtype: torch.dtype) -> bool:
        """Return True if the call runs with operands of another dtype; fake tensors check the kernels as well."""
        others = {id(operand): _laid_out(operand, _shape(operand), dtype) for operand in operands}
        return self.error_with(others) is None and Question(self.call, None, on_fakes=True).error_with(others) is None

    def error_with(self, others: Mapping[int, Any]) -> Exception | None:
        """Return the error of the call with other arguments, by the identity of its own; None if it runs. Cached."""
        changed = tuple((i, _described(others[id(leaf)])) for i, leaf in enumerate(self._leaves) if id(leaf) in others)
        key = (self._device, self._described, changed)
        if key not in _answers:
            _answers[key] = self._ask(others)
        return _answers[key]

    def _ask(self, others: Mapping[int, Any]) -> Exception | None:
        try:
            with self._mode(), torch.no_grad():
                leaves = self._stand_ins | {key: _made(other, self._device) for key, other in others.items()}
                arguments = (self.call.args, self.call.kwargs)
                args, kwargs = tree_map(lambda leaf: leaves.get(id(leaf), _hint(leaf, self._device)), arguments)
                checked_call(self.call.func, args, kwargs)
        except Exception as error:
            return error.with_traceback(None)
        return None


_answers: dict[object, Exception | None] = {}
_replacements: dict[object, list[tuple[int, Shape, torch.dtype]]] = {}


def _described(leaf: Any) -> object:
    """Return a key of an argument: the sizes, strides and dtype of a tensor, else its repr."""
    if isinstance(leaf, torch.Tensor):
        return _shape(leaf), tuple(map(size_hint, leaf.stride())), leaf.dtype
    if isinstance(leaf, torch.SymInt):
        return size_hint(leaf)
    try:
        return type(leaf), repr(leaf)
    except Exception:  # its repr is the user's code, or shows a tensor in it
        return type(leaf), id(leaf)


def of_other_sizes(question: Question) -> list[Replacement]:
    """Return the operands whose sizes a call rejected, each with accepted sizes of the same rank.

    The last operands come first: `scale` adapts to `x` in `x * scale`. If several are wrong, so that no single change
    works, the changes with another error are returned.
    """
    return question.remembered(_of_other_sizes)


def _of_other_sizes(question: Question) -> list[Replacement]:
    changes = [
        Replacement(operand, shape, operand.dtype)
        for operand in reversed(question.operands)
        for shape in islice(_other_shapes(_shape(operand), operand, question), MAX_SHAPES)
    ]
    return question.fitting(changes)


def of_other_ranks(question: Question) -> list[Replacement]:
    """Return the operands whose rank a call rejected, each with an accepted shape.

    Dimensions are added or removed in front; other sizes change if the call requires that too. It may be the shape of
    another operand without one of its dimensions, as labels have that of scores without classes.
    """
    return question.remembered(_of_other_ranks)


def _of_other_ranks(question: Question) -> list[Replacement]:
    changes: list[Replacement] = []
    for operand in question.operands:
        shape = _shape(operand)
        for rank in sorted(set(range(MAX_RANK + 1)) - {len(shape)}, key=lambda r: (abs(r - len(shape)), -r)):
            other = _of_rank(shape, rank)
            further = islice(_other_shapes(other, operand, question), MAX_SHAPES_OF_RANK)
            shapes = (other, *_without_a_dimension(rank, operand, question), *further)
            changes += [Replacement(operand, shape, operand.dtype) for shape in shapes]
    of_ranks: dict[tuple[int, int], Replacement] = {}
    for change in question.fitting(changes):
        of_ranks.setdefault((id(change.operand), len(change.shape)), change)
    return list(of_ranks.values())


def stretches_ones(question: Question) -> bool:
    """Return True if a call runs with an operand of which a rejected size is 1, which broadcasts."""
    pairs = ((change, zip(_shape(change.operand), change.shape, strict=True)) for change in of_other_sizes(question))
    return any(need == 1 != have for _, sizes in pairs for have, need in sizes)


def wants_other_rank(question: Question) -> bool:
    """Return True if a call runs with more dimensions of an operand, and with no other sizes of any.

    With fewer, nearly everything runs, because the rest broadcasts.
    """
    more = (change for change in of_other_ranks(question) if len(change.shape) > change.operand.dim())
    return question.runs_with(more) and not question.runs_with(of_other_sizes(question))


def _without_a_dimension(rank: int, operand: torch.Tensor, question: Question) -> Iterator[Shape]:
    """Yield the shapes of other operands without one of their dimensions, if they have the rank."""
    for other in (_shape(tensor) for tensor in question.tensors if tensor is not operand and tensor.dim() == rank + 1):
        yield from ((*other[:index], *other[index + 1 :]) for index in (1, *range(rank, 1, -1), 0))


def of_other_dtypes(question: Question) -> list[Replacement]:
    """Return the operands whose dtype a call rejected, each with an accepted one: first those of the other operands.

    If sizes or ranks are wrong as well, they are those with another error.
    """
    return question.remembered(_of_other_dtypes)


def _of_other_dtypes(question: Question) -> list[Replacement]:
    dtypes = dict.fromkeys((*(tensor.dtype for tensor in question.tensors), *DTYPES))
    operands = question.operands
    pairs = ((operand, dtype) for operand in operands for dtype in dtypes if dtype != operand.dtype)
    changes = [Replacement(operand, _shape(operand), dtype) for operand, dtype in pairs]
    fitting = [change for change in changes if question.takes_dtype([change.operand], change.dtype)]
    for dtype in dtypes if len(operands) > 1 else ():
        if question.takes_dtype(operands, dtype):
            fitting += [change for change in changes if change.dtype == dtype]
    if not fitting and question.refused is not None and kind_of(question.refused) == "dtype":
        fitting = question.fitting(changes)
    return fitting


def _values_like(argument: Any) -> tuple[Any, ...]:
    if isinstance(argument, str):
        return MODES
    return (*((SEVERAL,) if isinstance(argument, torch.Tensor) else ()), *VALUES)


def _is_alike(error: BaseException | None, other: BaseException | None) -> bool:
    """Return True if two errors have the same message except for numbers."""
    return type(error) is type(other) and without_digits(error) == without_digits(other)


def without_digits(error: BaseException | None) -> str:
    """Return the message of an error without its digits."""
    return "".join(c for c in str(error) if not c.isdigit())


def is_of_gradients(call: FailedCall, error: BaseException) -> bool:
    """Return True if a call only raised an error because its tensors require gradients: without them, none or
    another.
    """
    tensors = tensors_of(call)
    if not call.is_repeatable or not any(tensor.requires_grad for tensor in tensors):
        return False
    other = _error_of(call, {id(tensor): tensor.detach() for tensor in tensors})
    return other is None or (type(other), str(other)) != (type(error), str(error))


def runs_without_gradient(call: FailedCall) -> bool:
    """Return True if a failed call runs with the same tensors without gradients, and changes none.

    A call with `training=True` does change some, without increasing a version counter.
    """
    if not call.is_repeatable:
        return False
    tensors = tensors_of(call)
    versions = sum(tensor._version for tensor in tensors)
    if _arguments(call).get("training") or not any(tensor.requires_grad for tensor in tensors):
        return False
    error = _error_of(call, {id(tensor): tensor.detach() for tensor in tensors})
    return error is None and sum(tensor._version for tensor in tensors) == versions


def _error_of(call: FailedCall, others: Mapping[int, torch.Tensor]) -> Exception | None:
    args, kwargs = tree_map(lambda leaf: others.get(id(leaf), leaf), (call.args, call.kwargs))
    try:
        call.func(*args, **kwargs)
    except Exception as error:
        return error
    return None


def tensors_of(call: FailedCall) -> list[torch.Tensor]:
    """Return the tensors among the arguments of a call, at any depth."""
    return [leaf for leaf in tree_leaves((call.args, call.kwargs)) if isinstance(leaf, torch.Tensor)]


def _arguments(call: FailedCall) -> Mapping[str, Any]:
    signature = signature_of(call.func)
    return signature.bind_partial(*call.args, **call.kwargs).arguments if signature is not None else call.kwargs


def _without_storage(tensor: torch.Tensor) -> torch.Tensor:
    sizes, strides = (tuple(map(size_hint, numbers)) for numbers in (tensor.shape, tensor.stride()))
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")


def _made(other: Any, device: str) -> Any:
    """Return a tensor for a layout, a list of two for `SEVERAL`, any other value unchanged."""
    if other is SEVERAL:
        return [torch.empty(2, device=device)] * 2
    if isinstance(other, _Layout):
        sizes = [other.shape[dim] for dim in other.order]
        dims = [other.order.index(dim) for dim in range(len(sizes))]
        return torch.empty(sizes, dtype=other.dtype, device=device).permute(dims)
    return other


def _hint(leaf: Any, device: str) -> Any:
    if isinstance(leaf, torch.SymInt):
        return size_hint(leaf)
    return torch.device(device) if isinstance(leaf, torch.device) else leaf


def _shape(tensor: torch.Tensor) -> Shape:
    return tuple(map(size_hint, tensor.shape))


def _of_rank(shape: Shape, rank: int) -> Shape:
    return (*(2 for _ in range(rank - len(shape))), *shape[max(len(shape) - rank, 0) :])


def _other_shapes(shape: Shape, operand: torch.Tensor, question: Question) -> Iterator[Shape]:
    """Yield shapes of the same rank, the most likely first: those in the call's other arguments."""
    others = [_shape(tensor) for tensor in question.tensors if tensor is not operand]
    shapes: dict[Shape, None] = {}
    for sizes in _sizes(shape, others, list(_numbers(question.call))):
        for index, size in sizes:
            if 0 < size <= MAX_NUMBER and size != shape[index]:
                shapes[(*shape[:index], size, *shape[index + 1 :])] = None
    for other in (other for other in others if len(other) == len(shape)):
        for ends in range(2, len(shape) + 1):  # several dimensions from an end, as of two batches of sequences
            shapes[(*other[:ends], *shape[ends:])] = None
            shapes[(*shape[: len(shape) - ends], *other[len(shape) - ends :])] = None
    distinct = list(dict.fromkeys(size for other in others for size in other if size > 1))
    for pair in product(distinct[:MAX_DISTINCT], repeat=2) if len(shape) > 1 else ():
        shapes[(*shape[:-2], *pair)] = None
    yield from (other for other in shapes if other != shape)


def _sizes(
    shape: Shape, others: Sequence[Shape], numbers: Sequence[tuple[int, ...]]
) -> Iterator[Iterable[tuple[int, int]]]:
    """Yield sizes for dimensions, by their indices: those of other operands at the same place, sizes that match
    integers of the call, then any size of another operand.
    """
    places = range(len(shape) - 1, -1, -1)
    for other in others:
        yield ((i, other[i - len(shape)]) for i in places if len(other) >= len(shape) - i)
        yield ((i, other[i]) for i in places if i < len(other))
    for group in numbers:
        yield from _even_sizes(shape, group)
    yield ((i, size) for i in places for other in others for size in reversed(other) if size > 1)


def _even_sizes(shape: Shape, group: tuple[int, ...]) -> Iterator[Iterable[tuple[int, int]]]:
    """Yield sizes with which a tensor has as many elements as the numbers' product, or a multiple, or as many items."""
    places, elements = range(len(shape) - 1, -1, -1), math.prod(shape)
    wanted = math.prod(number for number in group if number > 0)
    if elements and -1 not in group:
        yield ((i, wanted * shape[i] // elements) for i in places if wanted * shape[i] % elements == 0)
    if elements and wanted > 1 and elements % wanted:
        yield ((i, shape[i] * (wanted // math.gcd(elements, wanted))) for i in places)
    if len(group) > 1:
        yield ((i, sum(group)) for i in places)
    yield ((i, number) for i in places for number in group if number > 1)


def _numbers(call: FailedCall) -> Iterator[tuple[int, ...]]:
    """Yield the integers among the arguments of a call: those of a list together, then each by itself."""
    values = [*call.args, *call.kwargs.values()]
    plain = tuple(size_hint(value) for value in values if _is_number(value))
    if len(plain) > 1:
        yield plain
    for value in values:
        leaves = tree_leaves(value) if isinstance(value, (list, tuple)) else []
        if leaves and all(map(_is_number, leaves)):
            yield tuple(map(size_hint, leaves))
    yield from ((number,) for number in plain)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)
