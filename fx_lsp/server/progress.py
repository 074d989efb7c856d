"""Work-done progress: what goes on, in the client's own way, with a way to stop it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from lsprotocol import types

if TYPE_CHECKING:
    from fx_lsp.server.session import Server

log = logging.getLogger(__name__)

Value = types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd


class Tell(Protocol):
    """Says what is being done now, and how far it is in percent."""

    def __call__(self, message: str | None, percentage: int | None = None) -> None: ...


class Progresses:
    """The progresses that the client shows."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._cancel: dict[str | int, Callable[[], object]] = {}

    @asynccontextmanager
    async def shown(
        self, title: str, cancel: Callable[[], object], message: str | None = None, percentage: int | None = None
    ) -> AsyncGenerator[Tell]:
        """A progress for as long as the block runs; `cancel` is called when the user stops it. A client that shows none
        is told nothing."""
        if not self._server.client.progress:
            yield lambda message, percentage=None: None
            return
        token = f"fx-lsp-{uuid.uuid4()}"
        create = types.WorkDoneProgressCreateParams(token=token)
        try:
            await self._server.protocol.send_request_async(types.WINDOW_WORK_DONE_PROGRESS_CREATE, create)
        except Exception as error:
            log.info("the client shows no progress: %s", error)
            yield lambda message, percentage=None: None
            return
        self._cancel[token] = cancel
        self._send(token, types.WorkDoneProgressBegin(title, cancellable=True, message=message, percentage=percentage))

        def tell(message: str | None, percentage: int | None = None) -> None:
            self._send(token, types.WorkDoneProgressReport(cancellable=True, message=message, percentage=percentage))

        try:
            yield tell
        finally:
            del self._cancel[token]
            self._send(token, types.WorkDoneProgressEnd())

    def cancelled(self, token: str | int) -> None:
        """The user stopped a progress; one that is over, or not ours, is none."""
        if token in self._cancel:
            self._cancel[token]()

    def _send(self, token: str, value: Value) -> None:
        if not self._server.closed:
            self._server.progress(types.ProgressParams(token=token, value=value))


def on_cancel(server: Server, params: types.WorkDoneProgressCancelParams) -> None:
    """The user cancelled a progress."""
    server.progresses.cancelled(params.token)
