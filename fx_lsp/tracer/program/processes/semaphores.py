"""Locks and shared numbers of `multiprocessing` without shared memory of the system, which confined code cannot make.

No other process is started while code is traced: what threads share is enough.
"""

from __future__ import annotations

import multiprocessing.heap
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

try:
    import _multiprocessing
except ImportError:  # a Python without semaphores
    _multiprocessing = None

from fx_lsp.sandbox.confinement import is_confined

_RECURSIVE = 0
"""The kind of a lock that its owner can acquire again."""


class _ThreadSemaphore:
    """Do what `_multiprocessing.SemLock` does, between the threads of this process."""

    SEM_VALUE_MAX = 2**31 - 1

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        self.kind, self.maxvalue, self.name, self.handle = kind, maxvalue, None, id(self)
        self._value, self._owner, self._held = value, 0, 0
        self._changed = threading.Condition()

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take one, as soon as there is one; return False if there is none in time."""
        me = threading.get_ident()
        with self._changed:
            if self.kind == _RECURSIVE and self._owner == me and self._held:
                self._held += 1
                return True
            if not self._changed.wait_for(lambda: self._value > 0, timeout if block else 0):
                return False
            self._value, self._owner, self._held = self._value - 1, me, self._held + 1
            return True

    def release(self) -> None:
        """Give one back. Raises AssertionError or ValueError as the original does."""
        with self._changed:
            if self.kind == _RECURSIVE:
                if not self._is_mine():
                    raise AssertionError("attempt to release recursive lock not owned by thread")
                self._held -= 1
                if self._held:
                    return
            elif self._value >= self.maxvalue:
                raise ValueError("semaphore or lock released too many times")
            else:
                self._held -= 1
            self._value += 1
            self._changed.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _count(self) -> int:
        return self._held

    def _is_mine(self) -> bool:
        return self._held > 0 and self._owner == threading.get_ident()

    def _get_value(self) -> int:
        return self._value

    def _is_zero(self) -> bool:
        return self._value == 0

    def _after_fork(self) -> None:
        self._held = 0


@contextmanager
def thread_semaphores() -> Generator[None, None, None]:
    """Inside, locks, queues and shared values of `multiprocessing` work in a confined process."""
    with ExitStack() as stack:
        if is_confined() and _multiprocessing is not None:
            arena: Any = multiprocessing.heap.Arena
            stack.enter_context(patch.object(_multiprocessing, "SemLock", _ThreadSemaphore))
            stack.enter_context(patch.object(arena, "_dir_candidates", []))
        yield
