"""Restrict this process and all that it starts to some files, by Landlock (Linux 5.13 or newer).

A process can restrict itself several times: what it may do is what each time allows. Restrictions are never lifted.
See https://docs.kernel.org/userspace-api/landlock.html for the numbers.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from enum import IntFlag

from fx_lsp.sandbox.system_calls import call, gain_no_privileges

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ONLY_VERSION = 1
_PATH_BENEATH = 1
NO_TRUNCATION, NO_CONNECTIONS, NO_SIGNALS = 3, 4, 6
"""The versions of Landlock from which on it knows of truncated files, TCP connections, and signals."""


class FileAccess(IntFlag):
    """What a process may do to files below a path."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = FileAccess.READ_FILE | FileAccess.READ_DIR
WRITE = FileAccess(sum(access for access in FileAccess if access not in READ | FileAccess.EXECUTE))
_OF_FILES = (
    FileAccess.EXECUTE | FileAccess.WRITE_FILE | FileAccess.READ_FILE | FileAccess.TRUNCATE | FileAccess.IOCTL_DEV
)
_SINCE = {2: FileAccess.REFER, NO_TRUNCATION: FileAccess.TRUNCATE, 5: FileAccess.IOCTL_DEV}
_CONNECT_AND_BIND = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """Return the version of the kernel's Landlock; 0 without it."""
    try:
        return call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ONLY_VERSION))
    except (OSError, AttributeError):
        return 0


def restrict(handled: FileAccess, allowed: Iterable[tuple[str, FileAccess]]) -> None:
    """Deny the `handled` accesses to files, but for those `allowed` at and below some paths; deny TCP connections and
    signals to other processes as far as the kernel can. Paths that do not exist are skipped. Raises OSError.
    """
    abi = version()
    for since, access in _SINCE.items():
        handled = handled if abi >= since else handled & ~access
    network = _CONNECT_AND_BIND if abi >= NO_CONNECTIONS else 0
    scoped = _ABSTRACT_SOCKETS_AND_SIGNALS if abi >= NO_SIGNALS else 0
    size = 24 if scoped else 16 if network else 8
    gain_no_privileges()
    attributes = _Ruleset(handled, network, scoped)
    ruleset = call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path, access in allowed:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                _allow(ruleset, path, access & handled)
        call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: FileAccess) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            access &= _OF_FILES
        if access:
            rule = _PathRule(access, parent)
            call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(parent)
