"""Decide when to redraw the displayed results of a changed file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set

REFRESH_SECONDS = 0.02
PAUSE_SECONDS = 0.15
"""Seconds after a key until a redraw, if no other key follows: a redraw costs more time than a key may."""
MAX_PAUSE_SECONDS = 1.0
"""The longest delay of a redraw in seconds while the user types on."""


class RefreshTimer:
    """Collect files with changed results. `redraw` gets them together, once the typing pauses."""

    def __init__(self, redraw: Callable[[Set[str]], None]) -> None:
        self._redraw = redraw
        self._changed: set[str] = set()
        self._due = self._typed = 0.0

    def updated(self, file: str) -> None:
        """Record that a displayed result of a file has changed."""
        if not self._changed:
            loop = asyncio.get_running_loop()
            self._due = loop.time() + MAX_PAUSE_SECONDS
            loop.call_later(REFRESH_SECONDS, self._flush)
        self._changed.add(file)

    def typed(self) -> None:
        """Record that the user has edited something."""
        self._typed = asyncio.get_running_loop().time()

    def forget(self, file: str) -> None:
        """Remove a file that is closed."""
        self._changed.discard(file)

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        quiet = min(self._typed + PAUSE_SECONDS, self._due)
        if loop.time() < quiet:
            loop.call_at(quiet, self._flush)
            return
        files, self._changed = self._changed, set()
        if files:
            self._redraw(files)
