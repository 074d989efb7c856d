"""The processes that one server started, found by a mark in their environment (Linux)."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path


class Processes:
    """Start the server with `env`; whatever it starts inherits the mark."""

    def __init__(self) -> None:
        self.env = {"FX_LSP_TEST_MARK": uuid.uuid4().hex}

    def all(self) -> dict[int, str]:
        """Process ids and command lines; what has ended and waits to be reaped does not count."""
        mark = "=".join(*self.env.items()).encode()
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def zygotes(self) -> list[int]:
        """The warm processes that fork."""
        found = [pid for pid, line in self.all().items() if "bootstrap.py zygote" in line]
        return [pid for pid in found if parent(pid) not in found]

    def tracers(self) -> list[int]:
        """The processes that trace: forks of a zygote with an output of their own, which one that waits has not.

        Worlds, which stay, are none of them.
        """
        zygotes = self.zygotes()
        forks = (pid for pid in self.all() if parent(pid) in zygotes and output(pid) not in ("", output(parent(pid))))
        return [pid for pid in forks if name(pid) != "fx-lsp world"]

    def kill(self, *pids: int) -> None:
        """SIGKILL."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def gone(self, seconds: float = 60.0) -> bool:
        """Whether all of them end within `seconds`."""
        for _ in range(int(seconds / 0.05)):
            if not self.all():
                return True
            await asyncio.sleep(0.05)
        return False


def output(pid: int) -> str:
    """What the standard output of a process is, or ""."""
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/1")
    return ""


def name(pid: int) -> str:
    """What the system calls a process; "" for one that is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def parent(pid: int) -> int:
    """The parent's id, or 0."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
