"""The test files of a file: found by their names, or by what they say. Looks at few directories and reads few files."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fx_lsp.model import Failure
from fx_lsp.tracing.parsing import parse
from fx_lsp.tracing.slicing import SourceGraph

MAX_NAMES = 200
"""File names that are looked at for one file."""
MAX_READ = 20
"""Test files whose names do not fit that are read to see whether they mention the target."""
MAX_BYTES = 200_000
_TEST = re.compile(r"(test_.+|.+_test)\.py$")
_DIRECTORIES = ("tests", "test")


@dataclass(frozen=True)
class TestFile:
    """A test file whose text parses."""

    __test__ = False

    file: str
    text: str
    graph: SourceGraph

    @property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return self.graph.tree


def tests_of(file: str, roots: Sequence[str], name: str, overlays: Mapping[str, str]) -> Iterator[TestFile]:
    """The test files that mention `name`, those named after `file` first. `overlays` are unsaved texts by path."""
    stem = Path(file).stem
    own = (f"test_{stem}.py", f"{stem}_test.py")
    paths = [path for path in _candidates(file, tuple(roots)) if path != file]
    named = [path for path in paths if Path(path).name in own]
    others = [path for path in paths if Path(path).name not in own]
    word = re.compile(rf"\b{re.escape(name)}\b")
    for path in [*named, *others[:MAX_READ]]:
        text = overlays.get(path) or _text(path)
        if text is not None and name in text and word.search(text) and (found := _parsed(path, text)) is not None:
            yield found


def _candidates(file: str, roots: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    left = MAX_NAMES
    for directory in _directories(file, roots):
        names = _names(directory)[:left]
        left -= len(names)
        found += [f"{directory}{os.sep}{name}" for name in names if _TEST.match(name)]
    return found


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
        return _listed(directory, Path(directory).stat().st_mtime_ns)
    except OSError:
        return ()


@lru_cache(maxsize=128)
def _listed(directory: str, mtime_ns: int) -> tuple[str, ...]:
    with os.scandir(directory) as entries:
        names = [entry.name for _, entry in zip(range(2 * MAX_NAMES), entries, strict=False)]
    return tuple(sorted(name for name in names if name.endswith(".py")))


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
def _parsed(path: str, text: str) -> TestFile | None:
    tree = parse(path, text)
    return None if isinstance(tree, Failure) else TestFile(path, text, SourceGraph(text, tree))
