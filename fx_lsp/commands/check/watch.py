"""Wait until a file that a check depends on changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fx_lsp.commands.sources import Source
from fx_lsp.tracing.answers.disk import Dependency, is_fresh, read_dependencies
from fx_lsp.tracing.source.project import PYPROJECT

SECONDS = 0.2
"""The seconds between two looks at the files."""
SHARE = 20
"""The least ratio of the time between two looks to the time of a look."""


@dataclass
class WatchedFiles:
    """Hold the state of files at the beginning of a check, and of those that its answers depend on."""

    sources: frozenset[str] = frozenset()
    states: dict[str, Dependency] = field(default_factory=dict[str, Dependency])
    started: float = 0.0

    def begin(self, sources: Iterable[Source], others: Iterable[str]) -> None:
        """Note the state of the sources, of the settings that concern them, and of other files, before a check."""
        self.started = time.time()
        self.sources = frozenset(source.file for source in sources)
        settings = {str(parent / PYPROJECT) for file in self.sources for parent in Path(file).parents}
        paths = sorted({*self.sources, *settings, *others, *self.states})
        self.states = {state.path: state for state in read_dependencies(paths, {})}

    def add(self, dependencies: Iterable[Dependency]) -> None:
        """Note what the answers of a check depend on, in the state that they were traced with, if it is a file's.

        A file that has changed since the check began counts as changed.
        """
        for dependency in dependencies:
            path = dependency.path.partition("::")[0]  # a part of a file
            if path not in self.states:
                is_of_file = path == dependency.path and dependency.mtime_ns >= 0
                state = dependency if is_of_file else read_dependencies([path], {}, self.started)[0]
                self.states[path] = state

    def changed(self, present: Iterable[Source]) -> bool:
        """Return True if a file has changed since, or if others are `present`."""
        return self.sources != frozenset(source.file for source in present) or not is_fresh([*self.states.values()], {})


async def wait_for_change(watched: WatchedFiles, find: Callable[[], list[Source]]) -> None:
    """Return when a watched file has changed, or when `find` returns other files."""
    while True:
        started = time.monotonic()
        if await asyncio.to_thread(lambda: watched.changed(find())):
            return
        await asyncio.sleep(max(SECONDS, SHARE * (time.monotonic() - started)))
