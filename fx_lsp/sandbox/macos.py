"""Confine a process on macOS, by a profile of its sandbox. Untried: nobody has run this on a Mac so far."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

NO_SANDBOX = "Code of the workspace can change your files and use the network: the sandbox of macOS could not be used."

READS = "Code of the workspace can read your files and end your programs: the profile for macOS does not forbid it."


def confine(scratch: str, programs: Sequence[str]) -> tuple[str, ...]:
    """Have this process and all that it starts write only below `scratch`, without network and other programs; the rest
    of the system stays as it is. Returns the gaps.
    """
    try:
        library = ctypes.CDLL("/usr/lib/libSystem.B.dylib")
        error = ctypes.c_char_p()
        status = library.sandbox_init(_profile(scratch, programs).encode(), ctypes.c_uint64(0), ctypes.byref(error))
    except (OSError, AttributeError):
        return NO_SANDBOX, READS
    return (READS,) if status == 0 else (NO_SANDBOX, READS)


def _profile(scratch: str, programs: Sequence[str]) -> str:
    allowed = " ".join(f"(subpath {_quoted(program)})" for program in programs)
    return "\n".join(
        [
            "(version 1)",
            "(allow default)",
            "(deny network*)",
            "(deny file-write*)",
            f'(allow file-write* (subpath {_quoted(scratch)}) (literal "/dev/null"))',
            "(deny process-exec*)",
            *([f"(allow process-exec* {allowed})"] if allowed else []),
        ]
    )


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
