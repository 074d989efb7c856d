"""Fix four bugs of Triton's interpreter, under which kernels run without a GPU, and give it the library of a GPU.

Importing this enables Triton's interpreter, so it comes before any kernel.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportMissingTypeStubs=false, reportMissingImports=false

from __future__ import annotations

import os
from functools import partial
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

_LIBRARY = {
    **{name: getattr(torch, name) for name in ("trunc", "log1p", "expm1", "tanh", "sinh", "asinh", "acosh", "atanh")},
    **{name: getattr(torch, name) for name in ("asin", "acos", "atan", "atan2", "hypot", "copysign", "fmod", "pow")},
    **{name: getattr(torch, name) for name in ("erfc", "lgamma", "erfinv", "nextafter", "signbit")},
    "rint": torch.round,
    "erfcx": torch.special.erfcx,
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
}
"""The functions of a GPU's library that kernels call, in PyTorch."""


def repair() -> None:
    """Make reductions with the kernel's own functions fast, comparisons of scalars booleans, and bfloat16 products and
    rounding correct; parts that differ in another version of Triton are not changed.
    """
    for owner, method, mended in (
        ("ReduceOps", "generic_reduce", _reduce),
        ("InterpreterBuilder", "create_splat", _splat),
        ("InterpreterBuilder", "create_dot", _dot),
        ("InterpreterBuilder", "create_fp_trunc", _truncated),
    ):
        if hasattr(getattr(interpreter, owner, None), method):
            setattr(getattr(interpreter, owner), method, mended)
    for name, function in _LIBRARY.items():
        setattr(libdevice, name, partial(_elementwise, function))


def _elementwise(function: Any, *operands: Any) -> Any:
    """Return the result of a function of the library."""
    arrays = [torch.from_numpy(np.ascontiguousarray(_data(operand))) for operand in operands]
    result = function(*arrays).numpy()
    dtype = operands[0].dtype if result.dtype.kind == "f" else tl.int1
    shape = max((operand.shape for operand in operands), key=len)
    return tl.tensor(interpreter.TensorHandle(result, dtype.scalar), tl.block_type(dtype, shape) if shape else dtype)


def _reduce(self: Any, values: Any) -> list[Any]:
    """Combine neighbours until one is left: a few calls on arrays, where Triton makes one for each element."""
    whole, (parts, axis) = self.axis is None, self.unravel(values, self.axis)
    dtypes = [p.dtype for p in parts]
    arrays = [np.moveaxis(p.handle.data, axis, 0) for p in parts]
    while (length := len(arrays[0])) > 1:
        even = length - length % 2
        halves = [[self.to_tensor(a[i:even:2], d) for a, d in zip(arrays, dtypes, strict=True)] for i in (0, 1)]
        reduced = self.combine_fn.fn(*halves[0], *halves[1])
        combined = [_data(f) for f in (reduced if isinstance(reduced, tuple) else (reduced,))]
        arrays = [np.concatenate([c, a[even:]]) for c, a in zip(combined, arrays, strict=True)]
    kept = [a[0] for a in arrays]
    if self.keep_dims:
        rank = len(values[0].handle.data.shape)
        kept = [np.expand_dims(k, list(range(rank)) if whole else axis) for k in kept]
    return [self.to_tensor(k, d) for k, d in zip(kept, dtypes, strict=True)]


def _dot(self: Any, a: Any, b: Any, d: Any, precision: Any, most_imprecise: Any) -> Any:
    """Compute products in float32, like a GPU; Triton's interpreter reads the bits of bfloat16 as integers."""
    left, right = (_float32(side) for side in (a, b))
    return interpreter.TensorHandle(np.matmul(left, right).astype(d.data.dtype) + d.data, d.dtype.scalar)


def _float32(side: Any) -> Any:
    if side.dtype.scalar == tl.bfloat16:
        return (side.data.astype(np.uint32) << 16).view(np.float32)
    return side.data.astype(np.float64 if side.data.dtype == np.float64 else np.float32)


def _truncated(self: Any, source: Any, type_: Any) -> Any:
    """Convert numbers to a smaller type; Triton's interpreter truncates to bfloat16 where a GPU rounds to nearest."""
    if (source.dtype.scalar, type_.scalar) != (tl.float32, tl.bfloat16):
        return self.cast_impl(source, type_)
    bits = source.data.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return interpreter.TensorHandle(np.where(np.isnan(source.data), np.uint16(0x7FC0), rounded), tl.bfloat16)


def _data(value: Any) -> Any:
    return value.handle.data if isinstance(value, tl.tensor) else np.asarray(value)


def _splat(self: Any, type_: Any, value: Any) -> Any:
    data = value.data[0] if isinstance(value.dtype, tl.block_type) else value.data
    return interpreter.TensorHandle(np.full(type_.shape, data, dtype=value.data.dtype), value.dtype.scalar)
