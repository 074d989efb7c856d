"""JSON-RPC over standard input and output, extending pygls.

Requests before `initialize` and after `shutdown` get the error of the protocol; a malformed message gets a response;
`exit` ends the process with 0 or 1; a cancelled command stops; prints cannot reach the client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from typing import Any, BinaryIO, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.protocol import JsonRPCResponseMessage, LanguageServerProtocol, lsp_method

from fx_lsp.features.wording.uris import SCHEME
from fx_lsp.server.frames import BrokenFrame, Outbox, read_frames

log = logging.getLogger(__name__)
FLUSH_SECONDS = 2.0
"""The longest time in seconds that the end of the server waits for a client to read the last messages."""


class Protocol(LanguageServerProtocol):
    """Implement the protocol of one connection. `finished` is set to the exit code when it ends.

    `on_shutdown` ends the processes of fx-lsp before the response; `on_error` is called for a message that raised an
    exception, `on_message` for every message.
    """

    on_shutdown: Callable[[], Awaitable[None]]
    on_error: Callable[[str, BaseException], None]

    # `Documents` keeps the texts and notebooks: pygls splits lines at form feeds, unlike LSP and Python, and clamps
    # positions beyond the end of a line one character short.
    lsp_text_document__did_open = None  # type: ignore[assignment]
    lsp_text_document__did_change = None  # type: ignore[assignment]
    lsp_text_document__did_close = None  # type: ignore[assignment]
    lsp_notebook_document__did_open = None  # type: ignore[assignment]
    lsp_notebook_document__did_change = None  # type: ignore[assignment]
    lsp_notebook_document__did_close = None  # type: ignore[assignment]

    def __init__(self, server: Any, converter: Any) -> None:
        super().__init__(server, converter)
        self.finished: asyncio.Future[int] | None = None
        self.outbox: Outbox | None = None
        self.on_message: Callable[[], None] = lambda: None
        self._initialized = False

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """Add the scheme of views to the capabilities of pygls. Requests that only views support are registered for
        them alone.
        """
        result = yield from super().lsp_initialize(params)
        can = result.capabilities
        can.definition_provider = can.document_highlight_provider = can.references_provider = None
        can.document_symbol_provider = can.folding_range_provider = can.semantic_tokens_provider = None
        can.call_hierarchy_provider = None
        if result.capabilities.workspace is not None:
            result.capabilities.workspace.text_document_content = types.TextDocumentContentOptions(schemes=[SCHEME])
        return result

    # pygls accepts any kind of handler; it has the three below as generators, for user handlers, of which there are
    # none.
    @lsp_method(types.SHUTDOWN)
    async def lsp_shutdown(self, *args: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Cancel running requests, and end the processes of fx-lsp before the response."""
        self._shutdown = True
        current = cast("object", asyncio.current_task())
        for future in list(self._request_futures.values()):
            if future is not current:
                future.cancel()
        await self.on_shutdown()

    @lsp_method(types.EXIT)
    def lsp_exit(self, *args: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """End the main loop."""
        self.finish(0 if self._shutdown else 1)

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, params: types.ExecuteCommandParams
    ) -> Any:
        """Run a command in the request's own task, so that cancelling the request stops the command."""
        command: Callable[[list[Any]], Any] | None = cast("Any", self.fm).commands.get(params.command)
        if command is None:
            raise JsonRpcInvalidParams(f"there is no command {params.command!r}")
        return await command(list(params.arguments or ()))

    def finish(self, code: int) -> None:
        """End the main loop with an exit code; only the first call has an effect."""
        if self.finished is not None and not self.finished.done():
            self.finished.set_result(code)

    def receive(self, data: object) -> None:
        """Handle the JSON of one message from the client, or a broken frame. Never raises."""
        self.on_message()
        if isinstance(data, BrokenFrame):
            log.log(logging.ERROR if data.is_end else logging.WARNING, "%s", data.sentence)
            self._refuse(None, types.ErrorCodes.ParseError, data.sentence)
            return
        if not isinstance(data, dict) or "jsonrpc" not in data:
            self._refuse(None, types.ErrorCodes.InvalidRequest, "the message is not a JSON-RPC object")
            return
        table = cast("dict[str, Any]", data)
        msg_id, method = table.get("id"), table.get("method")
        if not _is_id(msg_id) or not (method is None or isinstance(method, str)):
            what = "the id of a message must be a number or a string, and its method a string"
            self._refuse(None, types.ErrorCodes.InvalidRequest, what)
            return
        refusal = self._refusal(method, table["jsonrpc"])
        if refusal is not None:
            if msg_id is not None:
                self._refuse(msg_id, *refusal)
            return
        try:
            message = self.structure_message(table)
            params = getattr(message, "params", None)
            if not all(_is_id(getattr(params, name, None)) for name in ("id", "token")):
                raise JsonRpcInvalidParams("the id of a request or of a progress token is invalid")
        except JsonRpcException:
            log.warning("malformed message for %s", method)
            if msg_id is not None and method is not None:
                self._refuse(msg_id, types.ErrorCodes.InvalidParams, f"the parameters of {method} are malformed")
            return
        if method == types.INITIALIZE:
            self._initialized = True
        try:
            self.handle_message(cast("Any", message))
        except Exception as error:
            self.on_error(str(method), error)

    def _refusal(self, method: str | None, version: object) -> tuple[int, str] | None:
        if method is None or method == types.EXIT:
            return None
        if version != self.VERSION:
            return types.ErrorCodes.InvalidRequest, f"the version of JSON-RPC must be {self.VERSION}"
        if self._shutdown:
            return types.ErrorCodes.InvalidRequest, "the server is shutting down"
        if not self._initialized and method != types.INITIALIZE:
            return types.ErrorCodes.ServerNotInitialized, "the server is not initialized"
        if self._initialized and method == types.INITIALIZE:
            return types.ErrorCodes.InvalidRequest, "the server is already initialized"
        return None

    def _send_data(self, data: Any) -> None:
        """Send a message. The JSON of a response without a type of the protocol is passed on as it is."""
        if self.outbox is not None:
            is_plain = type(data) is JsonRPCResponseMessage
            self.outbox.put({"jsonrpc": data.jsonrpc, "id": data.id, "result": data.result} if is_plain else data)

    def _refuse(self, msg_id: str | int | None, code: int, message: str) -> None:
        error = types.ResponseError(code=int(code), message=message)
        self._send_data(types.ResponseErrorMessage(jsonrpc="2.0", id=msg_id, error=error))


