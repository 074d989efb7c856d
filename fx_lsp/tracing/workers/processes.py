"""Starting processes, ending their groups, and saying in words how they ended."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fx_lsp.errors import WorkerStartError
from fx_lsp.sandbox.usage import processes_below
from fx_lsp.tracing.workers.channels import BUFFER

_SETTING = "fx-lsp.interpreter to the Python that has your project's packages"
SETTING_HINT = f"Set {_SETTING}"
TORCH_HINT = f"Install torch into it, or set {_SETTING} (--python in a terminal)"


def starved_seconds(pid: int) -> float | None:
    """Return how long a process has been ready to run and waited for a processor; None if the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


@dataclass(frozen=True)
class Process:
    """A started process in a group of its own; `exited` gives its code, or the negated signal.

    `stdout` carries standard error too where the process was started with `merge`.
    """

    pid: int
    stdin: asyncio.StreamWriter | None
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader | None
    exited: asyncio.Future[int]
    transport: asyncio.SubprocessTransport

    def kill(self) -> None:
        """End the process and its group at once."""
        if not self.exited.done():
            if sys.platform == "win32":
                with suppress(ProcessLookupError):
                    self.transport.kill()
            else:
                # Not the transport's kill: it reaps the process, and the status is lost to the loop.
                kill_group(self.pid)

    def resume(self) -> bool:
        """Have the process and what it started go on if they are stopped; return whether any was (Linux)."""
        return resume_stopped(self.pid)

    async def end(self) -> None:
        """Kill, wait for the end, and close the pipes."""
        self.kill()
        await asyncio.wait({self.exited}, timeout=5)
        self.transport.close()


async def start_process(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    stdin: bool = False,
    merge: bool = False,
) -> Process:
    """Start `command` with pipes for output (and input with `stdin`). Raises WorkerStartError (kind "interpreter")."""
    loop = asyncio.get_running_loop()
    try:
        transport, protocol = await loop.subprocess_exec(
            lambda: _Protocol(loop),
            *command,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge else subprocess.PIPE,
            env=env,
            pass_fds=tuple(pass_fds),
            start_new_session=sys.platform != "win32",
        )
    except (OSError, ValueError) as error:
        raise _cannot_start(command[0], error) from None
    assert protocol.stdout is not None
    return Process(transport.get_pid(), protocol.stdin, protocol.stdout, protocol.stderr, protocol.exited, transport)


def resume_stopped(root: int) -> bool:
    """Have a process, and those below it, go on if they are stopped; return whether any was (Linux)."""
    stopped = [pid for pid in processes_below(root) if _stat(pid)[:1] == ["T"]]
    for pid in stopped:
        with suppress(OSError):
            os.kill(pid, signal.SIGCONT)
    return bool(stopped)


def started_at(pid: int) -> int | None:
    """Return when a process started, in ticks of the kernel's clock: another process with its number has another time.

    None if there is no such process, or the system does not tell (not Linux).
    """
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def is_below(pid: int, root: int) -> bool:
    """Return True if a process was started by `root`, directly or not; True if the system does not tell (not Linux)."""
    if sys.platform != "linux":
        return True
    for _ in range(LINEAGE_TRIES):
        above = pid
        while above > 1 and (stat := _stat(above)):
            above = int(stat[1])
            if above == root:
                return True
    return False


LINEAGE_TRIES = 3
"""The times that ancestors are read: one may end in between, and then leaves its children to another."""


def _stat(pid: int) -> list[str]:
    """Return the fields of a process in the kernel, from its state on; nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return []


def kill_group(pid: int) -> None:
    """SIGKILL to every process of the group `pid`; nothing happens when it is gone or groups do not exist.

    Raises ValueError for this process's own group, and for numbers that mean others.
    """
    if sys.platform != "win32":
        if pid <= 1 or pid == os.getpgrp():
            raise ValueError(f"{pid} is no group of a process that was started")
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


def describe_status(status: int) -> str:
    """Say how a process ended: "exited with code 3", "was ended by SIGSEGV"."""
    if status >= 0:
        return f"exited with code {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def gist(text: str) -> str:
    """Return the line of what a program printed that says most: a traceback's last, else the first; "" without any."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "" if not lines else lines[-1] if any(line.startswith("Traceback (") for line in lines) else lines[0]


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Streams, and a future for the exit that (unlike `Process.wait`) never waits for the pipes to close."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=BUFFER, loop=loop)
        self.exited: asyncio.Future[int] = loop.create_future()
        self._process: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport
        super().connection_made(transport)

    def process_exited(self) -> None:
        code = self._process.get_returncode() if self._process else None
        if not self.exited.done():
            self.exited.set_result(-1 if code is None else code)
        super().process_exited()


def _cannot_start(python: str, error: OSError | ValueError) -> WorkerStartError:
    path = Path(python)
    if isinstance(error, FileNotFoundError):
        message = f"there is no Python interpreter at {python}"
    elif path.is_dir():
        message = f"{python} is a directory, not a Python interpreter"
    elif isinstance(error, PermissionError):
        message = f"{python} is not executable"
    elif isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        message = f"{python} is not a program that this machine can run"
    else:
        message = f"{python} cannot be started: {error}"
    return WorkerStartError(message, kind="interpreter", hint=SETTING_HINT)
