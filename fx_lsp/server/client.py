"""Send messages to the editor."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from lsprotocol import types

if TYPE_CHECKING:
    from fx_lsp.server.protocol import Protocol

log = logging.getLogger(__name__)


class Client:
    """Send messages to the editor of a connection. Unchanged diagnostics are not sent again."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._diagnostics: dict[str, list[types.Diagnostic]] = {}
        self._offered: dict[str, list[types.Diagnostic]] = {}
        self._pulls_due = False
        self._reported: set[tuple[str, str]] = set()

    async def ask(self, method: str, params: Any) -> Any:
        """Send a request and return its response; None if the client responds with an error."""
        try:
            return await self._protocol.send_request_async(method, params)
        except Exception as error:
            log.info("the client refused %s: %s", method, error)
            return None

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and return its response. Raises the client's error."""
        return await self._protocol.send_request_async(method, params)

    def request_soon(self, method: str, params: Any = None) -> None:
        """Send a request and ignore its response."""
        self._protocol.send_request(method, params)

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._protocol.notify(method, params)

    def tell(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Show a message to the user."""
        self.notify(types.WINDOW_SHOW_MESSAGE, types.ShowMessageParams(type=kind, message=message))

    def publish(self, uri: str, diagnostics: list[types.Diagnostic], version: int | None = None) -> None:
        """Publish the diagnostics of a document, unless the client has the same list already."""
        if self._diagnostics.get(uri) != diagnostics:
            self._diagnostics[uri] = diagnostics
            self._publish(uri, diagnostics, version)

    def offer(self, uri: str, diagnostics: list[types.Diagnostic]) -> None:
        """Ask the client to pull the diagnostics of a document again, unless they are the same as before."""
        self.withdraw(uri)
        if self._offered.get(uri, []) != diagnostics and not self._pulls_due:
            self._pulls_due = True
            asyncio.get_running_loop().call_soon(self._request_pulls)
        self._offered[uri] = diagnostics

    def withdraw(self, uri: str) -> None:
        """Clear the published diagnostics of a document, if there are any."""
        if self._diagnostics.pop(uri, None):
            self._publish(uri, [], None)

    def clear(self, uri: str) -> None:
        """Publish an empty list of diagnostics, unconditionally."""
        self._diagnostics.pop(uri, None)
        self._offered.pop(uri, None)
        self._publish(uri, [], None)

    def publish_all_again(self) -> None:
        """Forget the published diagnostics, so that the next list of each document is sent."""
        self._diagnostics.clear()
        self._offered.clear()

    def internal_error(self, where: str, error: BaseException) -> None:
        """Log a bug of fx-lsp, and show it once for each place of origin."""
        key = where, f"{type(error).__name__}: {_place(error)}"
        if key in self._reported:
            return
        self._reported.add(key)
        log.error("internal error in %s", where, exc_info=error)
        self.tell(f"fx-lsp: internal error in {where}; see the log", types.MessageType.Error)

    def _request_pulls(self) -> None:
        self._pulls_due = False
        self.request_soon(types.WORKSPACE_DIAGNOSTIC_REFRESH)

    def _publish(self, uri: str, diagnostics: list[types.Diagnostic], version: int | None) -> None:
        params = types.PublishDiagnosticsParams(uri=uri, diagnostics=diagnostics, version=version)
        self.notify(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, params)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
