"""Tell the bytes that operations allocate inside on a GPU, beside their results.

The multiprocessors are those of Hopper. What cuDNN allocates in a convolution depends on the algorithm that it chooses
on the GPU, and is not told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

CUBLAS_BYTES = 32 << 20
"""The workspace of cuBLAS in each thread that multiplies matrices, for Hopper: `parseChosenWorkspaceSize` of PyTorch's
CublasHandlePool.cpp. Earlier GPUs have 8.1 MiB.
"""
MULTIPROCESSORS, THREADS_OF_EACH = 132, 2048
_aten = torch.ops.aten
OF_CUBLAS = frozenset({_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten._scaled_mm})
"""Operations of cuBLAS."""
_REDUCTIONS = frozenset({_aten.sum, _aten.mean, _aten.amax, _aten.amin})

# The constants of `ReduceConfig` in PyTorch's Reduce.cuh.
_MAX_THREADS, _WARP, _MAX_VECTOR = 512, 32, 4
_LEAST_VALUES, _MOST_VALUES = 16, 256


def reduction_bytes(operation: Any, args: Sequence[Any], result: Tensor) -> int:
    """Return the bytes in which the blocks of a reduction pass on what each has computed; 0 for other operations, and
    if no block needs the values of another.
    """
    data = args[0] if args else None
    if operation not in _REDUCTIONS or not isinstance(data, Tensor) or not (data.dim() and data.numel()):
        return 0
    dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
    reduced = {dim % data.dim() for dim in dims} or set(range(data.dim()))
    innermost = min((dim for dim in range(data.dim()) if data.shape[dim] > 1), key=data.stride, default=0)
    outputs = result.numel()
    values = _staged(outputs, data.numel() // outputs, innermost in reduced, data.shape[innermost])
    return values * (8 if data.dtype in (torch.float64, torch.int64) else 4)


def _staged(outputs: int, inputs: int, along_rows: bool, row: int) -> int:
    """Return the number of values that blocks pass on for so many outputs of so many inputs each: `along_rows` if the
    innermost dimension is reduced, of size `row` if it is not. It is `setReduceConfig` of Reduce.cuh.
    """
    vector = 1
    while not along_rows and vector < _MAX_VECTOR and row % (2 * vector) == 0:
        vector *= 2
    first, second = (inputs, outputs) if along_rows else (outputs // vector, inputs)
    if along_rows and outputs == 1 and inputs >= 128:
        first //= _MAX_VECTOR
    threads = _MAX_THREADS // vector
    widest, highest = _power_of_two(min(first, threads)), _power_of_two(min(second, threads))
    height = min(highest, threads // min(widest, _WARP))
    width = min(widest, threads // height)
    step, outputs_of_block = (width, 1) if along_rows else (1, width)
    if -(-inputs // step) < min(height * 16, _MOST_VALUES):
        return 0  # each output has its own warp
    values = -(-inputs // (step * height))
    grid = -(-(outputs // vector) // outputs_of_block)
    target = MULTIPROCESSORS * (THREADS_OF_EACH // (width * height))
    if values < _MOST_VALUES or grid > target:
        return 0
    blocks = max(min(-(-target // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    return 0 if blocks < 2 else outputs * blocks * (1 if along_rows else width * vector)


def _power_of_two(number: int) -> int:
    """Return the largest power of two that is not larger than a number, at least 1."""
    return 1 << max(number.bit_length() - 1, 0)
