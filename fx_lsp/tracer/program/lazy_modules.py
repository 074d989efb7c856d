"""Create fake parameters and buffers whose size the first call decides (`nn.LazyLinear`)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from fx_lsp.tracer.compat import FakeTensor

_ALLOWED: list[Any] = getattr(UninitializedParameter, "_allowed_methods")  # noqa: B009


class FakeUninitializedParameter(UninitializedParameter, FakeTensor):
    """An uninitialized parameter that becomes a fake one."""

    cls_to_become = FakeTensor
    shape = torch.Tensor.shape  # the mode itself reads it, and observers of calls the rest
    _allowed_methods: ClassVar[list[Any]] = [*_ALLOWED, torch.Tensor.dim, torch.Tensor.is_contiguous]


class FakeUninitializedBuffer(UninitializedBuffer, FakeTensor):
    """An uninitialized buffer that becomes a fake one."""

    cls_to_become = FakeTensor
    shape = torch.Tensor.shape
    _allowed_methods: ClassVar[list[Any]] = FakeUninitializedParameter._allowed_methods


FakeUninitializedParameter.__name__ = UninitializedParameter.__name__
FakeUninitializedBuffer.__name__ = UninitializedBuffer.__name__


@contextmanager
def lazy_tensors() -> Generator[None, None, None]:
    """Make uninitialized parameters and buffers fake inside a fake mode; torch cannot create such."""
    new_parameter, new_buffer = UninitializedParameter.__new__, UninitializedBuffer.__new__

    def parameter(cls: Any, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        empty = torch.empty(0, device=device, dtype=dtype)
        if not isinstance(empty, FakeTensor):
            return new_parameter(cls, requires_grad, device, dtype)
        lazy: Any = empty
        lazy.requires_grad_(requires_grad)
        lazy._is_param = True
        lazy.__class__ = FakeUninitializedParameter
        return lazy

    def buffer(
        cls: Any, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ) -> Any:
        empty = torch.empty(0, device=device, dtype=dtype)
        if not isinstance(empty, FakeTensor):
            return new_buffer(cls, requires_grad, device, dtype, persistent)
        lazy: Any = empty
        lazy.persistent, lazy._is_buffer = persistent, True
        lazy.__class__ = FakeUninitializedBuffer
        return lazy

    UninitializedParameter.__new__, UninitializedBuffer.__new__ = parameter, buffer
    try:
        yield
    finally:
        UninitializedParameter.__new__, UninitializedBuffer.__new__ = new_parameter, new_buffer
