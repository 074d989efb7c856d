"""Show work-done progress in the client, with a way to cancel it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from lsprotocol import types

from fx_lsp.server.client import Client
from fx_lsp.server.session import Session

log = logging.getLogger(__name__)

ProgressValue = types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd


class Tell(Protocol):
    """Report the current step, and the progress in percent."""

    def __call__(self, message: str | None, percentage: int | None = None) -> None: ...


class Progresses:
    """Manage the progress reports that the client shows."""

    def __init__(self, session: Session, client: Client) -> None:
        self._session = session
        self._client = client
        self._cancel: dict[str | int, Callable[[], object]] = {}

    @asynccontextmanager
    async def shown(
        self, title: str, cancel: Callable[[], object], message: str | None = None, percentage: int | None = None
    ) -> AsyncGenerator[Tell]:
        """Show a progress while the block runs; `cancel` is called when the user cancels it.

        Does nothing for a client without support.
        """
        if not self._session.capabilities.progress:
            yield lambda message, percentage=None: None
            return
        token = f"fx-lsp-{uuid.uuid4()}"
        create = types.WorkDoneProgressCreateParams(token=token)
        try:
            await self._client.request(types.WINDOW_WORK_DONE_PROGRESS_CREATE, create)
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
        """Cancel the work of a progress; ignore a finished or unknown one."""
        if token in self._cancel:
            self._cancel[token]()

    def _send(self, token: str, value: ProgressValue) -> None:
        if not self._session.closed:
            self._client.notify(types.PROGRESS, types.ProgressParams(token=token, value=value))


def on_cancel(progresses: Progresses, params: types.WorkDoneProgressCancelParams) -> None:
    """Cancel the work whose progress the user cancelled."""
    progresses.cancelled(params.token)
