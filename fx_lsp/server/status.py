"""`fxLsp/status`, and work-done progress while tracing takes long enough to be noticed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import EngineStatus

STATUS = "fxLsp/status"
PATIENCE_SECONDS = 0.3


class Reporter:
    """Tells the client how the engine fares. The progress can be cancelled, which stops what is being traced."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._status: EngineStatus | None = None
        self._changed = asyncio.Event()
        self._showing = False

    def update(self, status: EngineStatus) -> None:
        """A new status of the engine."""
        if status == self._status:
            return
        self._status = status
        self._changed.set()
        self._server.protocol.notify(
            STATUS, {"health": status.health, "quiescent": status.quiescent, "message": status.message}
        )
        if not status.quiescent and not self._showing and self._server.client.progress:
            self._showing = True
            self._server.spawn("progress", self._show())

    async def _show(self) -> None:
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
            if not self._busy():
                return
            async with self._server.progresses.shown("fx-lsp", self._cancel, self._message()) as tell:
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
        if self._server.engine is not None:
            self._server.engine.cancel_all()
