"""Waiting for a condition, and for processes."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


async def until(condition: Callable[[], T], seconds: float = 600) -> T:
    """Wait until a condition holds, and return what it gave."""
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, "it did not come to hold"
        await asyncio.sleep(0.005)
    return found


def is_running(pid: int | str) -> bool:
    """Return whether a process is there and has not ended; Linux keeps one that has as a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
