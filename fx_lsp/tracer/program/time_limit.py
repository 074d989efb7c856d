"""A limit on the time that code of the user's may take, which it cannot catch."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from types import FrameType

import torch

TICK = 0.05
"""How many seconds pass until it is looked again whether code that took too long can be stopped."""
AGAIN = 1.0
"""How many seconds pass until what was stopped is stopped again, if it caught that: what unwinds takes some time."""
LENIENCE = 4
"""How many times as long it may take where it is never in a place at which it can be stopped safely."""
WAITING = 4
"""How many times as long it may take by the clock: on a busy machine it waits for others."""
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CONTEXTS = frozenset((__file__, contextlib.__file__))
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def is_inside_torch(frame: FrameType | None) -> bool:
    """Return True if a frame is PyTorch's, or one of fx-lsp's that PyTorch has called: kernels, answers of symbols."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)


class TimeUp(BaseException):
    """Unwinds what took too long. No `except Exception` stops it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Generator[None, None, None]:
    """Raise TimeUp in the main thread after `seconds` of this process's time, or several of them of waiting, and
    again, where the platform has timers. A limit around this one goes on afterwards.

    PyTorch may abort where Python code that it calls raises at any instruction: while that runs, or what runs for it
    here, it is waited for. So it is while contexts are left, this one too: what is raised there would leave its timers.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    until = time.monotonic() + LENIENCE * WAITING * seconds
    raised = -AGAIN

    def ring(_: int, frame: FrameType | None) -> None:
        nonlocal raised
        now = time.monotonic()
        leaves = frame is not None and frame.f_code.co_filename in _CONTEXTS
        if now - raised > AGAIN and not leaves and (not is_inside_torch(frame) or now > until):
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
