"""Call the kernel: system calls by number, with an error as an OSError (Linux)."""

from __future__ import annotations

import ctypes
import os
from typing import Any

PR_SET_NO_NEW_PRIVS = 38


def libc() -> Any:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: Any) -> int:
    """Make a system call; return its result. Raises OSError."""
    result = libc().syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def prctl(option: int, *arguments: Any) -> None:
    """Change a property of this process. Raises OSError."""
    filled = [*(a if not isinstance(a, int) else ctypes.c_ulong(a) for a in arguments), *[ctypes.c_ulong(0)] * 4][:4]
    if libc().prctl(option, *filled) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def gain_no_privileges() -> None:
    """Have no program that this process starts gain privileges; the kernel asks for it before any confinement."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
