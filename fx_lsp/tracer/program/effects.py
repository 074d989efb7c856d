"""Prevent traced code from changing anything outside its process: no files written, no network, no programs, no
signals.

It guards against accidents in code that was never meant to run in an editor. It is not a sandbox: native code is
unrestricted.
"""
# pathlib would be slow here: the hook runs at every open.

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import all_suffixes
from typing import Any, Literal, cast

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


class EffectBlocked(RuntimeError):
    """The code tried to affect something outside its process. `what` describes it as a clause: "writes the
    file m.pt".
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}, which is not allowed while tracing")
        self.what = what


@dataclass(frozen=True)
class Effects:
    """Hold the effects blocked so far, oldest first, even if the code caught the exception."""

    blocked: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, eq=False)
class _Rules:
    reads: bool
    imports: bool
    working_directory: str
    free: tuple[str, ...]
    effects: Effects


_active: list[_Rules] = []
_installed: list[bool] = []


@contextmanager
def forbid_effects(reads: bool = True, imports: bool = False) -> Generator[Effects, None, None]:
    """Make effects inside (in all threads) raise EffectBlocked before they happen.

    Files under the temporary directory are free, except for the working directory and all below it. With `reads=False`
    reading files is blocked too, except for Python's own and importable ones. With `imports`, while modules are
    imported, libraries may keep caches and start programs: connections and changes of the working directory are
    blocked.
    """
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)
    rules = _Rules(reads, imports, os.path.realpath(os.getcwd()), _free_directories(), Effects())
    _active.append(rules)
    try:
        yield rules.effects
    finally:
        _active.remove(rules)


@contextmanager
def effects_allowed() -> Generator[None, None, None]:
    """Allow effects of fx-lsp itself inside, in the middle of code whose effects are forbidden."""
    rules = _active[:]
    _active.clear()
    try:
        yield
    finally:
        _active[:] = rules


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _active or event not in _CHECKS:
        return
    rules = _active[-1]
    kind, check = _CHECKS[event]
    what = None if rules.imports and kind == "process" else check(rules, args)
    if what is not None:
        rules.effects.blocked.append(what)
        raise EffectBlocked(what)


_Check = Callable[[_Rules, tuple[Any, ...]], "str | None"]


def _open(rules: _Rules, args: tuple[Any, ...]) -> str | None:
    path, mode, flags = args
    if isinstance(path, int):
        return None
    if any(c in mode for c in "wax+") if isinstance(mode, str) else flags & _WRITING:
        return _unless_free(rules, "writes the file", path)
    return None if rules.reads or _importable(path) else _unless_free(rules, "reads the file", path)


def _on_path(clause: str, index: int = 0, directory: int | None = None) -> _Check:
    """Return a check of the path `args[index]`, which is relative to the descriptor `args[directory]`, if
    there is one.
    """

    def check(rules: _Rules, args: tuple[Any, ...]) -> str | None:
        base = args[directory] if directory is not None and directory < len(args) else None
        return _unless_free(rules, clause, args[index], base)

    return check


def _rename(rules: _Rules, args: tuple[Any, ...]) -> str | None:
    old, new, old_base, new_base = args
    return _unless_free(rules, "renames the file", old, old_base) or _unless_free(
        rules, "writes the file", new, new_base
    )


def _program(index: int = 0) -> _Check:
    def check(rules: _Rules, args: tuple[Any, ...]) -> str:
        return f"starts the program {_program_of(args[index])!r}"

    return check


def _program_of(command: Any) -> str:
    """Return the program of an argument vector; the command line if it is a shell's."""
    if not isinstance(command, (list, tuple)):
        return _text(command)
    words = [_text(word) for word in cast("list[Any]", command)]
    return words[2] if len(words) > 2 and words[1] == "-c" and words[0].endswith("sh") else "".join(words[:1])


