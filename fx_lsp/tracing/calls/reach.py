"""Find what a program of a project can reach, by the files that it imports and the names that they mention.

A function is reached if code that is reached mentions its name, a method if its name and its class are mentioned; what
PyTorch or a framework calls itself is reached with its class. A file that is imported by a name which is computed is
reached, with all that it defines, if the certain part of that name leads to it, or the program mentions its name or its
folder. So it may find too much, but leaves out a program only if nothing that it says leads to a target. Reads syntax
only.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from fx_lsp import files
from fx_lsp.model import Failure
from fx_lsp.tracing.calls.entries import Entry, entries_of
from fx_lsp.tracing.calls.mentions import ClassMentions, Import, Mentions, mentions_of
from fx_lsp.tracing.calls.project_files import MAX_BYTES, source_files, test_files
from fx_lsp.tracing.source.drivers import driver_of
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import module_name, parse

Unit = tuple[str, str]
"""A file, and the name of a function, a class or a method in it."""
_CALLED_BY_TORCH = frozenset({"forward", "backward", "setup_context", "jvp"})
"""Methods that PyTorch calls, besides those with double underscores."""


@dataclass(frozen=True)
class CodeFile:
    """Hold what the text of a file says: its names, whether it is a program, and the calls that run its functions."""

    mentions: Mentions
    is_program: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Code:
    """Hold the paths of a project's Python files, each with its state, and the roots of its imports.

    `unsaved` are texts by path, as pairs.
    """

    states: tuple[tuple[str, int, int], ...]
    roots: tuple[str, ...]
    unsaved: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, file: str, roots: Collection[str], overlays: Mapping[str, str]) -> Code:
        """Return the code of the project of a file."""
        roots = tuple(roots)
        states: list[tuple[str, int, int]] = []
        for path in dict.fromkeys((file, *test_files(roots, file), *source_files(roots, file))):
            text = overlays.get(path)
            if text is not None:
                states.append((path, -1, hash(text)))
            else:
                try:
                    status = Path(path).stat()
                except OSError:
                    continue
                states.append((path, status.st_mtime_ns, status.st_size))
        unsaved = tuple((path, overlays[path]) for path, time, _ in states if time == -1)
        return cls(tuple(states), roots, unsaved)

    @cached_property
    def paths(self) -> Mapping[str, tuple[int, int]]:
        """Return the files in the order of their distance, each with its state."""
        return {path: (time, size) for path, time, size in self.states}

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return dict(self.unsaved)

    def file(self, path: str) -> CodeFile | None:
        """Return the names and calls in a file of the project; None if it does not parse."""
        text = self._texts.get(path)
        return _of_text(path, text) if text is not None else _on_disk(path, *self.paths[path])

    def imported(self, path: str, names: Collection[Import]) -> Iterator[str]:
        """Yield the files that imports of a file run; `path` need not be a file of the project."""
        _, package, root = module_name(path, self._texts.get(path))
        for item in names:
            if item.level:
                parts = package.split(".")[: len(package.split(".")) - item.level + 1] if package else []
                roots: tuple[str, ...] = (root,)
            else:
                parts, roots = [], (str(Path(path).parent), *self.roots)
            parts = [*parts, *(part for part in item.module.split(".") if part)]
            for base in roots:
                yield from self._modules(base, [*parts, item.name] if item.name else parts)

    def computed(self, path: str, beginning: str, names: Collection[str]) -> Iterator[str]:
        """Yield the files that an import in a file may run whose name begins like this; without a beginning, those
        whose name or folder is among some names.
        """
        if not beginning:
            yield from (p for p in self.paths if not {Path(p).stem, Path(p).parent.name}.isdisjoint(names))
            return
        *folders, start = beginning.lstrip(".").split(".")
        level = len(beginning) - len(beginning.lstrip("."))
        bases = (str(Path(path).parents[level - 1]),) if level else (str(Path(path).parent), *self.roots)
        beginnings = tuple(str(Path(base, *folders)) + os.sep + start for base in bases)
        yield from (p for p in self.paths if p.startswith(beginnings))

    def _modules(self, base: str, parts: Collection[str]) -> Iterator[str]:
        """Yield the files that importing a dotted name below a folder runs, and that there are."""
        path = base
        for part in parts:
            path = f"{path}{os.sep}{part}"
            yield from (name for name in (f"{path}.py", f"{path}{os.sep}__init__.py") if name in self.paths)


@lru_cache(maxsize=1024)
def _on_disk(path: str, time: int, size: int) -> CodeFile | None:
    try:
        return _code_file(path, files.read_text(path, limit=MAX_BYTES)) if size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=64)
def _of_text(path: str, text: str) -> CodeFile | None:
    return _code_file(path, text)


def _code_file(path: str, text: str) -> CodeFile | None:
    tree = parse(path, text)
    if isinstance(tree, Failure):
        return None
    index = ModuleIndex(tree)
    return CodeFile(mentions_of(tree), driver_of(index) is not None, tuple(entries_of(index)))


@lru_cache(maxsize=512)
def reached(code: Code, path: str, source: str, start: frozenset[str]) -> frozenset[Unit]:
    """Return the units that a program can reach: a file of the project, or a `source` at the place of one.

    `start` are the names that it mentions besides those of its top level.
    """
    own = _of_text(path, source) if source else code.file(path)
    return frozenset() if own is None else _Search(code, path, own).units(start)


class _Search:
    """Follows names from a program through the files that it imports."""

    def __init__(self, code: Code, path: str, own: CodeFile) -> None:
        self.files: dict[str, Mentions] = {path: own.mentions}
        self._computed = set[str]()
        waiting = [path]
        while waiting:
            importing = waiting.pop()
            mentions = self.files[importing]
            for beginning in mentions.computed:
                self._computed |= {*code.computed(importing, beginning, own.mentions.names | mentions.names)}
            for name in (*self._computed, *code.imported(importing, mentions.imports)):
                imported = code.file(name) if name not in self.files else None
                if imported is not None:
                    self.files[name] = imported.mentions
                    waiting.append(name)
        self._functions: dict[str, list[Unit]] = {}
        self._classes: dict[str, list[Unit]] = {}
        for file, mentions in self.files.items():
            for table, names in ((self._functions, mentions.functions), (self._classes, mentions.classes)):
                for name in names:
                    table.setdefault(name, []).append((file, name))
        self._names = set[str]()
        self._units = set[Unit]()
        self._waiting_methods: dict[str, list[tuple[Unit, frozenset[str]]]] = {}

    def units(self, start: frozenset[str]) -> frozenset[Unit]:
        """Return the units that are reached from code that mentions some names."""
        waiting = [*start]
        for path, mentions in self.files.items():
            waiting += [*mentions.top, *mentions.decorated]
            waiting += [*mentions.functions, *mentions.classes] if path in self._computed else []
        while waiting:
            name = waiting.pop()
            if name not in self._names:
                self._names.add(name)
                waiting += self._mentioned(name)
        return frozenset(self._units)

    def _mentioned(self, name: str) -> Iterator[str]:
        """Yield the names in what a name leads to."""
        for unit in self._functions.get(name, ()):
            self._units.add(unit)
            yield from self.files[unit[0]].functions[name]
        for unit, names in self._waiting_methods.pop(name, ()):
            self._units.add(unit)
            yield from names
        for unit in self._classes.get(name, ()):
            if unit not in self._units:
                self._units.add(unit)
                yield from self._constructed(unit[0], name, self.files[unit[0]].classes[name])

    def _constructed(self, file: str, name: str, mentions: ClassMentions) -> Iterator[str]:
        """Yield the names in a class that is used: those of its methods once they are mentioned, too."""
        yield from mentions.header
        is_open = self._has_foreign_base(file, mentions)
        for method, names in mentions.methods.items():
            unit = (file, f"{name}.{method}")
            is_called = method in self._names or method in _CALLED_BY_TORCH or method.startswith("__") or is_open
            if is_called:
                self._units.add(unit)
                yield from names
            else:
                self._waiting_methods.setdefault(method, []).append((unit, names))

    def _has_foreign_base(self, file: str, mentions: ClassMentions) -> bool:
        """Return True if a package besides PyTorch and Python has a base of a class, and may call its methods."""
        origins = self.files[file].origins
        return any(
            base not in self._classes and not hasattr(builtins, base) and not _is_known(origins.get(base, ""))
            for base in mentions.bases
        )


def _is_known(package: str) -> bool:
    return package == "torch" or package in sys.stdlib_module_names
