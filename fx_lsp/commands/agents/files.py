"""Open files for the requests of coding agents: in one engine, and only in folders that the user trusts."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fx_lsp.commands.sources import read_source
from fx_lsp.commands.targets import Chosen, failure_text
from fx_lsp.errors import TargetError
from fx_lsp.messages.processes import HOW_TO_TRUST_IN_TERMINAL
from fx_lsp.model import Failure, Target
from fx_lsp.tracing.calls.documents import notebook_code
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.source.parsing import split_lines
from fx_lsp.tracing.source.project import project_root
from fx_lsp.tracing.source.targets import names_like
from fx_lsp.tracing.trust import folder_trust


@dataclass(frozen=True)
class AgentFile:
    """Hold a file of a request: `text` is that of the request, or else the one on disk."""

    file: str
    root: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Return the lines of the text, without an empty one at its end."""
        lines = split_lines(self.text)
        return lines[:-1] if lines[-1:] == [""] else lines

    def column(self, line: int, col: int) -> int:
        """Return a column in UTF-8 bytes from 0 as one in characters from 1."""
        before = self.lines[line - 1].encode("utf-8", "surrogatepass") if 0 < line <= len(self.lines) else b""
        return len(before[:col].decode("utf-8", "replace")) + 1

    def byte_column(self, line: int, column: int) -> int:
        """Return a column in characters from 1 as one in UTF-8 bytes from 0."""
        before = self.lines[line - 1][: column - 1] if 0 < line <= len(self.lines) else ""
        return len(before.encode("utf-8", "surrogatepass"))


class Agents:
    """Provide the engine of a server for agents.

    A file is open only during a request, because other files that import it are traced with its text. For the same
    reason, requests have the engine one after another.
    """

    def __init__(self, settings: EngineSettings, trust_always: bool = False) -> None:
        self.settings = settings if trust_always else replace(settings, may_run=_is_trusted)
        self.engine = Engine(self.settings, lambda file: None, lambda status: None)
        self._turn = asyncio.Lock()

    async def shutdown(self) -> None:
        """End the engine and its processes."""
        await self.engine.shutdown()

    def read(self, path: str, text: str | None) -> AgentFile:
        """Return a file with its text. Raises TargetError if the user does not trust its folder, or if it cannot be
        read.
        """
        file = str(Path(path).expanduser().resolve())
        root = project_root(file)
        if not self.settings.may_run(file):
            raise TargetError(HOW_TO_TRUST_IN_TERMINAL.format(folder=root, quoted=shlex.quote(root)))
        try:
            if text is None:
                return AgentFile(file, root, read_source(file))
            return AgentFile(file, root, notebook_code(text) if file.endswith(".ipynb") else text)
        except (OSError, SyntaxError, ValueError) as error:
            raise TargetError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[Engine, None]:
        """Wait until no other request has the engine."""
        async with self._turn:
            yield self.engine

    @asynccontextmanager
    async def opened(self, file: AgentFile) -> AsyncGenerator[tuple[Target, ...], None]:
        """Open a file in the engine for one request, and provide its targets. Raises TargetError if it does not
        parse.
        """
        async with self.turn() as engine:
            engine.open(file.file, file.text, (file.root,))
            try:
                targets = await engine.targets(file.file)
                if isinstance(targets, Failure):
                    raise TargetError(failure_text(targets, Chosen(file.file, Path(file.file).name, file.text)))
                yield targets
            finally:
                engine.close(file.file)

    @asynccontextmanager
    async def opened_target(self, file: AgentFile, name: str) -> AsyncGenerator[Target, None]:
        """Open a file for a request on one target. Raises TargetError if there is none of that name."""
        async with self.opened(file) as targets:
            target = next((target for target in targets if target.name == name), None)
            if target is None:
                names = names_like(name, [target.name for target in targets])
                raise TargetError(f"`{name}` is not a function or module that can be traced. {names}")
            yield target


def _is_trusted(file: str) -> bool:
    return folder_trust(project_root(file)) == "trusted"
