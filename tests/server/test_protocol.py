"""The protocol itself: what is answered when, and how the server ends."""

import asyncio
import subprocess
import sys

import pytest
from sessions import FAKE, REAL, served, wire

NOT_INITIALIZED, INVALID_REQUEST, INVALID_PARAMS, PARSE_ERROR, NO_METHOD = -32002, -32600, -32602, -32700, -32601
CANCELLED = -32800


def test_the_server_imports_no_torch():
    code = "import fx_lsp.server.app, sys; assert not {'torch', 'numpy', 'sqlite3'} & set(sys.modules), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_capabilities():
    async with wire() as server:
        capabilities = (await server.initialize({"general": {"positionEncodings": ["utf-32", "utf-8"]}}))["result"][
            "capabilities"
        ]
    assert capabilities["positionEncoding"] == "utf-32"
    assert capabilities["workspace"]["textDocumentContent"] == {"schemes": ["fx-lsp"]}
    assert capabilities["textDocumentSync"]["change"] == 2
    assert capabilities["textDocumentSync"]["openClose"]
    assert capabilities["hoverProvider"]
    assert capabilities["codeLensProvider"] == {"resolveProvider": False}
    assert capabilities["inlayHintProvider"] == {"resolveProvider": True}
    assert capabilities["diagnosticProvider"]["interFileDependencies"]
    assert set(capabilities["executeCommandProvider"]["commands"]) == {
        "fxLsp.showStage",
        "fxLsp.menu",
        "fxLsp.commands",
        "fxLsp.passes",
        "fxLsp.runPass",
        "fxLsp.showFailure",
        "fxLsp.writeKernel",
        "fxLsp.bench",
        "fxLsp.stopBench",
        "fxLsp.hosts",
        "fxLsp.interpreters",
        "fxLsp.pickInterpreter",
        "fxLsp.restart",
        "fxLsp.clearCache",
        "fxLsp.trust",
        "fxLsp.revokeTrust",
    }


async def test_requests_before_initialize_are_refused():
    async with wire() as server:
        server.send("textDocument/hover", {}, msg_id=1)
        assert (await server.answer(1))["error"]["code"] == NOT_INITIALIZED
        assert "result" in await server.initialize()
        server.send("initialize", {"capabilities": {}, "processId": None, "rootUri": None}, msg_id=2)
        assert (await server.answer(2))["error"]["code"] == INVALID_REQUEST


async def test_requests_after_shutdown_are_refused_and_exit_ends_with_0():
    async with served() as server:
        server.send("shutdown", msg_id=1)
        assert (await server.answer(1))["result"] is None
        server.send("textDocument/hover", {"garbage": True}, msg_id=2)
        assert (await server.answer(2))["error"]["code"] == INVALID_REQUEST
        server.send("exit")
        assert await asyncio.wait_for(server.process.wait(), 600) == 0


@pytest.mark.parametrize("session", [served, wire], ids=["initialized", "not initialized"])
async def test_exit_without_shutdown_ends_with_1(session):
    async with session() as server:
        server.send("exit")
        assert await asyncio.wait_for(server.process.wait(), 600) == 1


@pytest.mark.parametrize("command", [FAKE, REAL], ids=["fake", "real"])
async def test_the_end_of_the_input_is_the_end(command: list[str]):
    async with wire(command) as server:
        await server.initialize()
        server.process.stdin.close()
        assert await asyncio.wait_for(server.process.wait(), 600) == 1


async def test_the_server_ends_with_the_client_that_started_it():
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=asyncio.subprocess.PIPE)
    async with served(process_id=parent.pid) as server:
        parent.kill()
        await parent.wait()
        assert await asyncio.wait_for(server.process.wait(), 600) == 1


async def test_a_client_in_another_container_has_no_process_here():
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    async with served(process_id=gone.pid) as server:
        server.send("shutdown", msg_id=1)
        assert "result" in await server.answer(1)


async def test_malformed_messages_are_answered_and_survived():
    async with served() as server:
        server.body(b"{ not json")
        assert (await server.answer(None))["error"]["code"] == PARSE_ERROR
        server.body(b"[1, 2]")
        assert (await server.answer(None))["error"]["code"] == INVALID_REQUEST
        server.send("textDocument/hover", {"position": "here"}, msg_id=1)
        assert (await server.answer(1))["error"]["code"] == INVALID_PARAMS
        server.send("fxLsp/document", {"uri": "file:///a.py"}, msg_id=2)
        assert (await server.answer(2))["error"]["code"] == INVALID_PARAMS
        server.send("fxLsp/document", {}, msg_id=3)
        assert (await server.answer(3))["error"]["code"] == INVALID_PARAMS
        server.send("fxLsp/nothing", {}, msg_id=4)
        assert (await server.answer(4))["error"]["code"] == NO_METHOD
        server.send("textDocument/didChange", {"textDocument": 4})
        server.write(b"Content-Length: many\r\nX-Other: 1\r\n\r\n")
        server.write(b"content-length: 44\r\n\r\n" + b'{"jsonrpc":"2.0","id":5,"method":"shutdown"}')
        assert (await server.answer(5))["result"] is None


async def test_a_cancelled_request_stops_and_nothing_is_said_of_it():
    async with served() as server:
        item = {"uri": "file:///m.py", "languageId": "python", "version": 1, "text": "def f(x): return slow\n"}
        server.send("textDocument/didOpen", {"textDocument": item})
        server.send("fxLsp/document", {"uri": "fx-lsp:/m.py/f.inference.py"}, msg_id=1)
        arguments = ["file:///m.py", "f", "inference"]
        server.send("workspace/executeCommand", {"command": "fxLsp.showStage", "arguments": arguments}, msg_id=2)
        for msg_id in (1, 2):
            await asyncio.sleep(0.1)
            server.send("$/cancelRequest", {"id": msg_id})
            seen = []
            while (message := await server.read()).get("id") != msg_id:
                seen.append(message)
            assert message["error"]["code"] == CANCELLED
            assert "window/showMessage" not in [m.get("method") for m in seen]
            statuses = [m["params"]["message"] for m in seen if m["method"] == "fxLsp/status"]
            assert statuses[-1] == f"cancelled waits: {msg_id}"
        server.send("$/cancelRequest", {"id": 77})
        server.send("shutdown", msg_id=3)
        await server.answer(3)
        server.send("exit")
        _, log = await server.process.communicate()
        assert b"rror" not in log


async def test_what_prints_does_not_reach_the_client():
    async with served() as server:
        item = {"uri": "file:///m.py", "languageId": "python", "version": 1, "text": "def f(x): return x\n"}
        server.send("textDocument/didOpen", {"textDocument": item})
        server.send("shutdown", msg_id=1)
        await server.answer(1)
        server.send("exit")
        out, log = await server.process.communicate()
        assert (out, b"printed by the engine" in log) == (b"", True)
