"""The least that a client of the server's process can be: one session, synchronous, standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def session(command: Sequence[str], opened: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Starts a server, opens a file, asks for its lenses, and shuts down in order; the answer to `initialize`."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}
    )
    guard = threading.Timer(60, process.kill)
    guard.start()
    try:
        uri = opened.as_uri()
        answer = _ask(
            process, 1, "initialize", {"processId": None, "rootUri": opened.parent.as_uri(), "capabilities": {}}
        )
        _send(process, {"method": "initialized", "params": {}})
        document = {"uri": uri, "languageId": "python", "version": 1, "text": opened.read_text()}
        _send(process, {"method": "textDocument/didOpen", "params": {"textDocument": document}})
        _ask(process, 2, "textDocument/codeLens", {"textDocument": {"uri": uri}})
        _ask(process, 3, "shutdown", None)
        _send(process, {"method": "exit"})
        assert process.wait() == 0
    finally:
        guard.cancel()
        process.kill()
        process.communicate()
    return answer


def _ask(process: subprocess.Popen[bytes], number: int, method: str, params: Any) -> dict[str, Any]:
    _send(process, {"id": number, "method": method, "params": params})
    assert process.stdout is not None
    length = 0
    while header := process.stdout.readline():
        if header.lower().startswith(b"content-length:"):
            length = int(header.split(b":")[1])
        if header.strip():
            continue
        message = json.loads(process.stdout.read(length))
        if message.get("id") == number and "method" not in message:
            assert "error" not in message, message
            return message["result"]
    raise AssertionError(f"the server ended without an answer to {method}")


def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    process.stdin.flush()
