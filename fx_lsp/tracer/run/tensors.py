"""Convert tensors to specs, and specs to fake tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from fx_lsp.specs import DTYPES, SHORT_NAMES, TensorSpec
from fx_lsp.tracer.run.values.symbols import expressions, scalar_text

MAX_ITEMS = 8


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Return the spec of one tensor; strides only if it is not contiguous, the device only if it is not the CPU."""
    sizes = _numbers(tensor.shape)
    strides = None
    if tensor.layout is torch.strided and not _is_contiguous(tensor, sizes):
        strides = _numbers(tensor.stride())
    device = None if tensor.device.type in ("cpu", "meta") else str(tensor.device).removesuffix(":0")
    return TensorSpec(short_name(tensor.dtype), sizes, strides, device)


def _numbers(sizes: Iterable[Any]) -> tuple[int | str, ...]:
    return tuple(s if type(s) is int else scalar_text(s) or int(s) for s in sizes)


def _is_contiguous(tensor: torch.Tensor, sizes: tuple[int | str, ...]) -> bool:
    if not any(isinstance(s, str) for s in sizes):
        return tensor.is_contiguous()
    expected: Any = 1  # evaluating symbolic sizes may fix them
    for size, stride in reversed(list(zip(expressions(tensor.shape), expressions(tensor.stride()), strict=True))):
        if size != 1 and stride != expected:
            return False
        expected = expected * size
    return True


def short_name(dtype: torch.dtype) -> str:
    """Return `f32` for `torch.float32`; the long name if FX has no short one."""
    long = str(dtype).removeprefix("torch.")
    return SHORT_NAMES.get(long, long)


def describe(value: Any, depth: int = 3) -> str | None:
    """Return a value that contains tensors as text (`(f32[2], f32[2])`, `{'a': f32[2]}`), or None without tensors."""
    if not _holds_tensor(value, depth):
        return None
    return _describe(value, depth)


def _holds_tensor(value: Any, depth: int) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    return depth > 0 and any(_holds_tensor(v, depth - 1) for v in _items(value).values())


def _items(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(k): v for k, v in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, (list, tuple)):
        return {str(i): v for i, v in enumerate(value[:MAX_ITEMS])}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)[:MAX_ITEMS]}
    return {}


def _describe(value: Any, depth: int) -> str:
    if isinstance(value, torch.Tensor):
        return str(spec_of(value))
    if isinstance(value, (Mapping, list, tuple)):
        return _describe_collection(value, depth)
    attributes = {k: _describe(v, depth - 1) for k, v in _items(value).items()} if depth > 0 else {}
    if attributes:
        shown = (f"{name}={text}" for name, text in attributes.items() if text != "None")
        return f"{type(value).__name__}({', '.join(shown)})"
    if (symbolic := scalar_text(value)) is not None:
        return symbolic
    return repr(value) if isinstance(value, (int, float, bool, str, type(None))) and len(repr(value)) < 40 else "..."


def _describe_collection(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], depth: int) -> str:
    opening, closing = "{}" if isinstance(value, Mapping) else "()" if isinstance(value, tuple) else "[]"
    if depth <= 0 and value:
        return f"{opening}...{closing}"
    items = {k: _describe(v, depth - 1) for k, v in _items(value).items()} if depth > 0 else {}
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in items.items()) + "}"
    inside = [*items.values(), *(["..."] if len(value) > MAX_ITEMS else [])]
    is_single = isinstance(value, tuple) and len(value) == 1
    return f"{opening}{', '.join(inside)}{',' if is_single else ''}{closing}"


def make_tensor(spec: TensorSpec, sizes: Mapping[str, Any] | None = None) -> torch.Tensor:
    """Return an uninitialized tensor of that spec; call it inside a fake mode.

    `sizes` has the values of named sizes. Raises RuntimeError for impossible strides or devices.
    """
    dtype: torch.dtype = getattr(torch, DTYPES[spec.dtype])
    named = sizes or {}
    shape, strides = ([named[s] if isinstance(s, str) else s for s in g] for g in (spec.sizes, spec.strides or ()))
    device = spec.device or "cpu"
    if spec.strides is not None:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)
    return torch.empty(shape, dtype=dtype, device=device)
