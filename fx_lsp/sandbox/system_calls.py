"""Call the kernel: system calls by number, with an error as an OSError (Linux)."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Any

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITIES_VERSION, _CAP_DAC_READ_SEARCH = 0x20080522, 2


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
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up what root may do besides reading files, which Landlock limits: others' environments and memory are
    readable with a capability, whatever Landlock says. Raises OSError.
    """
    for capability in range(64):
        if capability != _CAP_DAC_READ_SEARCH:
            with suppress(OSError):  # there are fewer, or they are dropped already
                prctl(_PR_CAPBSET_DROP, capability)
    header, kept = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc().capget(header, kept) == 0:
        kept[:] = [held & 1 << _CAP_DAC_READ_SEARCH if index < 2 else 0 for index, held in enumerate(kept)]
        if libc().capset(header, kept) == 0:
            return
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
