"""Limit the time of user code, which cannot catch the exception."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Generator
from types import FrameType

import torch

TICK = 0.05
"""Seconds between checks whether code over its limit can be stopped."""
AGAIN = 1.0
"""Seconds until code that caught TimeUp is stopped again: unwinding takes some time."""
WAITING = 4
"""The factor by which wall-clock time may exceed the limit: on a busy machine the process waits for others."""
_CONTEXTS = frozenset((__file__, contextlib.__file__))
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


def is_inside_torch(frame: FrameType | None) -> bool:
    """Return True if PyTorch is running: a frame is PyTorch's, or one of a library that PyTorch calls.

    PyTorch's C++ calls Python for the sizes of tensors, and that calls sympy: an exception raised there unwinds C++
    guards that restore modes, which may not throw and would abort the process.
    """
    while frame is not None and not frame.f_code.co_filename.startswith(_TORCH):
        if not _runs_torch(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return frame is not None


@functools.cache
def _runs_torch(file: str) -> bool:
    """Return True for a file of fx-lsp, of the standard library, or of a package that PyTorch requires."""
    if file.startswith((_OWN, "<frozen ", *_required_paths())):
        return True
    paths = sysconfig.get_paths()
    is_installed = file.startswith((paths["purelib"] + os.sep, paths["platlib"] + os.sep))
    return not is_installed and file.startswith(paths["stdlib"] + os.sep)


@functools.cache
def _required_paths() -> tuple[str, ...]:
    """Return the folders and modules of the packages that PyTorch requires, directly or indirectly."""
    paths: set[str] = set()
    names, seen = ["torch"], {"torch"}
    while names:
        try:
            package = importlib.metadata.distribution(names.pop())
        except importlib.metadata.PackageNotFoundError:
            continue
        required = (re.match(r"[\w.-]+", text) for text in package.requires or () if "extra ==" not in text)
        added = {match[0] for match in required if match} - seen
        names, seen = [*names, *added], seen | added
        if package.name != "torch":
            record = package.read_text("RECORD") or ""
            tops = {line.partition(",")[0].partition("/") for line in record.splitlines()}
            own = ((top, separator) for top, separator, _ in tops if top != "..")
            paths |= {os.path.abspath(str(package.locate_file(top))) + (separator and os.sep) for top, separator in own}
    return tuple(paths)


class TimeUp(BaseException):
    """Unwinds code that took too long. No `except Exception` stops it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Raise TimeUp in the main thread after `seconds` of this process's time, or after `WAITING` times as many by the
    clock, and again, if the platform has timers. An outer limit continues afterwards.

    While PyTorch runs, and while a context exits, nothing is raised: PyTorch may abort, and a context would keep its
    timers. The limit of the whole process stops code that never leaves PyTorch.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    raised, is_ringing = -AGAIN, False

    def ring(_: int, frame: FrameType | None) -> None:
        nonlocal raised, is_ringing
        now = time.monotonic()
        leaves = frame is not None and frame.f_code.co_filename in _CONTEXTS
        if is_ringing or leaves or now - raised <= AGAIN:
            return
        is_ringing = True  # a timer may ring again before the frames are examined
        is_inside = is_inside_torch(frame)
        is_ringing = False
        if not is_inside:
            raised = now
            raise TimeUp

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, WAITING * seconds))
    handlers = [signal.signal(number, ring) for number, _, _ in timers]
    outer = [signal.setitimer(timer, limit, TICK) for _, timer, limit in timers]
    started = time.monotonic()
    try:
        yield
    finally:
        passed = time.monotonic() - started
        for (number, timer, _), handler, (left, interval) in zip(timers, handlers, outer, strict=True):
            signal.setitimer(timer, max(left - passed, TICK) if left else 0, interval)
            signal.signal(number, handler)
