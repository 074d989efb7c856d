"""`fxLsp/status`, and work-done progress while tracing takes long enough to be noticed."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from lsprotocol import types

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
        self._tokens: set[str | int] = set()

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

    def cancelled(self, token: str | int) -> bool:
        """Whether `token` is a progress of ours."""
        return token in self._tokens

    async def _show(self) -> None:
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
            if not self._busy():
                return
            token = f"fx-lsp-{uuid.uuid4()}"
            create = types.WorkDoneProgressCreateParams(token=token)
            await self._server.protocol.send_request_async(types.WINDOW_WORK_DONE_PROGRESS_CREATE, create)
            self._tokens.add(token)
            begin = types.WorkDoneProgressBegin(title="fx-lsp", cancellable=True, message=self._message())
            self._send(token, begin)
            while self._busy():
                self._changed.clear()
                await self._changed.wait()
                self._send(token, types.WorkDoneProgressReport(message=self._message(), cancellable=True))
            self._send(token, types.WorkDoneProgressEnd())
            self._tokens.discard(token)
        finally:
            self._showing = False

    def _busy(self) -> bool:
        return self._status is not None and not self._status.quiescent

    def _message(self) -> str | None:
        return (self._status.message if self._status is not None else "") or None

    def _send(
        self,
        token: str,
        value: types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd,
    ) -> None:
        self._server.progress(types.ProgressParams(token=token, value=value))


def on_cancel(server: Server, params: types.WorkDoneProgressCancelParams) -> None:
    """The user cancelled a progress."""
    if server.reporter.cancelled(params.token) and server.engine is not None:
        server.engine.cancel_all()