async def run(protocol: Protocol, stdin: BinaryIO, stdout: BinaryIO) -> int:
    """Serve one client until it ends; the exit code is 0 after an orderly shutdown, else 1."""
    loop = asyncio.get_running_loop()
    protocol.finished = loop.create_future()

    def later(call: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(call, *arguments)

    protocol.outbox = Outbox(
        stdout,
        protocol._serialize_message,  # pyright: ignore[reportPrivateUsage]
        lambda error: later(protocol.on_error, "the protocol", error),
        lambda: later(protocol.finish, 1),
    )

    def read() -> None:
        for frame in read_frames(stdin):
            later(protocol.receive, frame if isinstance(frame, BrokenFrame) else _parsed(frame))
        later(protocol.lsp_exit)

    # Not a pool thread: the interpreter would wait for it, and so for the client, at exit.
    threading.Thread(target=read, name="reader", daemon=True).start()
    code = await protocol.finished
    await protocol.on_shutdown()
    await asyncio.to_thread(protocol.outbox.end, FLUSH_SECONDS)
    return code


def claim_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Return the real standard input and output, for the protocol alone.

    Afterwards file descriptor 0 is empty and 1 is standard error, for this process and its children.
    """
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    if sys.platform == "win32":
        import msvcrt

        for handle in (stdin, stdout):
            msvcrt.setmode(handle, os.O_BINARY)
    return os.fdopen(stdin, "rb"), os.fdopen(stdout, "wb")


def _parsed(frame: bytes) -> object:
    try:
        return json.loads(frame)
    except (ValueError, RecursionError):
        return BrokenFrame("the message is not JSON")


def _is_id(value: object) -> bool:
    """Return True if the value is valid as a message id; a notification has none."""
    return value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool))
