"""Call a variant on several sets of arguments, with new values in every call.

A set keeps its addresses; before each call its tensors get values that no call has had before, so that any result
cached from an earlier call is wrong.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

from fx_lsp.bench.variant.comparison import Function, doubled, tensors_in
from fx_lsp.bench.variant.devices import Device
from fx_lsp.bench.variant.subject import BenchmarkSubject
from fx_lsp.measured import What

_SCALED = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
_MAX_SETS = 16
_SOURCES = 2


@dataclass(frozen=True)
class FillValues:
    """Identify the values of a set of arguments: those of a source, times a number close to 1."""

    source: int
    scale: float


@dataclass
class Arguments:
    """Hold one set: the arguments, all tensors in them, and by name those that require a gradient."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]
    leaves: dict[str, torch.Tensor]


Results = list["torch.Tensor | None"]


class Calls:
    """Hold a function on sets of arguments in rotation. `given` are the gradients of its results, in all calls;
    `writes` is True if the original changes its arguments.
    """

    def __init__(
        self, subject: BenchmarkSubject, function: Function, sets: int, gradients: bool, draw: random.Random
    ) -> None:
        self.subject = subject
        self.function = function
        self._random = draw
        self.sets = [self._arguments() for _ in range(sets)]
        if len({id(t) for a in self.sets for t in a.tensors}) < sum(len(a.tensors) for a in self.sets):
            del self.sets[1:]  # they share a tensor that the original reads itself
        self.given: list[torch.Tensor] = []
        self.writes = _writes(subject, self._arguments())
        if gradients:
            outputs = outputs_of(subject, subject.reference, self.sets[0])
            self.given = [torch.randn_like(t) for t in outputs if t.requires_grad]
        self.renew()

    def renew(self) -> None:
        """Generate new sources of values."""
        self.sources: list[list[torch.Tensor]] = []
        for _ in range(_SOURCES):
            self.sources.append([_whole(t).clone() for t in self._arguments().tensors])

    def draw(self) -> FillValues:
        """Return values that no call has had."""
        return FillValues(self._random.randrange(_SOURCES), 1 + self._random.random() / 8)

    def fill(self, number: int, values: FillValues) -> None:
        """Set the tensors of a set to those values, in place."""
        for tensor, source in zip(self.sets[number].tensors, self.sources[values.source], strict=True):
            _whole(tensor).copy_(source)
            scaled(tensor, values.scale)

    def prepare(self, number: int, what: What) -> list[torch.Tensor]:
        """Return the prerequisites of the call: for backward alone, the results of forward."""
        return outputs_of(self.subject, self.function, self.sets[number]) if what == "backward" else []

    def call(self, number: int, what: What, prepared: list[torch.Tensor], retain: bool = False) -> Results:
        """Run it once; return the results of forward, or the gradients, or both."""
        arguments = self.sets[number]
        if prepared:
            return [*_gradients(prepared, arguments, self.given, retain)]
        return _run(self.subject, self.function, arguments, what, self.given)

    def reference(self, number: int, what: What) -> tuple[Results, Results]:
        """Return the original's results for a set, and those in float64 (empty if that fails)."""
        subject, arguments = self.subject, self.sets[number]
        unchanged = copy.deepcopy((arguments.args, arguments.kwargs))
        right = _run(subject, subject.reference, arguments, what, self.given)
        try:
            wide = tree_map(doubled, unchanged)
            gradients = [doubled(g) for g in self.given]
            return right, _run(subject, subject.reference, described(subject, *wide), what, gradients)
        except (AssertionError, RuntimeError, TypeError, ValueError):
            return right, []  # the original does not support float64, or memory is insufficient

    def names(self, what: What, results: int) -> list[str]:
        """Return the names of a call's results."""
        gradients = [f"gradient of {name}" for name in self.sets[0].leaves] if what != "forward" else []
        outputs = results - len(gradients)
        return [*(["out"] if outputs == 1 else [f"out[{n}]" for n in range(outputs)]), *gradients]

    def _arguments(self) -> Arguments:
        return described(self.subject, *self.subject.make(self._random.randrange(1, 1 << 31)))


def outputs_of(subject: BenchmarkSubject, function: Function, arguments: Arguments) -> list[torch.Tensor]:
    """Return the tensors that a function returns."""
    returned = function(*arguments.args, **arguments.kwargs)
    return [returned] if isinstance(returned, torch.Tensor) else [t for _, t in tensors_in(returned, "out")]


def _run(
    subject: BenchmarkSubject,
    function: Function,
    arguments: Arguments,
    what: What,
    output_gradients: Sequence[torch.Tensor],
) -> Results:
    if what == "forward":
        with torch.no_grad():
            return [*outputs_of(subject, function, arguments)]
    outputs = outputs_of(subject, function, arguments)
    gradients = _gradients(outputs, arguments, output_gradients)
    return [*gradients] if what == "backward" else [*outputs, *gradients]


def _gradients(
    outputs: Sequence[torch.Tensor],
    arguments: Arguments,
    output_gradients: Sequence[torch.Tensor],
    retain: bool = False,
) -> Sequence[torch.Tensor | None]:
    """Return the gradients of arguments; with `retain`, backward can run again."""
    wanted = [t for t in outputs if t.requires_grad]
    leaves = [*arguments.leaves.values()]
    return torch.autograd.grad(wanted, leaves, output_gradients, retain_graph=retain, allow_unused=True)


def _writes(subject: BenchmarkSubject, arguments: Arguments) -> bool:
    """Return True if the original changes arguments."""
    before = [t._version for t in arguments.tensors]
    with torch.no_grad():
        outputs_of(subject, subject.reference, arguments)
    return before != [t._version for t in arguments.tensors]


def described(subject: BenchmarkSubject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Return arguments with their tensors."""
    named = leaves_of(subject, args, kwargs)
    tensors = {id(t): t for t in named.values()}
    return Arguments(args, kwargs, [*tensors.values()], {n: t for n, t in named.items() if t.requires_grad})


def leaves_of(subject: BenchmarkSubject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return all tensors in arguments, by their names in the comparison."""
    bound = subject.signature.bind(*args, **kwargs).arguments
    return {n: t for name, value in bound.items() for n, t in tensors_in(value, name)}


def set_count(subject: BenchmarkSubject, where: Device, memory: int) -> int:
    """Return the number of sets that exceeds the cache and fits in `memory` bytes."""
    args, kwargs = subject.make(1)
    size = max(1, bytes_of(leaves_of(subject, args, kwargs).values()))
    fitting = memory // (3 * size) - _SOURCES
    return max(1, min(_MAX_SETS, fitting, max(2, 1 + 3 * where.cache // size)))


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the memory of tensors, with shared memory counted once."""
    parts = {(t.data_ptr(), t.shape, t.stride()): _whole(t).numel() * t.element_size() for t in tensors}
    return sum(parts.values())


def scaled(tensor: torch.Tensor, scale: float) -> None:
    """Multiply a numeric tensor by a factor, in place."""
    if tensor.dtype in _SCALED:
        _whole(tensor).mul_(scale)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of an expanded tensor, each once, without autograd."""
    return tensor.detach()[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