def _address(index: int) -> _Check:
    def check(rules: _Rules, args: tuple[Any, ...]) -> str:
        address = args[index]
        if isinstance(address, tuple):
            host, port = cast("tuple[Any, Any]", address)[:2]
            return f"opens a network connection to {_text(host)}:{_text(port)}"
        return f"opens a network connection to {_text(address)}"

    return check


def _host(rules: _Rules, args: tuple[Any, ...]) -> str:
    host, *rest = args
    port = f":{_text(rest[0])}" if rest and rest[0] not in (None, 0) else ""
    return f"opens a network connection to {_text(host)}{port}"


def _database(rules: _Rules, args: tuple[Any, ...]) -> str | None:
    return None if _text(args[0]) in ("", ":memory:") else _unless_free(rules, "opens the database", args[0])


def _always(clause: str) -> _Check:
    return lambda rules, args: clause


_CHECKS: dict[str, tuple[Literal["file", "process", "network"], _Check]] = {
    # event: (the affected resource, its description)
    "open": ("file", _open),
    "os.remove": ("file", _on_path("removes the file", 0, 1)),
    "os.rename": ("file", _rename),
    "os.rmdir": ("file", _on_path("removes the directory", 0, 1)),
    "os.mkdir": ("file", _on_path("creates the directory", 0, 2)),
    "os.chmod": ("file", _on_path("changes the mode of", 0, 2)),
    "os.chown": ("file", _on_path("changes the owner of", 0, 3)),
    "os.link": ("file", _on_path("creates the link", 1, 3)),
    "os.symlink": ("file", _on_path("creates the link", 1, 2)),
    "os.truncate": ("file", _on_path("truncates the file")),
    "os.utime": ("file", _on_path("changes the time of", 0, 3)),
    "shutil.rmtree": ("file", _on_path("removes the directory", 0, 1)),
    "sqlite3.connect": ("file", _database),
    "subprocess.Popen": ("process", _program(1)),
    "os.system": ("process", _program()),
    "os.exec": ("process", _program()),
    "os.posix_spawn": ("process", _program()),
    "os.spawn": ("process", _program(1)),
    "os.startfile": ("process", _program()),
    "os.fork": ("process", _always("forks")),
    "os.forkpty": ("process", _always("forks")),
    "pty.spawn": ("process", _program()),
    "os.kill": ("process", _always("sends a signal")),
    "os.killpg": ("process", _always("sends a signal")),
    "socket.connect": ("network", _address(1)),
    "socket.bind": ("network", _address(1)),
    "socket.sendto": ("network", _address(1)),
    "socket.getaddrinfo": ("network", _host),
    "socket.gethostbyname": ("network", _host),
    "socket.gethostbyaddr": ("network", _host),
    "http.client.connect": ("network", lambda rules, args: _host(rules, args[1:])),
}


def _unless_free(rules: _Rules, clause: str, path: Any, base: int | None = None) -> str | None:
    """Return the clause on `path`; None if it is in a directory that traced code may write to."""
    if isinstance(path, int):
        return None if rules.imports else f"{clause} with descriptor {path}"
    name = _text(path)
    directory = f"/proc/self/fd/{base}" if base is not None and base >= 0 else ""
    real = os.path.realpath(os.path.join(directory, name))
    if name == os.devnull:
        return None
    if _is_below(real, rules.working_directory):
        is_free = f"{os.sep}__pycache__{os.sep}" in real or rules.working_directory in rules.free
    else:
        is_free = rules.imports or any(_is_below(real, free) for free in rules.free)
    return None if is_free else f"{clause} {name}"


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip(os.sep) + os.sep)


def _importable(path: Any) -> bool:
    name = os.path.abspath(_text(path))
    homes = {os.path.abspath(p) for p in (sys.prefix, sys.base_prefix)}
    return name.endswith(tuple(all_suffixes())) or any(name.startswith(home + os.sep) for home in homes)


def _free_directories() -> tuple[str, ...]:
    return (os.path.realpath(tempfile.gettempdir()),)


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)
