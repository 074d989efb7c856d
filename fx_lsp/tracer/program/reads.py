"""Record what the user's code reads: files, folders, environment variables, modules. An answer depends on all of them.

Files that native code opens without Python are unknown here.
"""
# pathlib would be slow here: the hook runs at every open.

from __future__ import annotations

import importlib.machinery
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from fx_lsp.model import folder_listed, variable_asked
from fx_lsp.sandbox.confinement import is_confined
from fx_lsp.tracer.program.paths import OWN_FOLDER, STANDARD_LIBRARY, is_installed

ReadState: TypeAlias = "list[int] | None"
"""The time (ns) and the size of a file when it was read; None if it was missing."""
MAX_READS = 2000
"""The most files that are recorded one by one. Beyond it, as many folders of further files are recorded."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_ONLY_NAMED = getattr(os, "O_PATH", 0)
"""The flag with which a file is opened, but never read (Linux)."""
_SOURCES = (*importlib.machinery.SOURCE_SUFFIXES, *importlib.machinery.BYTECODE_SUFFIXES)
_IMPORTS = "<frozen importlib._bootstrap_external>"
_SCRATCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "scratch.py")


@dataclass
class RecordedReads:
    """Hold the reads of this process and of the processes that it was forked from.

    `states` has the state of each file at its first read, of missing files, and of listed folders. `variables` are
    names of environment variables. `written` are files that the code wrote before it read them. `searched` maps a
    missing module to the folders of the last search for it. `reported` are the paths that `news` has returned.
    """

    states: dict[str, ReadState] = field(default_factory=dict[str, ReadState])
    variables: dict[str, None] = field(default_factory=dict[str, None])
    written: set[str] = field(default_factory=set[str])
    searched: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    reported: set[str] = field(default_factory=set[str])

    def note(self, path: str) -> None:
        """Record that a file is read, or that its existence is checked."""
        if path not in self.states and path not in self.written and not _is_ignored(path):
            self._add(path if len(self.states) < MAX_READS else folder_listed(os.path.dirname(path)))

    def note_listing(self, folder: str) -> None:
        """Record that the names in a folder are read."""
        if not _is_ignored(folder):
            self._add(folder_listed(folder))

    def note_write(self, path: str) -> None:
        """Record that a file is written: if it did not exist before, its content comes from the code itself."""
        if self.states.get(path) is None:
            self.states.pop(path, None)
            self.written.add(path)

    def _add(self, path: str) -> None:
        if path not in self.states and len(self.states) < 2 * MAX_READS:
            self.states[path] = state_of(path)

    def dependencies(self) -> list[str]:
        """Return the files, folders and variables that an answer depends on because they were read."""
        modules = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        return [*(path for path in self.states if path not in modules), *map(variable_asked, self.variables)]

    def dependencies_of_search(self, module: str) -> list[str]:
        """Return the dependencies that change when a missing module is installed.

        They are the names in the folders that were searched for the module and for its packages: an installation adds
        `.pth` files and metadata there.
        """
        parts = module.split(".")
        names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        folders = (*sys.path, *(folder for name in names for folder in self.searched.get(name, ())))
        paths = [folder_listed(os.path.abspath(folder)) for folder in dict.fromkeys(folders)]
        changing = [path for path in paths if not path.startswith(STANDARD_LIBRARY) or is_installed(path)]
        return [variable_asked("PYTHONPATH"), *changing]

    def news(self) -> dict[str, ReadState]:
        """Return the files that were read since the last call, in this process or in one that it was forked from."""
        news = {path: state for path, state in self.states.items() if path not in self.reported}
        self.reported |= news.keys()
        return news


def reads() -> RecordedReads:
    """Return the reads of this process since the first call of `watch_reads`."""
    return _reads


_reads = RecordedReads()
_plain_stat = os.stat
_installed: list[bool] = []


def watch_reads() -> None:
    """Start to record what code reads, in this process and its forks."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)
        sys.meta_path.append(_MissingModules())
        _watch_status()
        _watch_environment()


def state_of(path: str) -> ReadState:
    """Return the present state of a file or folder."""
    try:
        status = _plain_stat(path)
    except (OSError, ValueError):
        return None
    return [status.st_mtime_ns, status.st_size]


_EVENTS = frozenset({"open", "os.listdir", "os.scandir"})


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    if event == "open":
        path, mode, flags = args
        if (name := _absolute(path)) is None or (flags & _ONLY_NAMED and not isinstance(mode, str)):
            return
        if any(letter in mode for letter in "wax") if isinstance(mode, str) else flags & _WRITING:
            _reads.note_write(name)
        elif not (name.endswith(_SOURCES) and sys._getframe(1).f_code.co_filename == _IMPORTS):
            _reads.note(name)
    elif (name := _absolute(args[0])) is not None and not _is_for_tool(sys._getframe(1)):
        _reads.note_listing(name)


