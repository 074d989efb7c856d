"""Editors for tests: one that speaks LSP through pytest-lsp, one that writes raw bytes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pytest_lsp import LanguageClient, make_test_lsp_client

FAKE = [sys.executable, str(Path(__file__).with_name("fake_engine.py"))]
REAL = [sys.executable, "-c", "import sys; from fx_lsp.server.app import serve; sys.exit(serve(trust_always=True))"]

FULL = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True, "showDocument": {"support": True}},
    "workspace": {
        "codeLens": {"refreshSupport": True},
        "inlayHint": {"refreshSupport": True},
        "textDocumentContent": {},
        "configuration": True,
    },
    "textDocument": {
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "publishDiagnostics": {"relatedInformation": True, "versionSupport": True},
    },
}


class Editor:
    """A client, the folder that it has open, and what the server sent it."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.refreshed: list[str] = []
        self.statuses: list[Any] = []
        self.versions: list[int | None] = []
        self.result: types.InitializeResult | None = None

        for method in (types.WORKSPACE_CODE_LENS_REFRESH, types.WORKSPACE_INLAY_HINT_REFRESH):
            client.feature(method)(self._refreshed(method))
        client.feature("fxLsp/status")(lambda params: self.statuses.append(params))

        @client.feature(types.WORKSPACE_TEXT_DOCUMENT_CONTENT_REFRESH)
        def content(params: types.TextDocumentContentRefreshParams) -> None:
            self.refreshed.append(params.uri)

    def _refreshed(self, method: str) -> Callable[[Any], None]:
        def refreshed(params: Any) -> None:
            self.refreshed.append(method)

        return refreshed

    def open(self, name: str, text: str, uri: str | None = None, language: str = "python") -> str:
        """Opens a document with this text (not on disk) and returns its URI."""
        uri = uri or (self.folder / name).as_uri()
        item = types.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
        return uri

    def change(self, uri: str, version: int, text: str, range_: types.Range | None = None) -> None:
        """Replaces a range, or the whole text."""
        change = (
            types.TextDocumentContentChangeWholeDocument(text=text)
            if range_ is None
            else types.TextDocumentContentChangePartial(range=range_, text=text)
        )
        document = types.VersionedTextDocumentIdentifier(uri=uri, version=version)
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(text_document=document, content_changes=[change])
        )

    async def lenses(self, uri: str) -> list[types.CodeLens]:
        document = types.TextDocumentIdentifier(uri=uri)
        return list(await self.client.text_document_code_lens_async(types.CodeLensParams(text_document=document)) or [])

    async def titles(self, uri: str) -> list[str]:
        return [lens.command.title for lens in await self.lenses(uri) if lens.command is not None]

    async def hover(self, uri: str, line: int, character: int) -> str | None:
        """The text of a hover; line and character count from 0."""
        found = await self.client.text_document_hover_async(
            types.HoverParams(
                text_document=types.TextDocumentIdentifier(uri=uri), position=types.Position(line, character)
            )
        )
        return found.contents.value if found is not None else None  # type: ignore[union-attr]

    async def hints(self, uri: str, last: int = 10_000) -> list[types.InlayHint]:
        range_ = types.Range(types.Position(0, 0), types.Position(last, 0))
        document = types.TextDocumentIdentifier(uri=uri)
        params = types.InlayHintParams(text_document=document, range=range_)
        return list(await self.client.text_document_inlay_hint_async(params) or [])

    async def command(self, name: str, *arguments: Any) -> Any:
        params = types.ExecuteCommandParams(command=name, arguments=list(arguments))
        return await self.client.workspace_execute_command_async(params)

    async def document(self, uri: str) -> str:
        """The text of a view, as a client with `workspace/textDocumentContent` reads it."""
        params = types.TextDocumentContentParams(uri=uri)
        return (await self.client.workspace_text_document_content_async(params)).text

    async def until(self, condition: Callable[[], Any], seconds: float = 600.0) -> Any:
        """Waits until `condition()` is true, and returns what it returned."""
        async with asyncio.timeout(seconds) if sys.version_info >= (3, 11) else _no_timeout():
            while not (found := condition()):
                await asyncio.sleep(0.01)
        return found

    async def problems(self, uri: str) -> list[types.Diagnostic]:
        """The problems of a document, once the server published a list."""
        await self.until(lambda: uri in self.client.diagnostics)
        return list(self.client.diagnostics[uri])


@asynccontextmanager
async def _no_timeout() -> AsyncIterator[None]:
    yield


