"""Limit a process that runs code in the background of an editor, and answers nothing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from fx_lsp.sandbox import confinement
from fx_lsp.sandbox.system_calls import prctl

NICENESS = 10
"""The niceness of the process: the editor comes first."""


def end_with_parent() -> None:
    """Make Linux end this process with the one that started it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_PR_SET_PDEATHSIG = 1


def begin(scratch: str, reads: Sequence[str], programs: Sequence[str]) -> None:
    """Confine this process before its imports: it writes only to `scratch`."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    confinement.begin(scratch, confinement.Allowance(tuple(reads), tuple(programs)))


def enter(roots: Sequence[str], file: str) -> None:
    """Confine this process to what the code of a file reads, after its imports."""
    confinement.enter(roots, file)
    confinement.leave_no_processes()


def limit_memory(growth: int) -> None:
    """Limit the memory that this process may use besides the present, in bytes, if the system can (Linux)."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as stream:
            size = int(stream.read().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        bounds = [bound for bound in (size + growth, soft, hard) if bound != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))


def is_out_of_memory(error: Exception) -> bool:
    """Return True if an exception means that there is not enough memory."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)
