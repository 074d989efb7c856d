"""Send `fxLsp/status`, and work-done progress when tracing takes noticeably long."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from fx_lsp.sandbox.usage import memory_of, processes_below
from fx_lsp.server.client import Client
from fx_lsp.server.progress import Progresses
from fx_lsp.server.session import Session
from fx_lsp.server.tasks import Tasks

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import EngineStatus

STATUS = "fxLsp/status"
PATIENCE_SECONDS = 0.3


class StatusReporter:
    """Report the engine's status to the client. Cancelling the progress stops the running traces."""

    def __init__(self, session: Session, client: Client, tasks: Tasks, progresses: Progresses) -> None:
        self._session = session
        self._client = client
        self._tasks = tasks
        self._progresses = progresses
        self._status: EngineStatus | None = None
        self._sent: dict[str, Any] | None = None
        self._choices: list[dict[str, str]] = []
        self._changed = asyncio.Event()
        self._showing = False

    def update(self, status: EngineStatus) -> None:
        """Report a new status of the engine."""
        if status.quiescent or self._sent is None:  # not while somebody types
            self._choices = self._interpreters()
        message: dict[str, Any] = {
            "health": status.health,
            "quiescent": status.quiescent,
            "message": status.message,
            "interpreters": self._choices,
            "processes": self._sent and self._sent["processes"],
        }
        if message == self._sent:
            return
        self._status, self._sent = status, message
        self._changed.set()
        self._client.notify(STATUS, message)
        if status.quiescent:
            self._tasks.spawn("status", self._count())
        if not status.quiescent and not self._showing and self._session.capabilities.progress:
            self._showing = True
            self._tasks.spawn("progress", self._show())

    async def _count(self) -> None:
        """Report the processes that fx-lsp has started, and their memory, if that has changed."""
        used = await asyncio.to_thread(_processes)
        if self._sent is not None and used != self._sent["processes"]:
            self._sent = {**self._sent, "processes": used}
            self._client.notify(STATUS, self._sent)

    def _interpreters(self) -> list[dict[str, str]]:
        """Return the interpreter of each workspace folder, with the reason for it."""
        from fx_lsp.tracing.workers.find_python import why

        choices = [(folder, self._session.interpreter(folder)) for folder in self._session.roots()]
        return [{"folder": folder, "path": one.path, "reason": why(one)} for folder, one in choices]

    async def _show(self) -> None:
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
            if not self._busy():
                return
            async with self._progresses.shown("fx-lsp", self._cancel, self._message()) as tell:
                while self._busy():
                    self._changed.clear()
                    await self._changed.wait()
                    tell(self._message())
        finally:
            self._showing = False

    def _busy(self) -> bool:
        return self._status is not None and not self._status.quiescent

    def _message(self) -> str | None:
        return (self._status.message if self._status is not None else "") or None

    def _cancel(self) -> None:
        if self._session.engine is not None:
            self._session.engine.cancel_all()


def _processes() -> dict[str, int] | None:
    """Return the number of processes below this one, and their bytes of memory; None if the system does not tell."""
    _, *below = processes_below(os.getpid())
    return {"count": len(below), "bytes": sum(map(memory_of, below))} if sys.platform == "linux" else None
