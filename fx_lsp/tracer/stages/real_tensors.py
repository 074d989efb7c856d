"""Create real tensors on the CPU in place of fake ones, to run a graph with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fx_lsp.tracer.run.values.symbols import size_hint

MAX_BYTES = 1 << 30
"""The most bytes of the values of a graph that is run."""

Fill = Callable[[list[int], torch.dtype], torch.Tensor]
"""Creates a tensor of some sizes and a dtype."""


def _fill(floats: Callable[[list[int]], torch.Tensor], low: int, high: int) -> Fill:
    def fill(sizes: list[int], dtype: torch.dtype) -> torch.Tensor:
        if dtype is torch.bool:
            return torch.randint(0, 2, sizes).bool()
        if dtype.is_floating_point or dtype.is_complex:
            return floats(sizes).to(dtype)
        return torch.randint(low, high, sizes).to(dtype)

    return fill


RANDOM = _fill(torch.randn, 0, 2)
"""Floats around zero, and integers small enough to be valid indices."""

FILLS: tuple[Fill, ...] = (RANDOM, _fill(torch.rand, 0, 1), _fill(torch.rand, 1, 2))
"""Alternatives for operations that reject the previous one's values: zeros as indices, positive floats."""


def real_like(value: Any, fill: Fill) -> Any:
    """Return a real tensor with the sizes and strides of a fake one, and the same values for any strides.

    A symbolic size becomes its number; a non-tensor is unchanged.
    """
    if isinstance(value, torch.SymInt):
        return size_hint(value)
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = [size_hint(s) for s in value.shape], [size_hint(s) for s in value.stride()]
    with torch.no_grad():
        if any(size > 1 and stride == 0 for size, stride in zip(sizes, strides, strict=True)):
            once = [1 if stride == 0 else size for size, stride in zip(sizes, strides, strict=True)]
            return fill(once, value.dtype).expand(sizes)
        return torch.empty_strided(sizes, strides, dtype=value.dtype).copy_(fill(sizes, value.dtype))


def bytes_of(value: Any) -> int:
    """Return the bytes of the tensors of a node; views count as copies."""
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(value, torch.Tensor):
        return 0
    count = value.element_size()
    for size in value.shape:
        count *= size_hint(size)
    return count
