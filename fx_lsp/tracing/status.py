"""Report changes to the server: several changes at once, and a status only when it differs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fx_lsp.errors import NotTrusted, WorkerError

_COALESCE_SECONDS = 0.005


@dataclass(frozen=True)
class EngineStatus:
    """Hold the engine's status. `quiescent`: nothing is being read or traced, so `state` is final. `message` is one
    line.
    """

    health: Literal["ok", "warning", "error"]
    quiescent: bool
    message: str


class Doing(Protocol):
    """Describe the part of an interpreter that a status needs."""

    @property
    def error(self) -> WorkerError | None: ...
    @property
    def message(self) -> str: ...


def summarize(
    interpreters: Iterable[Doing], troubles: Sequence[WorkerError], tracing: str, storing: str, quiescent: bool
) -> EngineStatus:
    """Return the status: errors of interpreters, then of files, the running work, the reason why answers are not
    stored.
    """
    listed = list(interpreters)
    errors = [one.error for one in listed if one.error] or troubles
    doing = [one.message for one in listed if one.message] or [tracing]
    message = str(errors[0]) if errors else doing[0] or storing
    wrong = any(not isinstance(error, NotTrusted) for error in errors)
    return EngineStatus("error" if wrong else "warning" if errors or storing else "ok", quiescent, message)


class Reporter:
    """Collect changed files and call back a moment later."""

    def __init__(
        self,
        on_update: Callable[[str], None],
        on_status: Callable[[EngineStatus], None],
        status: Callable[[], EngineStatus],
    ) -> None:
        self._on_update = on_update
        self._on_status = on_status
        self._status = status
        self._reported: EngineStatus | None = None
        self._updated: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def file_changed(self, file: str) -> None:
        """Record that the displayed results of `file` have changed."""
        self._updated[file] = None
        self.status_changed()

    def status_changed(self) -> None:
        """Record that the status may have changed."""
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(_COALESCE_SECONDS, self._report)

    def close(self) -> None:
        """Report no more changes."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _report(self) -> None:
        self._timer = None
        updated, self._updated = self._updated, {}
        for file in updated:
            self._on_update(file)
        status = self._status()
        if status != self._reported:
            self._reported = status
            self._on_status(status)
