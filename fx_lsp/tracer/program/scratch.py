"""Redirect files that a program writes to a scratch folder while it is traced; removed files stay in place."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from fx_lsp.sandbox.removal import remove_tree

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_active: list[_Scratch] = []


@dataclass
class _Scratch:
    """Manage the folder, which is created at the first write; only the process that created it removes it."""

    directory: str = ""
    owner: int = field(default_factory=os.getpid)
    originals: dict[str, Any] = field(default_factory=dict[str, Any])

    def place(self, path: Any) -> Any:
        """Return the path to write to; unchanged if a program names a temporary file."""
        if isinstance(path, int) or path is None:
            return path
        name = os.path.abspath(os.fsdecode(path))
        free = os.path.realpath(tempfile.gettempdir()) + os.sep
        is_temporary = os.path.isabs(path) and os.path.realpath(name).startswith(free)
        if name == os.devnull or is_temporary:
            return path
        if not self.directory:
            self.directory = tempfile.mkdtemp(prefix="fx-lsp-")
        return os.path.join(self.directory, name.lstrip(os.sep))

    def present(self, path: Any) -> Any:
        """Return the path to read from: in the scratch folder, if the program has written it before."""
        if not self.directory or isinstance(path, int):
            return path
        place = self.place(path)
        return place if self.originals["os.path.exists"](place) else path

    def writable(self, path: Any) -> Any:
        """Return the path to write to, in an existing folder, initialized with the existing file."""
        place = self.place(path)
        if place is not path:
            self.make(os.path.dirname(place))
            with suppress(OSError):
                if not self.originals["os.path.exists"](place):
                    shutil.copyfile(path, place)
        return place

    def make(self, directory: str) -> None:
        """Create a folder and those above it."""
        missing: list[str] = []
        while directory and not self.originals["os.path.exists"](directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for one in reversed(missing):
            self.originals["os.mkdir"](one)


@contextmanager
def scratch_files() -> Generator[None, None, None]:
    """Write files to a scratch folder inside, and read from it first; nothing else is changed or removed."""
    if _active:
        yield
        return
    scratch = _Scratch()
    replacements = _replacements(scratch)
    for name in replacements:
        scratch.originals[name] = _get(name)
    scratch.originals["os.path.exists"] = os.path.lexists
    scratch.originals["os.stat"] = os.stat
    _active.append(scratch)
    try:
        for name, replacement in replacements.items():
            _set(name, replacement)
        yield
    finally:
        for name in replacements:
            _set(name, scratch.originals[name])
        _active.remove(scratch)
        if scratch.directory and scratch.owner == os.getpid():
            remove_tree(scratch.directory)


def is_scratch() -> bool:
    """Return True inside of `scratch_files`."""
    return bool(_active)


_MODULES: dict[str, Any] = {"builtins": builtins, "io": io, "os": os, "shutil": shutil}


def _get(name: str) -> Any:
    module, _, attribute = name.partition(".")
    return getattr(_MODULES[module], attribute)


def _set(name: str, value: Any) -> None:
    module, _, attribute = name.partition(".")
    setattr(_MODULES[module], attribute, value)


def _replacements(scratch: _Scratch) -> dict[str, Callable[..., Any]]:
    originals = scratch.originals

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        writes = any(letter in mode for letter in "wax+")
        place = scratch.writable(file) if writes else scratch.present(file)
        return originals["io.open"](place, mode, *args, **options)

    def open_descriptor(path: Any, flags: int, *args: Any, **options: Any) -> int:
        writes = flags & _WRITING and options.get("dir_fd") is None
        return originals["os.open"](
            scratch.writable(path) if writes else scratch.present(path), flags, *args, **options
        )

    def make_directory(path: Any, *args: Any, **options: Any) -> None:
        if originals["os.path.exists"](path):
            raise FileExistsError(17, os.strerror(17), path)
        place = scratch.place(path)
        if place is not path:
            scratch.make(os.path.dirname(place))
        originals["os.mkdir"](place, *args, **options)

    def on_copy(name: str) -> Callable[..., Any]:
        def act(path: Any, *args: Any, **options: Any) -> Any:
            place = scratch.place(path)
            if place is path or originals["os.path.exists"](place):
                return originals[name](place, *args, **options)
            return None

        return act

    def move(name: str) -> Callable[..., Any]:
        def act(source: Any, target: Any, **options: Any) -> Any:
            return originals[name](scratch.writable(source), scratch.writable(target))

        return act

    def status(path: Any, *args: Any, **options: Any) -> Any:
        try:
            return originals["os.stat"](path, *args, **options)
        except FileNotFoundError:
            return originals["os.stat"](scratch.present(path), *args, **options)

    def listed(path: Any = ".") -> list[str]:
        place = scratch.present(path)
        if place is path:
            return originals["os.listdir"](path)
        before: list[str] = []
        with suppress(OSError):
            before = originals["os.listdir"](path)
        return [*dict.fromkeys([*before, *originals["os.listdir"](place)])]

    return {
        "builtins.open": open_file,
        "io.open": open_file,
        "os.open": open_descriptor,
        "os.mkdir": make_directory,
        "os.stat": status,
        "os.listdir": listed,
        **{name: on_copy(name) for name in _CHANGING},
        **{name: move(name) for name in ("os.rename", "os.replace")},
    }


_FILE_CHANGES = ("remove", "unlink", "rmdir", "chmod", "chown", "utime", "truncate")
_CHANGING = (*(f"os.{name}" for name in _FILE_CHANGES if hasattr(os, name)), "shutil.rmtree")