def _absolute(path: object) -> str | None:
    """Return the absolute path of a file; None for a file without a path, such as a descriptor."""
    if path is None:
        return os.getcwd()
    try:
        return os.path.abspath(os.fsdecode(path))  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OSError):
        return None


def _is_ignored(path: str) -> bool:
    """Return True for files of the system, the interpreter and fx-lsp, for scratch files, and for installed packages:
    their versions are a dependency of their own.
    """
    return path.startswith((*_SYSTEM, *STANDARD_LIBRARY, OWN_FOLDER, _scratch_prefix())) or is_installed(path)


_SYSTEM = ("/proc/", "/sys/", "/dev/")


def _scratch_prefix() -> str:
    """Return the prefix of scratch files: under confinement, the whole folder for temporary files."""
    return os.path.join(tempfile.gettempdir(), "" if is_confined() else "fx-lsp-")


def _is_for_tool(frame: FrameType | None) -> bool:
    """Return True if the caller, perhaps through the standard library, is the import system or fx-lsp."""
    while frame is not None and frame.f_code.co_filename.startswith((*STANDARD_LIBRARY, _SCRATCH)):
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else ""
    return file.startswith((OWN_FOLDER, "<frozen importlib"))


def _is_project_code(file: str) -> bool:
    return not file.startswith((*STANDARD_LIBRARY, OWN_FOLDER, "<frozen ")) and not is_installed(file)


_QUESTIONS = frozenset({"genericpath", "posixpath", "ntpath", "pathlib", "pathlib._local", "pathlib._abc", "os"})
"""The modules of the standard library that query the status of a file for their caller."""


def _watch_status() -> None:
    """Record the files whose existence, size or time the project's code queries."""

    def stat(path: Any, *args: Any, **options: Any) -> os.stat_result:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and (
            frame.f_globals.get("__name__") in _QUESTIONS or frame.f_code.co_filename == _SCRATCH
        ):
            frame = frame.f_back
        if frame is not None and not isinstance(path, int) and _is_project_code(frame.f_code.co_filename):
            name = _absolute(path) if options.get("dir_fd") is None else None
            if name is not None:
                _reads.note(name)
        return _plain_stat(path, *args, **options)

    for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        if _plain_stat in group:
            group.add(stat)
    os.stat = stat


_ASKING = frozenset({"get", "__contains__", "setdefault", "pop", "getenv"})
"""The functions of the standard library that look up an environment variable for their caller."""


def _watch_environment() -> None:
    """Record the environment variables that code outside of the standard library, torch and fx-lsp asks for by name."""
    environment: Any = os.environ
    encode, read = getattr(environment, "encodekey", None), getattr(type(environment).__getitem__, "__code__", None)
    if encode is None or read is None:
        return

    def encoded(key: Any) -> Any:
        frame = sys._getframe(1)
        if frame.f_code is read and key not in _reads.variables:
            asking = frame.f_back
            while asking is not None and asking.f_code.co_name in _ASKING and _is_standard(asking):
                asking = asking.f_back
            if isinstance(key, str) and asking is not None and not _is_machinery(asking):
                _reads.variables[key] = None
        return encode(key)

    encoded.original = encode  # pyright: ignore[reportFunctionMemberAccess]
    environment.encodekey = encoded


@contextmanager
def environment_unwatched() -> Generator[None, None, None]:
    """Restore Python's own `os.environ` inside: Dynamo traces through it, and a replacement breaks the graph."""
    environment: Any = os.environ
    watched = getattr(environment, "encodekey", None)
    original = getattr(watched, "original", None)
    if original is None:
        yield
        return
    environment.encodekey = original
    try:
        yield
    finally:
        environment.encodekey = watched


def _is_standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith((*STANDARD_LIBRARY, "<frozen ")) and not is_installed(file)


def _is_machinery(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return _is_standard(frame) or package in ("torch", "fx_lsp")


class _MissingModules:
    """Record the paths of modules that no finder finds: code may run without them, and change once they appear."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Find nothing."""
        _reads.searched[fullname] = tuple(sys.path if path is None else path)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if frame is None or _is_machinery(frame):
            return
        name = fullname.rpartition(".")[2]
        for folder in path if path is not None else sys.path:
            place = os.path.join(os.path.abspath(folder), name)
            if not place.startswith((*STANDARD_LIBRARY, OWN_FOLDER)) or is_installed(place):
                for file in (f"{place}.py", os.path.join(place, "__init__.py")):
                    if len(_reads.states) < MAX_READS:
                        _reads.states.setdefault(file, state_of(file))