class Choosing(Editor):
    """An editor whose user picks the first choice with `choice` in it, if there is one."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        super().__init__(client, folder)
        self.choice = ""
        self.offered: tuple[str, ...] = ()
        self.questions: list[str] = []

        @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
        def asked(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.questions.append(params.message)
            self.offered = tuple(action.title for action in params.actions or ())
            chosen = [title for title in self.offered if self.choice and self.choice in title]
            return types.MessageActionItem(chosen[0]) if chosen else None

    @property
    def told(self) -> list[str]:
        return [message.message for message in self.client.messages]

    @property
    def shown(self) -> list[str]:
        return [document.uri for document in self.client.shown_documents]


E = TypeVar("E", bound=Editor)


@asynccontextmanager
async def editor(
    folder: Path,
    capabilities: dict[str, Any] | None = None,
    options: Any = {},  # noqa: B006
    configuration: Any = None,
    command: list[str] = FAKE,
    env: dict[str, str] | None = None,
    folders: Sequence[str] = (".",),
    make: type[E] = Editor,
) -> AsyncIterator[E]:
    """An editor with these `folders` below `folder` open; the server is shut down in order at the end."""
    client = make_test_lsp_client()
    if configuration is not None:
        client.set_configuration({"fx-lsp": configuration})
    await client.start_io(*command, env={**os.environ, "XDG_CACHE_HOME": str(folder / ".cache"), **(env or {})})
    found = make(client, folder)
    opened = [types.WorkspaceFolder(uri=(folder / name).as_uri(), name=name) for name in folders]
    structure = client.protocol._converter.structure
    params = types.InitializeParams(
        capabilities=structure(FULL if capabilities is None else capabilities, types.ClientCapabilities),
        workspace_folders=opened,
        initialization_options={"codeLens.all": True, **options} if isinstance(options, dict) else options,
    )
    try:
        found.result = await client.initialize_session(params)
        yield found
        await client.shutdown_session()
        assert client._server is not None
        assert client._server.returncode == 0
    finally:
        if client._server is not None and client._server.returncode is None:
            client._server.kill()
        await client.stop()


@asynccontextmanager
async def traced(folder: Path, text: str, *args: Any, **options: Any) -> AsyncIterator[tuple[Any, str]]:
    """An editor that has `m.py` with this text open, and its URI, once its problems are known."""
    async with editor(folder, *args, **options) as e:
        uri = e.open("m.py", text)
        await e.problems(uri)
        yield e, uri


class Wire:
    """The server's process and its pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send(self, method: str, params: Any = None, msg_id: int | str | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.body(json.dumps(message if msg_id is None else {**message, "id": msg_id}).encode())

    def body(self, body: bytes) -> None:
        self.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    async def read(self) -> Any:
        """The next message, or None at the end of the output."""
        assert self.process.stdout is not None
        length = 0
        while line := (await asyncio.wait_for(self.process.stdout.readline(), 600)).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(await self.process.stdout.readexactly(length)) if length else None

    async def answer(self, msg_id: int | str | None) -> Any:
        """The next response with this id."""
        while (message := await self.read()) is not None:
            if "method" not in message and message.get("id") == msg_id:
                return message
        raise AssertionError(f"the server ended without an answer to {msg_id}")

    async def initialize(
        self, capabilities: Any = None, process_id: int | None = None, root: Path | None = None
    ) -> Any:
        root_uri = None if root is None else root.as_uri()
        params = {"processId": process_id, "rootUri": root_uri, "capabilities": capabilities or {}}
        self.send("initialize", params, msg_id="init")
        answer = await self.answer("init")
        self.send("initialized", {})
        return answer


@asynccontextmanager
async def wire(command: list[str] = FAKE) -> AsyncIterator[Wire]:
    """A server's process with its pipes, killed at the end if it still runs."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield Wire(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def served(capabilities: Any = None, **more: Any) -> AsyncIterator[Wire]:
    """The same, once it is initialized."""
    async with wire() as server:
        await server.initialize(capabilities, **more)
        yield server


async def ask(e: Editor, method: str, **params: object) -> object:
    """A request of ours, its result as plain data."""
    return plain(await e.client.protocol.send_request_async(method, params))


def plain(found: object) -> object:
    """Objects of the protocol as dictionaries: they are named tuples."""
    if hasattr(found, "_asdict"):
        return {key: plain(value) for key, value in found._asdict().items()}  # type: ignore[attr-defined]
    return [plain(item) for item in found] if isinstance(found, (list, tuple)) else found
