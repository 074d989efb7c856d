"""Limit a process that runs code of a workspace: it ends with its parent, and its memory is bounded."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from fx_lsp.sandbox.system_calls import prctl

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends (Linux; elsewhere closing channels must do)."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


class memory_limit:
    """Bound the growth of this process's address space (bytes), where the platform can; lifted again at exit."""

    def __init__(self, growth: int | None) -> None:
        self._growth = growth
        self._before: tuple[int, int] | None = None

    def __enter__(self) -> None:
        try:
            import resource
        except ImportError:
            return
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            with open("/proc/self/statm", encoding="ascii") as stream:
                size = int(stream.read().split()[0]) * resource.getpagesize()
            self._before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            if self._growth is not None:
                wanted = size + self._growth
                bounds = [b for b in (soft, hard) if b != resource.RLIM_INFINITY]
                resource.setrlimit(resource.RLIMIT_AS, (min([wanted, *bounds]), hard))

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            import resource

            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_AS, self._before)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an exception means that there is not enough memory."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)
