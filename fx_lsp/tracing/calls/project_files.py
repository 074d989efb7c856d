"""The files of a project that use one of its files: its tests, by their names or what they say, and any other file.
Looks at few directories and reads few files."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from fx_lsp.model import Failure
from fx_lsp.tracing.slicing.module_slice import SourceGraph
from fx_lsp.tracing.source.parsing import parse

MAX_NAMES = 200
"""File names of tests that are looked at for one file."""
MAX_READ = 20
"""Test files whose names do not fit that are read to see whether they mention the target."""
MAX_FILES = 400
"""Other files of the project that are looked at."""
MAX_BYTES = 200_000
_TEST = re.compile(r"(test_.+|.+_test)\.py$")
_DIRECTORIES = ("tests", "test")
_NOT_SOURCE = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})


@dataclass(frozen=True)
class ProjectFile:
    """A file of the project whose text parses."""

    file: str
    text: str
    graph: SourceGraph

    @property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return self.graph.tree


def users_of(
    file: str, roots: Sequence[str], names: Collection[str], overlays: Mapping[str, str]
) -> Iterator[ProjectFile]:
    """The files that mention one of `names` of `file`: tests, those named after it first, then files near it.

    `overlays` are unsaved texts by path.
    """
    stem = Path(file).stem
    own = (f"test_{stem}.py", f"{stem}_test.py")
    tests = [path for path in _candidates(file, tuple(roots)) if path != file]
    named = [path for path in tests if Path(path).name in own]
    others = [path for path in tests if Path(path).name not in own]
    near = (path for path in _files_below(roots, file) if path not in tests)
    word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    for path in [*named, *others[:MAX_READ], *near]:
        text = overlays.get(path) or _text(path)
        if text is not None and word.search(text) and (parsed := _parsed(path, text)) is not None:
            yield parsed


def _candidates(file: str, roots: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    left = MAX_NAMES
    for directory in _directories(file, roots):
        names = _names(directory)[:left]
        left -= len(names)
        found += [f"{directory}{os.sep}{name}" for name in names if _TEST.match(name)]
    return found


def _files_below(roots: Sequence[str], file: str) -> list[str]:
    """The files below the roots, those nearest to `file` first, as many as are looked at."""
    files: dict[str, None] = {}
    for root in roots:
        waiting = [root]
        while waiting and len(files) < MAX_FILES:
            directory = waiting.pop(0)
            files.update(dict.fromkeys(f"{directory}{os.sep}{name}" for name in _names(directory)))
            waiting += [f"{directory}{os.sep}{name}" for name in _inner(directory)]
    files.pop(file, None)
    here = Path(file).parent.parts

    def distance(path: str) -> int:
        parts = Path(path).parent.parts
        shared = len([*takewhile(lambda pair: pair[0] == pair[1], zip(here, parts, strict=False))])
        return len(here) + len(parts) - 2 * shared

    return sorted(list(files)[:MAX_FILES], key=distance)


def _directories(file: str, roots: tuple[str, ...]) -> list[str]:
    """Where tests of `file` may stand: beside it, or in `tests`, where its directory may be mirrored."""
    here = Path(file).parent
    found = [here, *(here / name for name in _DIRECTORIES)]
    for root in map(Path, roots):
        bases = [root, root.parent] if root.name == "src" else [root]
        below = here.relative_to(root).parts if here.is_relative_to(root) else ()
        for tests in (base / name for base in bases for name in _DIRECTORIES):
            found += [tests.joinpath(*below[start:]) for start in range(len(below) + 1)]
    return list(dict.fromkeys(str(directory) for directory in found))


def _names(directory: str) -> tuple[str, ...]:
    try:
        return _listed(directory, Path(directory).stat().st_mtime_ns)[0]
    except OSError:
        return ()


def _inner(directory: str) -> tuple[str, ...]:
    """The directories in a directory that may hold sources."""
    try:
        return _listed(directory, Path(directory).stat().st_mtime_ns)[1]
    except OSError:
        return ()


@lru_cache(maxsize=512)
def _listed(directory: str, mtime_ns: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of Python files in a directory, and those of directories."""
    with os.scandir(directory) as entries:
        listed = [entry for _, entry in zip(range(2 * MAX_NAMES), entries, strict=False)]
        files = sorted(entry.name for entry in listed if entry.name.endswith(".py"))
        inner = sorted(entry.name for entry in listed if _holds_sources(entry))
    return tuple(files), tuple(inner)


def _holds_sources(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory that is neither hidden, nor an environment, nor what a build put out."""
    hidden = entry.name.startswith(".") or entry.name in _NOT_SOURCE
    return not hidden and entry.is_dir(follow_symlinks=False) and not Path(entry.path, "pyvenv.cfg").exists()


def _text(path: str) -> str | None:
    try:
        status = Path(path).stat()
        return _read(path, status.st_mtime_ns, status.st_size) if status.st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=256)
def _read(path: str, mtime_ns: int, size: int) -> str:
    return Path(path).read_text("utf-8")


@lru_cache(maxsize=32)
def _parsed(path: str, text: str) -> ProjectFile | None:
    tree = parse(path, text)
    return None if isinstance(tree, Failure) else ProjectFile(path, text, SourceGraph(text, tree))
