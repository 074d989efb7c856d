"""The CPU and CUDA devices as a benchmark uses them.

The functions of torch and time that measure are taken when this module is imported, before any file is loaded: what a
file replaces later does not count.
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
"""In a second, on a card of today."""
_MIN_CACHE_BYTES = 64 << 20


@dataclass(frozen=True)
class Device:
    """Where variants run. `synchronize` waits for all streams; `cache` is the size of the L2 cache in bytes."""

    kind: str
    clocks: tuple[Clock, ...]
    synchronize: Callable[[], None]
    cache: int


def device(kind: str) -> Device:
    """Return the device "cuda" or "cpu". Work on a GPU goes to a stream that can be captured from then on."""
    if kind == "cpu":
        return Device("cpu", ("wall",), _nothing, 0)
    torch.cuda.set_stream(torch.cuda.Stream())  # autograd remembers streams, and the default one cannot be captured
    size = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    return Device("cuda", ("events", "wall", "graph"), _synchronize, max(size, _MIN_CACHE_BYTES))


def event() -> torch.cuda.Event:
    """Return an event for the time, not yet recorded."""
    return _Event(enable_timing=True)


def record(mark: torch.cuda.Event) -> None:
    """Have the current stream record an event when it gets there."""
    _record(mark)


def elapsed(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
    """Return the milliseconds between two events that have both happened."""
    return _elapsed(start, end)


def wait(where: Device, seconds: float) -> None:
    """Have the current stream do nothing for about so long, so that what is launched meanwhile runs without gaps."""
    sleep = getattr(torch.cuda, "_sleep", None)
    if where.kind == "cuda" and sleep is not None:
        sleep(int(seconds * _CYCLES))


def free_bytes(where: Device) -> int:
    """Return how much memory can still be had."""
    if where.kind == "cuda":
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 2 << 30


def _nothing() -> None:
    pass
