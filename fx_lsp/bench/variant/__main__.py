"""`python -m fx_lsp.bench.variant`: the process of one variant. It answers the runner's requests, a line of JSON each.

It ends with the runner, including its children. Output of its variant goes to standard error.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any


def main() -> int:
    _die_with_parent()
    requests, answers = _channel()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, lines), daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    from fx_lsp.bench.variant.requests import (
        answering,  # imports torch, which takes a while: the process can be ended meanwhile
    )

    answer: Callable[[dict[str, Any]], dict[str, Any]] = answering(send)
    send({"mark": True})
    for line in iter(lines.get, ""):
        request: dict[str, Any] = json.loads(line)
        if request["do"] == "end":
            break
        send({"answer": answer(request)})
    return 0


def _listen(requests: IO[str], lines: queue.SimpleQueue[str]) -> None:
    """Read requests from the runner, and end without it."""
    for line in requests:
        lines.put(line)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _die_with_parent() -> None:
    """Make Linux end this process with the runner even if no thread of it can run."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _channel() -> tuple[IO[str], IO[str]]:
    """Return the runner's pipes. Output and input of variants do not reach them."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


if __name__ == "__main__":
    sys.exit(main())
