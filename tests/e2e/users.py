"""A user of the real server, who reads what an editor shows."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any

from lsprotocol import types
from processes import Processes
from pytest_lsp import LanguageClient
from sessions import Editor, editor
from warm import warm_python

SERVE = [sys.executable, "-m", "fx_lsp", "serve", "--trust"]
PATIENCE = 300.0
FORWARD = "ops forward"

_numbers = count(1)


def options(interpreter: str | None = None, seconds: float = 60) -> dict[str, Any]:
    """The settings of a server. `processes` are all there with Python as it is alone: `sys.executable`."""
    return {"interpreter": interpreter or warm_python(), "limits": {"seconds": seconds, "memory": 1024}}


class User(Editor):
    """An editor whose user reads what it shows. `processes` are all that its server started."""

    processes: Processes

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        super().__init__(client, folder)
        self.watched: list[str] = []

        @client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def registered(params: types.RegistrationParams) -> None:
            asked = [r for r in params.registrations if r.method == types.WORKSPACE_DID_CHANGE_WATCHED_FILES]
            self.watched += [watcher["globPattern"] for r in asked for watcher in r.register_options["watchers"]]

    async def told(self, source: str, name: str | None = None) -> list[str]:
        """What stands in the list of problems for a new file: `line: message`, once there is something."""
        uri = self.start(source, name)
        await self.until(lambda: self.client.diagnostics.get(uri), PATIENCE)
        found = [f"{d.range.start.line + 1}: {d.message}" for d in self.client.diagnostics[uri]]
        self.close(uri)
        return found

    def start(self, source: str, name: str | None = None) -> str:
        return self.open(name or f"bad_{next(_numbers)}.py", textwrap.dedent(source))

    def close(self, uri: str) -> None:
        document = types.TextDocumentIdentifier(uri=uri)
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(text_document=document))

    def write(self, name: str, text: str | None) -> None:
        """Another program writes a file, or removes it (None); the server is told if it has asked to be."""
        path = self.folder / name
        kind = types.FileChangeType.Changed if path.exists() else types.FileChangeType.Created
        if text is None:
            path.unlink()
            kind = types.FileChangeType.Deleted
        else:
            path.write_text(text)
        if any(fnmatchcase(name, pattern.removeprefix("**/")) for pattern in self.watched):
            changes = [types.FileEvent(uri=path.as_uri(), type=kind)]
            self.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(changes=changes))

    async def lens(self, uri: str, part: str = FORWARD) -> str:
        """The first lens with `part` in its title, once there is one."""
        while True:
            for title in await self.titles(uri):
                if part in title:
                    return title
            await asyncio.sleep(0.05)

    async def hovers(self, uri: str, line: int, character: int, part: str) -> None:
        """A hover there says `part`, sooner or later."""

        async def says() -> None:
            while part not in str(await self.hover(uri, line, character)):
                await asyncio.sleep(0.05)

        await asyncio.wait_for(says(), PATIENCE)

    def progress(self) -> object:
        """The token of a progress that has begun and not ended."""
        open_ = (
            token
            for token, reports in self.client.progress_reports.items()
            if reports and not isinstance(reports[-1], types.WorkDoneProgressEnd)
        )
        return next(open_, None)

    async def traces(self) -> None:
        """A good function, new to the cache, gets its lens: the server and its tracers are alive."""
        number = next(_numbers)
        uri = self.start(f"import torch\n\ndef good(x: torch.Tensor):\n    return torch.relu(x) * {number}\n")
        await asyncio.wait_for(self.lens(uri), PATIENCE)
        self.close(uri)


@asynccontextmanager
async def started(folder: Path, extra_env: dict[str, str] | None = None, **changes: Any) -> AsyncIterator[User]:
    """A user with the real server; at the end nothing that it started is left."""
    processes = Processes()
    async with editor(
        folder,
        command=SERVE,
        env={**processes.env, **(extra_env or {})},
        make=User,
        **{"options": options(), **changes},
    ) as user:
        user.processes = processes
        yield user
    assert await processes.gone(), processes.all()
