"""Find out by trying what the system lacks to confine code of a workspace."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache

from fx_lsp.sandbox import confinement
from fx_lsp.sandbox.confinement import NO_FILES, NO_NETWORK, NOT_HERE, Allowance

SECONDS = 20.0


@cache
def gaps() -> tuple[str, ...]:
    """Return a sentence for each harm that code of a workspace can do on this system.

    A process of this Python tries it the first time, in some tenths of a second.
    """
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = f"import sys; sys.path.append({package!r}); from fx_lsp.sandbox.trial import attempt; attempt()"
    with tempfile.TemporaryDirectory() as outside, tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-I", "-c", program, outside, scratch]
        with suppress(OSError, subprocess.SubprocessError, ValueError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
            return tuple(json.loads(done.stdout))
    return (NOT_HERE,)


def attempt() -> None:
    """Confine this process, try what it should not be able to do, and print the gaps as JSON."""
    outside, scratch = sys.argv[1:3]
    gaps_here = [*confinement.begin(scratch, Allowance())]
    confinement.enter([scratch])
    tried = {NO_FILES: lambda: _write(outside), NO_NETWORK: _connect}
    gaps_here += [gap for gap, action in tried.items() if _succeeds(action)]
    print(json.dumps([*dict.fromkeys(gaps_here)]))


def _write(folder: str) -> None:
    with open(os.path.join(folder, "written"), "w"):
        pass


def _connect() -> None:
    socket.socket().close()


def _succeeds(action: Callable[[], None]) -> bool:
    try:
        action()
    except OSError:
        return False
    return True
