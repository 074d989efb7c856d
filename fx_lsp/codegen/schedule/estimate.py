"""Estimate how long kernels take on a GPU, from the work that they do.

The rates are those of an H200, measured by `benchmarks/rates.py`. Only ratios of estimates are used, and other recent
cards have similar ratios.
"""

from __future__ import annotations

from fx_lsp.codegen.ir.kernel import KernelWork

MICROSECOND = 1e-6
MULTIPROCESSORS = 132
LAUNCH = 1.4 * MICROSECOND
"""The seconds of a kernel without work, in a CUDA graph."""
BYTES = 4.2e12
"""The bytes per second between the memory of the GPU and its cache."""
REQUESTS = 0.37e12
"""The requests per second for single elements, four apart."""
OPERATIONS = 29e12
"""The additions per second."""
ITERATION = 0.4 * MICROSECOND
"""The seconds of an iteration of a loop that waits for memory."""
BUSY_WARPS = MULTIPROCESSORS * 8
"""The warps that saturate the memory of the GPU: eight on each multiprocessor."""
MIN_SLOWDOWN = 1.5
"""The least factor between two estimates that is more than their error."""
COMPILED_CALL = 10 * MICROSECOND
"""The seconds that the host takes to call a compiled function: what a region has to save."""
RESIDENT_WARPS = MULTIPROCESSORS * 32
"""The warps that the GPU holds at a time, in kernels with an average number of registers."""
SECTOR = 32
"""The bytes of a memory request: what a warp reads at least for an address."""


def seconds(work: KernelWork) -> float:
    """Return the estimated seconds of a launch."""
    warps = work.programs * work.warps
    idle = max(1.0, BUSY_WARPS / warps)
    waves = max(1.0, warps / RESIDENT_WARPS)
    waiting = work.iterations * ITERATION * waves if work.iterations > 1 else 0.0
    throughput = max(work.moved / BYTES, work.requests / REQUESTS, work.operations / OPERATIONS)
    return LAUNCH + max(throughput * idle, waiting)


def seconds_of_product(operations: int, rate: float, programs: int) -> float:
    """Return the estimated seconds of a matrix product in so many programs, at a rate of operations per second."""
    return LAUNCH + operations / rate * max(1.0, MULTIPROCESSORS / programs)


def seconds_to_move(size: int) -> float:
    """Return the estimated seconds to read or write so many bytes in a kernel of its own."""
    return LAUNCH + size / BYTES


def seconds_of_ideal(work: KernelWork) -> float:
    """Return the estimated seconds of a launch that reads neighbouring elements, with enough programs."""
    throughput = max(work.moved / BYTES, work.moved / SECTOR / REQUESTS, work.operations / OPERATIONS)
    return LAUNCH + throughput


def gain(work: KernelWork) -> float:
    """Return the estimated seconds that Inductor saves, 0.0 unless a kernel takes `MIN_SLOWDOWN` times an ideal one.

    A `sequential` kernel has no ideal.
    """
    ours, ideal = seconds(work), seconds_of_ideal(work)
    return 0.0 if work.sequential or ours < MIN_SLOWDOWN * ideal else ours - ideal
