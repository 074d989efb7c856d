"""Generate random values for tensors without any, for code that needs some to continue.

They are the same in each run of a target: those of an input depend on its name, those of an operation's result on the
number of earlier ones in the run; tensors that a run finds, such as parameters, keep those of the first run.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._mode_utils import no_dispatch
from torch.utils.flop_counter import flop_registry

MAX_ELEMENTS = 1 << 24
"""The most random values of a tensor; a larger one has none."""
MAX_FLOPS = 2_000_000_000
"""The result of an operation with more floating-point operations is random, too."""


@dataclass
class Draws:
    """Count the tensors without values that runs found."""

    held: int = 0


@contextmanager
def drawing() -> Generator[None, None, None]:
    """Generate random values for tensors without any inside."""
    token = _draws.set(Draws())
    try:
        yield
    finally:
        _draws.reset(token)


@contextmanager
def drawing_nothing() -> Generator[None, None, None]:
    """Generate no values inside, and treat random ones as unknown."""
    token = _draws.set(None)
    try:
        yield
    finally:
        _draws.reset(token)


def current_draws() -> Draws | None:
    """Return the active counter; None if no values are random."""
    return _draws.get()


_draws: ContextVar[Draws | None] = ContextVar("draws", default=None)


@contextmanager
def plainly() -> Generator[None, None, None]:
    """Compute inside without fake tensors and without capture."""
    captured = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
    with no_dispatch(), torch._C.DisableTorchFunction(), torch._C._ExcludeDispatchKeyGuard(captured):
        yield


def numbers_of_input(path: str, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return random values of an input, around zero."""
    return _drawn(torch.randn, zlib.crc32(path.encode()), sizes, dtype)


def numbers_of_result(seed: int | None, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return random values of an operation's result, around zero; without a seed they are zero."""
    if seed is None:
        with plainly():
            return torch.zeros(sizes, dtype=dtype)
    return _drawn(torch.randn, seed, sizes, dtype)


def numbers_of_held(draws: Draws, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Return random values of a tensor that a run finds: weights by their fan-in, others around one."""
    draws.held += 1
    floats = _weights if isinstance(tensor, nn.Parameter) and len(sizes) > 1 else _around_one
    return _drawn(floats, -draws.held, sizes, tensor.dtype)


def _weights(sizes: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(sizes, generator=generator) * (1 / math.sqrt(max(math.prod(sizes[1:]), 1)))


def _around_one(sizes: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(sizes, generator=generator) + 0.5


def takes_long(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> bool:
    """Return True for an operation that is too expensive to compute for its values."""
    formula = flop_registry.get(func.overloadpacket)
    return formula is not None and formula(*args, **kwargs, out_val=result) > MAX_FLOPS


def _drawn(floats: Callable[..., torch.Tensor], seed: int, sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return random values, the same for a seed: those of `floats`, or zeros and ones for integers."""
    generator = torch.Generator().manual_seed(seed)
    with plainly():
        if dtype.is_floating_point or dtype.is_complex:
            return floats(sizes, generator=generator).to(dtype)
        return torch.randint(0, 2, sizes, generator=generator).to(dtype)
