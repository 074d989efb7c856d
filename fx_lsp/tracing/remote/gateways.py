"""Start a Python on a host through execnet. Everything here blocks: call it from threads.

The connection to the host (ssh, a command, a local Python) is a process of this machine, in its own process group. It
is asked to end before it is killed, because it may have to end a remote process, or to leave a queue. Its standard
error is kept to explain failures.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import execnet
from execnet.gateway_base import ThreadExecModel
from execnet.gateway_bootstrap import HostNotFound

from fx_lsp.measured import Failed
from fx_lsp.tracing.remote.hosts import Host
from fx_lsp.tracing.remote.lines import FIRST, Lines
from fx_lsp.tracing.remote.troubles import lost, not_connected, not_started, talkative
from fx_lsp.tracing.workers.processes import kill_group
from fx_lsp.wire import readable

END_SECONDS = 3.0
SSH_OPTIONS = (
    "-T",
    "-o BatchMode=yes",  # never wait for a password or a confirmation
    "-o ClearAllForwardings=yes",  # another session may hold those ports
    "-o RemoteCommand=none",
    "-o ServerAliveInterval=10",
)


class Unreachable(Exception):
    """There is no Python at the other side, or no longer; `failed` has the reason."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Connection:
    """Connect to a Python on `host`. `kill` may be called from any thread, at any time; the rest from one
    thread only.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._late: str | None = None
        # Not a pipe: a shared ssh connection may hold it open for long. Writes are appended, wherever we read.
        self._errors = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._reading = threading.Lock()
        self._starting = _Starting(self._errors.fileno())
        self._group = execnet.Group(execmodel=cast("str", self._starting))
        self._gateway: execnet.Gateway | None = None

    def open(self, source: str) -> execnet.Channel:
        """Start a Python there and run `source` in it, with `channel` as the other end of the returned one. Raises
        Unreachable.
        """
        timer = threading.Timer(self.host.connect, self._too_late)
        timer.start()
        try:
            self._gateway = self._group.makegateway(_spec(self.host))
            return self._gateway.remote_exec(source)
        except (HostNotFound, EOFError) as error:
            raise Unreachable(self._why(error)) from None
        except AssertionError:  # execnet expects another byte here
            self.kill()
            raise Unreachable(talkative(self.host, "")) from None
        except OSError as error:
            started = self._starting.process is not None
            raise Unreachable(self._why(error) if started else not_started(self.host, error)) from None
        finally:
            timer.cancel()

    def gone(self, silent: float | None = None) -> Failed:
        """Return the reason why the other side ended the connection."""
        return lost(self.host, self._status(), self.said(), silent)

    def never_came(self) -> Failed:
        """Return the reason why the other side never responded."""
        return self._why(None)

    def said(self) -> str:
        """Return the last 8000 characters of standard error, of both sides."""
        with self._reading, suppress(ValueError):  # closed
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(size - 8000, 0))
            return readable(self._errors.read().decode("utf-8", "replace"))
        return ""

    def kill(self) -> None:
        """End the process that connects to the host. Returns at once; the process ends within some seconds."""
        self._starting.kill()

    def close(self) -> None:
        """Close the connection, and wait briefly for the other side to end."""
        process = self._starting.process
        if process is not None and process.poll() is None and self._gateway is not None:
            with suppress(OSError):
                self._gateway.exit()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2 * END_SECONDS) if process is not None else None
        with suppress(OSError, EOFError):
            self._group.terminate(timeout=END_SECONDS)
        for pipe in (process.stdin, process.stdout) if process is not None else ():
            with suppress(OSError):
                pipe.close() if pipe is not None else None
        self._errors.close()

    def _too_late(self) -> None:
        self._late = self.said()
        self.kill()

    def _status(self) -> int | None:
        process = self._starting.process
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1) if process else None
        return None

    def _why(self, error: Exception | None) -> Failed:
        status, late = self._status(), self._late is not None
        return not_connected(self.host, status, self._late or self.said(), late)


class _Starting(ThreadExecModel):
    """Start execnet's process: in its own group, with standard error kept, and in a folder in which no user's file
    shadows a module that execnet imports.
    """

    PIPE = subprocess.PIPE

    def __init__(self, errors: int) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._errors = errors
        self._killed = False
        self._lock = threading.Lock()

    @property
    def subprocess(self) -> Any:
        return self

    def Popen(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        start = partial(subprocess.Popen[bytes], command, stderr=self._errors, cwd=os.sep, **options)
        self.process = start() if sys.platform == "win32" else start(start_new_session=True)
        with self._lock:
            if self._killed:
                self._end()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(FIRST)
        self.process.stdin.flush()
        self.process.stdout = cast("IO[bytes]", Lines(self.process.stdout))
        return self.process

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            self._end()

    def _end(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        if sys.platform == "win32":
            self.process.kill()
            return
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGTERM)
        at_last = threading.Timer(END_SECONDS, kill_group, (self.process.pid,))
        at_last.daemon = True
        at_last.start()


def _at_home(path: str) -> str:
    return str(Path(path).expanduser()) if path.startswith("~") else path


def _spec(host: Host) -> execnet.XSpec:
    """Return execnet's specification of a gateway. Its fields are set one by one, so that user text is not split at
    "//".
    """
    spec = execnet.XSpec("popen" if not host.ssh else "ssh=")
    if host.ssh:
        spec.ssh = " ".join([*SSH_OPTIONS, f"-o ConnectTimeout={max(round(host.connect), 1)}", host.ssh])
        spec.ssh_config = _at_home(host.ssh_config) or None
        spec.python = host.python or "python3"
    elif host.command:
        words = shlex.split(host.command)
        spec.python = shlex.join([_at_home(words[0]), *words[1:]])
    else:
        spec.python = shlex.join([_at_home(host.python) or sys.executable])
    return spec
