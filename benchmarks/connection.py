"""A client of the server's process, of the standard library alone: what it asks is answered, refused, or silence."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "server")]

from processes import Processes  # noqa: E402

SERVE = (sys.executable, "-m", "fx_lsp", "serve")
CAPABILITIES = {
    "window": {"workDoneProgress": True, "showDocument": {"support": True}},
    "workspace": {
        "textDocumentContent": {},
        "codeLens": {"refreshSupport": True},
        "inlayHint": {"refreshSupport": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True},
    },
    "textDocument": {"publishDiagnostics": {"versionSupport": True}},
}
_BUG = re.compile(r"Traceback \(most recent call last\)")


class Silent(Exception):
    """No answer came in time."""


class Refused(Exception):
    """The server answered with an error, which is a sentence for the user."""


class Ended(Exception):
    """The server ended before it answered."""


class Connection:
    """One server with what it said: problems by URI, its last status, messages to the user, its log.

    `processes` are all that it started, `temporary` is where its temporary files are.
    """

    def __init__(self, process: asyncio.subprocess.Process, processes: Processes, log: Path, temporary: Path) -> None:
        self.process = process
        self.processes = processes
        self.temporary = temporary
        self.problems: dict[str, list[Any]] = {}
        self.status: dict[str, Any] = {}
        self.messages: list[str] = []
        self.sent = 0
        self._log = log
        self._answers: dict[int | str, asyncio.Future[Any]] = {}
        self._reader = asyncio.ensure_future(self._read())

    @property
    def log(self) -> str:
        """Return what the server wrote to its standard error."""
        return self._log.read_text(errors="replace")

    @property
    def bugs(self) -> int:
        """Return how many tracebacks and internal errors the log has."""
        return len(_BUG.findall(self.log))

    @property
    def first_bug(self) -> str:
        """Return the first one, up to the line that names the exception."""
        match = _BUG.search(self.log)
        lines = self.log[match.start() :].splitlines() if match else [""]
        last = next((n for n, line in enumerate(lines) if n and not line.startswith(" ")), len(lines) - 1)
        return "\n".join([*lines[: last + 1]][-60:])

    @property
    def leftovers(self) -> list[str]:
        """Return the temporary files that there are."""
        return sorted(str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*") if not path.is_dir())

    @property
    def is_quiet(self) -> bool:
        """Return whether the server says that nothing is left to trace."""
        return bool(self.status.get("quiescent"))

    def write(self, data: bytes) -> None:
        """Send bytes as they are; a server that is gone does not get them."""
        assert self.process.stdin is not None
        self.sent += 1
        with suppress(OSError, RuntimeError):
            self.process.stdin.write(data)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.send({"method": method, "params": params})

    def request(self, method: str, params: Any = None) -> tuple[int, asyncio.Future[Any]]:
        """Send a request; return its number and its answer to come."""
        number = self.sent
        return number, self.expect({"id": number, "method": method, "params": params})

    def expect(self, message: Mapping[str, Any]) -> asyncio.Future[Any]:
        """Send a message with an id; return its answer to come."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answers[message["id"]] = answer
        if self._reader.done():
            answer.set_exception(Ended())
        self.send(message)
        return answer

    async def ask(self, method: str, params: Any = None, seconds: float = 60.0) -> Any:
        """Return the result of a request. Raises Refused, Silent and Ended."""
        _, answer = self.request(method, params)
        return await within(answer, seconds, method)

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Return what `condition()` is once it is true. Raises Silent and Ended."""
        for _ in range(int(seconds / 0.02)):
            if value := condition():
                return value
            if self._reader.done():
                raise Ended
            await asyncio.sleep(0.02)
        raise Silent("what is waited for did not happen")

    async def quiet(self, seconds: float = 120.0) -> None:
        """Wait until nothing is left to trace, and what was done last has begun."""
        await asyncio.sleep(0.4)
        await self.until(lambda: self.is_quiet, seconds)

    def open(self, uri: str, text: str) -> None:
        """Open a document."""
        item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})

    def change(self, uri: str, version: int, *changes: Mapping[str, Any]) -> None:
        """Change a document."""
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": changes})

    def close(self, uri: str) -> None:
        """Close a document."""
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    async def titles(self, uri: str) -> list[str]:
        """Return the titles of a document's lenses."""
        lenses = await self.ask("textDocument/codeLens", {"textDocument": {"uri": uri}})
        return [lens["command"]["title"] for lens in lenses or ()]

    async def view(self, uri: str, seconds: float = 60.0) -> str:
        """Return the text of a view."""
        return (await self.ask("workspace/textDocumentContent", {"uri": uri}, seconds))["text"]

    async def end(self) -> int:
        """Shut down in order; return the exit code. Raises Silent."""
        with suppress(Ended):
            await self.ask("shutdown")
            self.notify("exit")
        return await within(self.process.wait(), 30, "exit")

    async def kill(self) -> None:
        """End the server at once."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        await self._reader

    async def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        with suppress(asyncio.IncompleteReadError, ValueError):
            while header := await stream.readuntil(b"\r\n\r\n"):
                length = int(header.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                self._hear(json.loads(await stream.readexactly(length)))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Ended())

    def _hear(self, message: Any) -> None:
        method, params = message.get("method"), message.get("params")
        if method is None:
            answer = self._answers.pop(message.get("id"), None)
            if answer is not None and not answer.done():
                if "error" in message:
                    answer.set_exception(Refused(message["error"]["message"]))
                else:
                    answer.set_result(message["result"])
        elif "id" in message:
            self.send({"id": message["id"], "result": {"success": True} if method == "window/showDocument" else None})
        elif method == "textDocument/publishDiagnostics":
            self.problems[params["uri"]] = params["diagnostics"]
        elif method == "fxLsp/status":
            self.status = params
        elif method == "window/showMessage":
            self.messages.append(params["message"])


async def within(answer: Any, seconds: float, what: str) -> Any:
    """Return what `answer` becomes. Raises Silent where that takes longer than `seconds`."""
    done, _ = await asyncio.wait({asyncio.ensure_future(answer)}, timeout=seconds)
    if not done:
        raise Silent(f"{what} has no answer within {seconds:.0f} s")
    return done.pop().result()


@asynccontextmanager
async def connect(
    folder: Path,
    options: Mapping[str, Any] | None = None,
    command: Sequence[str] = SERVE,
    env: Mapping[str, str] | None = None,
    encoding: str = "utf-16",
) -> AsyncIterator[Connection]:
    """Yield a server with `folder` open, killed at the end if it still runs. Its cache is below
    `folder`; its temporary files are not."""
    processes = Processes()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(folder / ".cache"),
        "XDG_CONFIG_HOME": str(folder / ".config"),
        "XDG_STATE_HOME": str(folder / ".state"),
        **processes.env,
        **(env or {}),
    }
    with tempfile.NamedTemporaryFile(suffix=".log") as log, tempfile.TemporaryDirectory() as temporary:
        environment["TMPDIR"] = temporary
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=log, env=environment, cwd=folder, limit=1 << 28
        )
        connection = Connection(process, processes, Path(log.name), Path(temporary))
        try:
            parameters = {
                "processId": os.getpid(),
                "workspaceFolders": [{"uri": folder.as_uri(), "name": "folder"}],
                "capabilities": {**CAPABILITIES, "general": {"positionEncodings": [encoding]}},
                "initializationOptions": {"interpreter": sys.executable, "trusted": True, **(options or {})},
            }
            await connection.ask("initialize", parameters)
            connection.notify("initialized", {})
            yield connection
        finally:
            await connection.kill()


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has (Linux; else 0)."""
    try:
        return len([*Path(f"/proc/{pid}/fd").iterdir()])
    except OSError:
        return 0


def open_files(pid: int) -> list[str]:
    """Return what the descriptors of a process lead to (Linux; else nothing)."""
    found: list[str] = []
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                found.append(re.sub(r"\d+", "", str(path.readlink())))
    return sorted(found)


def resident(pid: int) -> int:
    """Return the bytes of memory that a process has (Linux; else 0)."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
