"""Provide the CPU and CUDA devices for benchmarks.

The functions of torch and time for measuring are bound when this module is imported, before any file is loaded: later
replacements by a file have no effect.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

import torch

from fx_lsp.measured import Clock

now = perf_counter_ns
_Event = torch.cuda.Event
_record = torch.cuda.Event.record
_elapsed = torch.cuda.Event.elapsed_time
_synchronize = torch.cuda.synchronize
_CYCLES = 2e9
"""The approximate clock cycles per second of a current card."""
_MIN_CACHE_BYTES = 64 << 20


@dataclass(frozen=True)
class Device:
    """Describe the device of variants. `synchronize` waits for all streams; `cache` is the size of the L2 cache in
    bytes.
    """

    kind: str
    clocks: tuple[Clock, ...]
    synchronize: Callable[[], None]
    cache: int


def device(kind: str) -> Device:
    """Return the device "cuda" or "cpu". Work on a GPU uses a capturable stream from then on."""
    if kind == "cpu":
        return Device("cpu", ("wall",), _nothing, 0)
    torch.cuda.set_stream(torch.cuda.Stream())  # autograd remembers streams, and the default one cannot be captured
    size = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    return Device("cuda", ("events", "wall", "graph"), _synchronize, max(size, _MIN_CACHE_BYTES))


def event() -> torch.cuda.Event:
    """Return a timing event, not yet recorded."""
    return _Event(enable_timing=True)


def record(mark: torch.cuda.Event) -> None:
    """Record an event in the current stream."""
    _record(mark)


def elapsed(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    """Return the milliseconds between two completed events."""
    return _elapsed(start, end)


def wait(where: Device, seconds: float) -> None:
    """Block the current stream for about that long, so that calls launched meanwhile run without gaps."""
    sleep = getattr(torch.cuda, "_sleep", None)
    if where.kind == "cuda" and sleep is not None:
        sleep(int(seconds * _CYCLES))


def free_bytes(where: Device) -> int:
    """Return the available memory in bytes."""
    if where.kind == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 2 << 30


def _nothing() -> None:
    pass
