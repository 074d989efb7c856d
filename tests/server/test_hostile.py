"""A hostile client: broken frames, ids, URIs, positions. Each has an answer or a sentence, and the server goes on."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from sessions import Wire, served

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS = -32700, -32600, -32602


async def goes_on(server: Wire) -> None:
    """A request is answered."""
    server.send("textDocument/codeLens", {"textDocument": {"uri": "file:///nothing.py"}}, msg_id="next")
    assert "result" in await server.answer("next")


@asynccontextmanager
async def quiet() -> AsyncIterator[Wire]:
    """A server that goes on after what it gets, ends in order, and has nothing in its log but warnings."""
    async with served() as server:
        yield server
        await goes_on(server)
        server.send("shutdown", msg_id="last")
        assert (await server.answer("last"))["result"] is None
        server.send("exit")
        _, log = await server.process.communicate()
        assert b"internal error" not in log and b"ERROR fx_lsp" not in log, log.decode()


LENGTHS = {
    "1000000000000": "a message of 1,000,000,000,000 bytes",
    "1000000000000000000": "a message whose length has 19 digits",
    "9" * 5000: "a message whose length has 5000 digits",
}


@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: f"{len(length)} digits")
async def test_a_length_that_nothing_has_ends_the_connection_with_a_sentence(length: str):
    async with served() as server:
        server.write(b"Content-Length: %s\r\n\r\n{}" % length.encode())
        error = (await server.answer(None))["error"]
        said = "exceeds the limit of 268,435,456 bytes: the connection is closed"
        assert (error["code"], error["message"]) == (PARSE_ERROR, f"{LENGTHS[length]} {said}")
        assert await asyncio.wait_for(server.process.wait(), 600) == 1


async def test_a_header_without_a_length_is_skipped_with_what_follows():
    async with quiet() as server:
        for header in ("Content-Length: +44", "Content-Length: -5", "Content-Length: ٤", "X-Other: 1"):
            server.write(f'{header}\r\n\r\n{{"jsonrpc":"2.0","id":5,"method":"exit"}}'.encode())
            error = (await server.answer(None))["error"]
            assert error["message"] == "a message whose header has no Content-Length was skipped"


async def test_garbage_is_skipped():
    async with quiet() as server:
        server.write(b"\xff\x00 garbage {}\n" * 10_000)
        await goes_on(server)
        server.write(b"x" * 1_000_000)
        await goes_on(server)
        server.write(b"\r\n\r\n\r\n")
        server.write(b"Content-Length: 0000000000000000000000002\r\n\r\n{}")
        assert (await server.answer(None))["error"]["code"] == INVALID_REQUEST


async def test_what_is_no_id_no_method_and_no_version_is_refused():
    async with quiet() as server:
        for msg_id in ([1], {"a": 1}, True):
            server.send("textDocument/hover", {}, msg_id=msg_id)
            assert (await server.answer(None))["error"]["code"] == INVALID_REQUEST
            server.send("$/cancelRequest", {"id": msg_id})
            server.send("window/workDoneProgress/cancel", {"token": msg_id})
        for method in (["a"], 7, {}):
            server.send(method, {}, msg_id=1)  # type: ignore[arg-type]
            assert (await server.answer(None))["error"]["code"] == INVALID_REQUEST
        for version in (2, "1.0", None, []):
            server.body(json.dumps({"jsonrpc": version, "id": 1, "method": "textDocument/hover"}).encode())
            error = (await server.answer(1))["error"]
            assert (error["code"], error["message"]) == (INVALID_REQUEST, "the version of JSON-RPC must be 2.0")
            server.body(json.dumps({"jsonrpc": version, "method": "textDocument/didSave"}).encode())


def uris(folder: Path) -> list[str]:
    os.mkfifo(folder / "fifo.py")
    return [
        (folder / "fifo.py").as_uri(),
        folder.as_uri(),
        "file:///dev/zero",
        "file:///a%00b.py",
        "file:///\ud800.py",
        "file:///%ff%fe.py",
        "file://[bad/x.py",
        f"file:///{'a' * 5000}.py",
        "untitled:\0\ud800",
        "fx-lsp:/a%00b.py/f.forward.py",
        "fx-lsp:\ud800",
        "http://[::1",
        "",
    ]


async def test_no_uri_harms(tmp_path: Path):
    async with quiet() as server:
        far = {"line": 2**53, "character": 2**53}
        for number, uri in enumerate(uris(tmp_path)):
            document = {"uri": uri}
            item = {**document, "languageId": "python", "version": 1, "text": "def f(x): return x\n"}
            change = {"range": {"start": far, "end": far}, "text": "\ud800"}
            server.send("textDocument/didOpen", {"textDocument": item})
            server.send(
                "textDocument/didChange", {"textDocument": {**document, "version": 2}, "contentChanges": [change]}
            )
            server.send("workspace/didChangeWatchedFiles", {"changes": [{**document, "type": 2}]})
            requests: list[tuple[str, dict[str, Any]]] = [
                ("textDocument/hover", {"textDocument": document, "position": far}),
                ("textDocument/inlayHint", {"textDocument": document, "range": {"start": far, "end": far}}),
                ("textDocument/codeLens", {"textDocument": document}),
                ("workspace/textDocumentContent", document),
                ("workspace/executeCommand", {"command": "fxLsp.showFailure", "arguments": [uri, "f"]}),
            ]
            for method, params in requests:
                server.send(method, params, msg_id=f"{number} {method}")
                assert await server.answer(f"{number} {method}")
            server.send("textDocument/didClose", {"textDocument": document})


@pytest.mark.parametrize("line", [2**31, -1, 1e999], ids=str)
async def test_a_place_that_no_text_has_is_an_invalid_parameter(tmp_path: Path, line: float):
    async with quiet() as server:
        params = {"uri": (tmp_path / "m.py").as_uri(), "position": {"line": line, "character": 0}}
        server.send("fxLsp/related", params, msg_id=1)
        assert (await server.answer(1))["error"]["code"] == INVALID_PARAMS


async def test_a_path_that_no_file_can_have_is_an_invalid_parameter(tmp_path: Path):
    async with quiet() as server:
        for path in ("a\0b.py", "file:///a%00b.py", "\ud800.py"):
            arguments = [(tmp_path / "m.py").as_uri(), "f", path]
            server.send("workspace/executeCommand", {"command": "fxLsp.writeKernel", "arguments": arguments}, msg_id=1)
            error = (await server.answer(1))["error"]
            assert error["code"] == INVALID_PARAMS
            assert "is not a path: this is not a valid file name" in error["message"]


async def test_what_is_no_file_is_not_traced(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo.py")
    async with quiet() as server:
        arguments = [(tmp_path / "fifo.py").as_uri(), "f", "forward"]
        server.send("workspace/executeCommand", {"command": "fxLsp.showStage", "arguments": arguments}, msg_id=1)
        error = (await server.answer(1))["error"]
        assert error["message"].replace(str(tmp_path), "…") == snapshot(
            "'file://…/fifo.py' is not a document that is traced"
        )
