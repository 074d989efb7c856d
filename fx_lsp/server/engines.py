"""Manage the engine of a connection: start, new settings, restart and end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fx_lsp.server.client import Client
from fx_lsp.server.session import Session
from fx_lsp.server.settings import Settings

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import Engine, EngineSettings, EngineStatus

    MakeEngine = Callable[[EngineSettings, Callable[[str], None], Callable[[EngineStatus], None]], Engine]


class Engines:
    """Provide a session's engine. `make` creates one, also for work that edits must not disturb.

    `on_trust` is called when other folders are trusted than before.
    """

    def __init__(
        self,
        session: Session,
        client: Client,
        make: MakeEngine,
        on_update: Callable[[str], None],
        on_status: Callable[[EngineStatus], None],
    ) -> None:
        self.make = make
        self.on_trust: Callable[[], Awaitable[None]] | None = None
        self._session = session
        self._client = client
        self._on_update = on_update
        self._on_status = on_status

    async def apply_settings(self, settings: Settings) -> None:
        """Apply new settings, and restart what depends on them."""
        session = self._session
        before, session.settings = session.settings, settings
        if session.engine is None:
            self._start()
        elif before != settings:
            await session.engine.configure(session.engine_settings())
            if (before.trust, before.trusted) != (settings.trust, settings.trusted):
                await self.trust_changed()
            self._show_again()

    async def pick_interpreter(self, path: str) -> None:
        """Trace with an interpreter from now on, whatever the settings say."""
        self._session.picked = path
        if self._session.engine is not None:
            await self._session.engine.configure(self._session.engine_settings())
            self._show_again()

    async def trust_changed(self) -> None:
        """End all tracing processes, and trace the files that the user trusts now."""
        engine = self._session.engine
        if self.on_trust is not None:
            await self.on_trust()
        if engine is None:
            return
        for document in self._session.documents:
            engine.open(document.file, document.text, self._session.roots_of(document.file))
        await engine.restart()
        self._show_again()

    async def clear_cache(self) -> None:
        """Remove every stored trace and trace the open files again.

        Raises OSError if a file cannot be removed, or was not written by fx-lsp.
        """
        from fx_lsp.tracing.answers.database import remove
        from fx_lsp.tracing.answers.disk import TRACES

        await self.end()
        path = self._session.engine_settings().cache_path
        try:
            if path:
                remove(Path(path), TRACES)
        finally:
            self._start()

    async def end(self) -> None:
        """End the engine, if there is one."""
        engine, self._session.engine = self._session.engine, None
        if engine is not None:
            await engine.shutdown()

    def _show_again(self) -> None:
        self._client.publish_all_again()
        for document in self._session.documents:
            self._on_update(document.file)

    def _start(self) -> None:
        session = self._session
        if session.closed:
            return
        session.engine = self.make(session.engine_settings(), self._on_update, self._on_status)
        for document in session.documents:
            session.engine.open(document.file, document.text, session.roots_of(document.file))
        session.started.set()
