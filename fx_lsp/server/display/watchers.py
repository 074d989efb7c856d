"""Ask the client to watch the files that answers depend on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lsprotocol import types

from fx_lsp.model import asked_variable, folder_listed, is_listing
from fx_lsp.server.client import Client
from fx_lsp.server.session import Session

FIRST_GLOBS = ("**/*.py", "**/pyproject.toml")
"""The files that are watched from the start."""


class FileWatchers:
    """Register watchers with the client: those of `FIRST_GLOBS`, and one for each new kind of file that answers read.

    Files outside of the workspace are not watched. They are looked at when somebody saves, or asks for a target.
    """

    def __init__(self, session: Session, client: Client) -> None:
        self._session = session
        self._client = client
        self._globs = {*FIRST_GLOBS}

    def update(self) -> None:
        """Register watchers for what the present answers depend on."""
        session = self._session
        if session.engine is None or not session.capabilities.register_watchers:
            return
        new = {*globs_for(session.engine.all_dependencies(), session.roots())} - self._globs
        if new:
            self._globs |= new
            registration = watching(f"fx-lsp-files-{len(self._globs)}", sorted(new))
            parameters = types.RegistrationParams(registrations=[registration])
            self._client.request_soon(types.CLIENT_REGISTER_CAPABILITY, parameters)


def watching(name: str, globs: Iterable[str]) -> types.Registration:
    """Return the registration of watchers under a name."""
    return types.Registration(
        id=name,
        method=types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
        register_options=types.DidChangeWatchedFilesRegistrationOptions(
            watchers=[types.FileSystemWatcher(glob) for glob in globs]
        ),
    )


def globs_for(dependencies: Iterable[str], roots: Iterable[str]) -> Iterator[str]:
    """Yield globs for the dependencies in the workspace: of files by their suffix, of folders by their name."""
    folders = tuple(folder_listed(root) for root in roots)
    for path in dependencies:
        if "::" in path or asked_variable(path) is not None or not path.startswith(folders):
            continue
        name, suffix = (re.sub(r"[][{}*?!]", "?", part) for part in (Path(path).name, Path(path).suffix))
        if is_listing(path):
            yield f"**/{name}/*"
        else:
            yield f"**/*{suffix}" if suffix else f"**/{name}"
