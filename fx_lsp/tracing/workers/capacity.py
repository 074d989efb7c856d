"""Measure the work that this machine can do at the same time."""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def parallel_traces(bytes_each: int) -> int:
    """Return how many traces that take `bytes_each` may run at once.

    That is one for each core that this process may use, no more than fit into the free memory, and at least one.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = available_memory()
    return max(1, cores if memory is None else min(cores, memory // bytes_each))


def available_memory() -> int | None:
    """Bytes that can be had without swapping, a container's limit counted; half of the memory where only its size is
    known, None where the platform does not say."""
    sizes = [size for size in (_machine(), _container()) if size is not None]
    return min(sizes, default=None)


def _machine() -> int | None:
    try:
        return _table(_MEMINFO)["MemAvailable"] * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return None


def _container() -> int | None:
    try:
        limit, used = (int((_CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        return max(limit - used + _table(_CGROUP / "memory.stat")["inactive_file"], 0)
    except (OSError, KeyError, ValueError):
        return None


def _table(file: Path) -> dict[str, int]:
    """Return the numbers of a file of lines like `MemAvailable:  1024 kB`."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1}
