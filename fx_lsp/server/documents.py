"""Store the texts that the client has open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class OpenText:
    """Hold one version of an open text. `file` is the absolute path that it is traced as."""

    uri: str
    file: str
    version: int
    lines: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(self.lines)


class Documents:
    """Hold the open texts by URI and by file."""

    def __init__(self) -> None:
        self._by_uri: dict[str, OpenText] = {}
        self._by_file: dict[str, OpenText] = {}

    def __iter__(self) -> Iterator[OpenText]:
        return iter(tuple(self._by_uri.values()))

    def get(self, uri: str) -> OpenText | None:
        """Return the open text with this URI."""
        return self._by_uri.get(uri)

    def of_file(self, file: str) -> OpenText | None:
        """Return the open text that is traced as this file."""
        return self._by_file.get(file)

    def put(self, document: OpenText) -> None:
        """Add a text, or a new version of it."""
        self._by_uri[document.uri] = document
        self._by_file[document.file] = document

    def remove(self, uri: str) -> OpenText | None:
        """Remove a text and return it; None if it was not open."""
        document = self._by_uri.pop(uri, None)
        if document is not None:
            self._by_file.pop(document.file, None)
        return document
