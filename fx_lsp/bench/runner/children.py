"""Manage a process for each variant: it answers requests one at a time, a line of JSON each way."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_all: set[VariantProcess] = set()
_lock = threading.Lock()
_over = False
_LAST_SECONDS = 10.0
_MAX_OUTPUT = 4000
"""The most characters of a process's output that are inspected after its death."""


class ChildError(Exception):
    """A process did not answer; the message is a sentence for the user."""


class VariantProcess:
    """Manage a process of `fx_lsp.bench.variant`, behind the command `prefix`. Its output goes to `log`.

    `marks` are the moments, by the clock of this process, that it marked.
    """

    def __init__(self, log: Path, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self.log = log
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.marks: list[float] = []
        command = [*prefix, sys.executable, "-m", "fx_lsp.bench.variant"]
        with log.open("wb") as output, _lock:
            if _over:
                raise ChildError("The run has ended.")
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=dict(environment),
                cwd=log.parent,  # in which no module shadows another
                start_new_session=True,  # so that its children end with it
            )
            _all.add(self)
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, request: Mapping[str, Any], seconds: float, hear: Callable[[str], None] | None = None) -> Any:
        """Return the answer to a request, within `seconds`; `hear` is called with its progress.

        Raises ChildError, after which the process is gone.
        """
        deadline = time.monotonic() + seconds
        try:
            pipe = self._process.stdin
            assert pipe is not None
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise ChildError(self._death()) from None
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise ChildError(f"It was stopped: no answer within {seconds:.0f} s.") from None
            if answer is None:
                raise ChildError(self._death())
            if "progress" not in answer:
                return answer["answer"]
            if hear is not None:
                hear(answer["progress"])

    def end(self, seconds: float) -> None:
        """Let it end by itself. Raises ChildError if it does not within `seconds`."""
        try:
            pipe = self._process.stdin
            assert pipe is not None
            pipe.write(b'{"do": "end"}\n')
            pipe.flush()
            self._process.wait(seconds)
        except (OSError, subprocess.TimeoutExpired):
            raise ChildError("It did not end.") from None

    def kill(self) -> None:
        """Kill it and its children at once."""
        _all.discard(self)
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # one that a driver blocks may not even die
            self._process.wait(_LAST_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _listen(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        with suppress(ValueError):  # it was closed here, or the input is not JSON: both end the process's part
            for line in pipe:
                message = json.loads(line)
                if "mark" in message:
                    self.marks.append(time.monotonic())
                else:
                    self._answers.put(message)
        self._answers.put(None)

    def _death(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        status = self._process.poll()
        self.kill()
        printed = self.log.read_text(encoding="utf-8", errors="replace")[-_MAX_OUTPUT:]
        said = next((line for line in reversed(printed.splitlines()) if line.strip()), "")
        how = f"by {signal.Signals(-status).name}" if status is not None and status < 0 else f"with code {status}"
        return f"Its process ended {how}{': ' + said.strip()[:300] if said else ''}."


def kill_all() -> None:
    """Kill all of them; none can be started afterwards."""
    global _over
    with _lock:
        _over = True
        children = list(_all)
    for child in children:
        child.kill()
