"""Convert samples to timings and warnings. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles

from fx_lsp.measured import CLOCKS, Ceilings, Clock, Cost, Timing

MIN_MILLISECONDS = 0.005
"""Milliseconds below which the clock and the launch dominate the kernel."""
NOISY = 0.3
"""The largest spread of the middle 80 % of samples, relative to the median."""
DRIFT = 0.1
"""The largest relative difference of a second measurement to the first."""
OVER = 1.05
"""The factor up to which a result may exceed a measured ceiling."""


def timing(first: Sequence[float], second: Sequence[float]) -> Timing | None:
    """Return two measurements of the same, in milliseconds, as one timing; None if one is empty."""
    if not first or not second:
        return None
    tenths = quantiles(first, n=10, method="inclusive") if len(first) > 1 else [first[0]] * 9
    return Timing(median(first), tenths[0], tenths[-1], median(second), len(first) + len(second))


def compared(timings: Mapping[str, Timing]) -> Clock | None:
    """Return the clock to compare by: the first available one."""
    return next((clock for clock in CLOCKS if clock in timings), None)


def fractions(
    timings: Mapping[str, Timing], cost: Cost | None, ceilings: Ceilings | None
) -> tuple[float | None, float | None]:
    """Return the fractions of the copy bandwidth and of the matrix products' rate that the needed bytes and operations
    reach.
    """
    clock = compared(timings)
    if cost is None or ceilings is None or clock is None or clock == "wall":
        return None, None
    seconds = timings[clock].median / 1e3
    if seconds <= 0:
        return None, None
    bandwidth = cost.bytes / seconds / ceilings.copy_bytes_per_second
    rate = cost.flops / seconds / ceilings.matmul_flops_per_second if cost.flops else None
    return bandwidth, rate


def warnings(timings: Mapping[str, Timing], bandwidth: float | None, rate: float | None) -> tuple[str, ...]:
    """Return sentences on why timings may mislead."""
    doubts: list[str] = []
    for clock, time in timings.items():
        if time.median <= 0:
            doubts.append(f"{clock}: no time passed, so no work ran.")
            continue
        if time.median < MIN_MILLISECONDS:
            doubts.append(f"{clock}: {time.median * 1e3:.1f} µs is too short to be measured well; use larger inputs.")
        spread = (time.high - time.low) / time.median
        if spread > NOISY:
            doubts.append(f"{clock}: too noisy, the middle 80 % of samples span {spread:.0%} of the median.")
        drift = abs(time.again - time.median) / time.median
        if drift > DRIFT:
            doubts.append(f"{clock}: a second measurement differs by {drift:.0%}.")
    if bandwidth is not None and bandwidth > OVER:
        doubts.append(
            f"Faster than the GPU can copy what it reads and writes ({bandwidth:.2f} of the bandwidth): the data "
            "stayed in the cache, or only part of it is used."
        )
    if rate is not None and rate > OVER:
        doubts.append(f"Faster than the GPU multiplies matrices ({rate:.2f} of the rate): some products are skipped.")
    return tuple(doubts)
