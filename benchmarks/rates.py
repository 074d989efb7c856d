"""Measures the `Rates` of a GPU that the estimates of kernels use: `fx_lsp/codegen/schedule/estimate.py`.

    python benchmarks/rates.py

Each is the best of several runs of one small Triton kernel, in a CUDA graph.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import triton
import triton.language as tl

ELEMENTS = 1 << 28


@triton.jit
def empty_kernel(out_ptr):
    tl.store(out_ptr, 0.0)


@triton.jit
def copy_kernel(x_ptr, out_ptr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """Copies elements that are STEP apart."""
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * STEP
    tl.store(out_ptr + at, tl.load(x_ptr + at))


@triton.jit
def column_sum_kernel(x_ptr, out_ptr, ROWS, COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums columns, 32 rows in each iteration."""
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([32, BLOCK], tl.float32)
    for start in tl.range(0, ROWS, 32, num_stages=3):
        total += tl.load(x_ptr + (start + tl.arange(0, 32)[:, None]) * COLS + cols)
    tl.store(out_ptr + cols, tl.sum(total, axis=0, keep_dims=True))


@triton.jit
def arithmetic_kernel(x_ptr, out_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """Applies dependent additions and products to each element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    for _ in tl.static_range(STEPS):
        x = (x + 1.5) * x
    tl.store(out_ptr + at, x)


def seconds(call: Callable[[], object], calls: int = 10) -> float:
    """The time of a call in a CUDA graph of several: the best of five medians."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    medians: list[float] = []
    for _ in range(5):
        times: list[float] = []
        for _ in range(10):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / calls / 1e3)
        medians.append(statistics.median(times))
    return min(medians)


def main() -> None:
    x, out = (torch.rand(ELEMENTS, device="cuda") for _ in range(2))
    half, half_out = (torch.rand(ELEMENTS, device="cuda").bfloat16() for _ in range(2))
    launch = seconds(lambda: empty_kernel[(1,)](out))
    whole = seconds(lambda: copy_kernel[(ELEMENTS // 1024,)](x, out, STEP=1, BLOCK=1024))
    print(torch.cuda.get_device_name())
    print(f"launch      {launch * 1e6:8.2f} µs")
    print(f"bytes       {8 * ELEMENTS / whole / 1e12:8.2f} TB/s")
    for step in (2, 4, 8, 16):
        count = ELEMENTS // step
        time = seconds(
            lambda count=count, step=step: copy_kernel[(count // 1024,)](half, half_out, STEP=step, BLOCK=1024)
        )
        print(f"requests    {2 * count / time / 1e12:8.3f} T/s, {step} elements apart")
    for programs in (1, 16, 132):
        rows, cols = 1 << 14, programs * 64
        time = seconds(lambda rows=rows, cols=cols: column_sum_kernel[(cols // 64,)](x, out, rows, COLS=cols, BLOCK=64))
        print(f"iteration   {time / (rows / 32) * 1e6:8.3f} µs with {programs} programs")
    steps, count = 256, 1 << 24
    time = seconds(lambda: arithmetic_kernel[(count // 1024,)](x, out, STEPS=steps, BLOCK=1024))
    print(f"operations  {2 * steps * count / time / 1e12:8.2f} T/s")


if __name__ == "__main__":
    main()
