"""List the files of a project around one of its files: code, tests, configurations, documents; and read them."""

from __future__ import annotations

import ast
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Literal, NamedTuple

from fx_lsp import files
from fx_lsp.model import Failure
from fx_lsp.tracing.answers.lru import Bounded
from fx_lsp.tracing.calls.documents import DOCUMENTS
from fx_lsp.tracing.slicing.module_slice import SourceGraph
from fx_lsp.tracing.source.parsing import parse
from fx_lsp.tracing.source.project import repository_of

MAX_NAMES = 200
"""The most file names of tests that are checked for one file."""
MAX_FILES = 400
"""The most other files of the project that are checked."""
MAX_BYTES = 200_000
CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
"""The suffixes of configuration files."""
PARSED_CHARACTERS = 200_000
"""The size of the texts whose syntax trees are held; a tree needs 60 bytes for each character."""
_TEST = re.compile(r"(test_.+|.+_test)\.py$")
_DIRECTORIES = ("tests", "test")
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


@dataclass(frozen=True)
class ProjectFile:
    """Hold a file of the project whose text parses; for a document with code (a notebook, a README), the
    `part` of it.
    """

    file: str
    text: str
    graph: SourceGraph
    part: int = 0

    @property
    def tree(self) -> ast.Module:
        """Return its syntax tree."""
        return self.graph.index.tree


class _Listing(NamedTuple):
    """Hold the names of Python files, subdirectories, configuration files, and documents in a directory."""

    python: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()


FilesOfKind = Literal["python", "settings", "documents"]


def source_files(roots: Sequence[str], file: str) -> list[str]:
    """Return the other Python files of a project, those nearest to `file` first."""
    return _files_below(roots, file, "python")


def test_files(roots: Sequence[str], file: str) -> list[str]:
    """Return the tests that may be of a file, by their names and folders."""
    tests: list[str] = []
    left = MAX_NAMES
    for directory in _directories(file, tuple(roots)):
        names = _listing(directory).python[:left]
        left -= len(names)
        tests += [path for name in names if _TEST.match(name) and (path := f"{directory}{os.sep}{name}") != file]
    return tests


def configuration_files(roots: Sequence[str], file: str) -> list[str]:
    """Return the configuration files of a project, those nearest to `file` first."""
    return _files_below(roots, file, "settings")


def document_files(roots: Sequence[str], file: str) -> list[str]:
    """Return the documents of a project that may have code, those nearest to `file` first."""
    return _files_below(roots, file, "documents")


def files_below(root: str, kind: FilesOfKind = "python") -> Iterator[str]:
    """Yield the files of a kind below a directory, without those in environments, in hidden folders and of builds."""
    waiting = [root]
    while waiting:
        directory = waiting.pop(0)
        listing = _listing(directory)
        yield from (f"{directory}{os.sep}{name}" for name in getattr(listing, kind))
        waiting += [f"{directory}{os.sep}{name}" for name in listing.inner]


def read_file(path: str, overlays: Mapping[str, str]) -> ProjectFile | None:
    """Return a file of the project; None if it is missing or does not parse."""
    text = text_of(path, overlays)
    return parsed_file(path, text) if text is not None else None


def _files_below(roots: Sequence[str], file: str, kind: FilesOfKind) -> list[str]:
    """Return the files of a kind below the roots, those nearest to `file` first, up to the limit.

    Of a root around the repository of `file`, they are those of the repository.
    """
    repository = repository_of(file) or ""
    starts = (repository if repository.startswith(root + os.sep) else root for root in roots)
    paths = (path for start in starts for path in files_below(start, kind) if path != file)
    below: dict[str, None] = {}
    while len(below) < MAX_FILES and (path := next(paths, None)) is not None:
        below[path] = None
    here = Path(file).parent.parts

    def distance(path: str) -> int:
        parts = Path(path).parent.parts
        shared = len([*takewhile(lambda pair: pair[0] == pair[1], zip(here, parts, strict=False))])
        return len(here) + len(parts) - 2 * shared

    return sorted(below, key=distance)


def _directories(file: str, roots: tuple[str, ...]) -> list[str]:
    """Return the directories that may contain tests of `file`: its own, or `tests`, which may mirror its directory."""
    here = Path(file).parent
    folders = [here, *(here / name for name in _DIRECTORIES)]
    for root in map(Path, roots):
        bases = [root, root.parent] if root.name == "src" else [root]
        below = here.relative_to(root).parts if here.is_relative_to(root) else ()
        for tests in (base / name for base in bases for name in _DIRECTORIES):
            folders += [tests.joinpath(*below[start:]) for start in range(len(below) + 1)]
    return list(dict.fromkeys(str(folder) for folder in folders))


def _listing(directory: str) -> _Listing:
    try:
        return _listed(directory, Path(directory).stat().st_mtime_ns)
    except OSError:
        return _Listing()


@lru_cache(maxsize=512)
def _listed(directory: str, mtime_ns: int) -> _Listing:
    with os.scandir(directory) as entries:
        listed = [entry for _, entry in zip(range(2 * MAX_NAMES), entries, strict=False)]
        names = sorted(entry.name for entry in listed if entry.is_file())
        inner = sorted(entry.name for entry in listed if _holds_sources(entry))
        kinds = (tuple(name for name in names if name.endswith(ends)) for ends in (".py", CONFIGURATIONS, DOCUMENTS))
        python, settings, documents = kinds
    return _Listing(python, tuple(inner), settings, documents)


def _holds_sources(entry: os.DirEntry[str]) -> bool:
    """Return True for a directory that is not hidden, an environment, or the output of a build."""
    hidden = entry.name.startswith(".") or entry.name in _NOT_SOURCE
    return not hidden and entry.is_dir(follow_symlinks=False) and not Path(entry.path, "pyvenv.cfg").exists()


def text_of(path: str, overlays: Mapping[str, str], limit: int = MAX_BYTES) -> str | None:
    """Return the text of a file, saved or not; None if it is missing or exceeds `limit`."""
    unsaved = overlays.get(path)
    if unsaved is not None:
        return unsaved
    try:
        status = Path(path).stat()
        return _read(path, limit, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=256)
def _read(path: str, limit: int, mtime_ns: int, size: int) -> str:
    return files.read_text(path, limit=limit)


def parsed_file(path: str, text: str, part: int = 0) -> ProjectFile | None:
    """Return a file with a text, or a part of a document with that code; None if it does not parse."""
    with _lock:
        stored = _parsed.get((path, part))
    if stored is None or stored[0] != text:
        tree = parse(path, text)
        parsed = None if isinstance(tree, Failure) else ProjectFile(path, text, SourceGraph(text, tree), part)
        stored = text, parsed
        with _lock:
            _parsed.put((path, part), stored)
    return stored[1]


_lock = threading.Lock()
_parsed = Bounded[tuple[str, int], "tuple[str, ProjectFile | None]"](PARSED_CHARACTERS, lambda stored: len(stored[0]))
"""The last text of each file and part of a document, and what it was parsed to."""
