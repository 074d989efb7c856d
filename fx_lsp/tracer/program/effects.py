"""Prevent traced code from changing anything outside its process: no files written, no network, no programs, no
signals.

It says what was stopped, by which line: what native code does is for the operating system to stop (`fx_lsp.sandbox`).
"""
# pathlib would be slow here: the hook runs at every open.

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from fx_lsp.sandbox.confinement import allowed_programs, is_confined

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC


class EffectBlocked(PermissionError):
    """The code tried to affect something outside its process. `what` describes it as a clause: "writes the
    file m.pt".

    It is the error that a system raises which does not permit it: code that expects that goes on without.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"the code {what}, which is not allowed while tracing")
        self.what = what


def blocked_effect(error: BaseException | None) -> EffectBlocked | None:
    """Return the blocked effect that an error is, or that led to it; None for an error of another origin."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, EffectBlocked):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


class ProgramBlocked(EffectBlocked):
    """The code tried to start a program, which the user has not allowed. `program` is its name, or a command line."""

    def __init__(self, program: str) -> None:
        super().__init__(f"starts the program {program!r}")
        self.program = program


@dataclass(frozen=True)
class Effects:
    """Hold the effects blocked so far, oldest first, even if the code caught the exception."""

    blocked: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, eq=False)
class _Rules:
    working_directory: str
    free: tuple[str, ...]
    effects: Effects


_active: list[_Rules] = []
_installed: list[bool] = []


@contextmanager
def forbid_effects() -> Generator[Effects, None, None]:
    """Make effects inside (in all threads) raise EffectBlocked before they happen.

    Files under the temporary directory are free, except for the working directory and all below it.
    """
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)
    rules = _Rules(os.path.realpath(os.getcwd()), _free_directories(), Effects())
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
    what = _CHECKS[event](rules, args)
    if what is not None:
        error = what if isinstance(what, EffectBlocked) else EffectBlocked(what)
        rules.effects.blocked.append(error.what)
        raise error


_Check = Callable[[_Rules, tuple[Any, ...]], "str | EffectBlocked | None"]


def _open(rules: _Rules, args: tuple[Any, ...]) -> str | None:
    path, mode, flags = args
    if isinstance(path, int):
        return None
    if any(c in mode for c in "wax+") if isinstance(mode, str) else flags & _WRITING:
        return _unless_free(rules, "writes the file", path)
    return None


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
    def check(rules: _Rules, args: tuple[Any, ...]) -> EffectBlocked | None:
        program = _program_of(args[index])
        return None if os.path.basename(program) in allowed_programs() else ProgramBlocked(program)

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


def _socket(rules: _Rules, args: tuple[Any, ...]) -> str | None:
    is_local = args[1] not in (socket.AF_INET, socket.AF_INET6)
    return None if is_local else "opens a network connection"


def _host(rules: _Rules, args: tuple[Any, ...]) -> str:
    host, *rest = args
    port = f":{_text(rest[0])}" if rest and rest[0] not in (None, 0) else ""
    return f"opens a network connection to {_text(host)}{port}"


def _database(rules: _Rules, args: tuple[Any, ...]) -> str | None:
    if is_confined():
        return None  # the system lets it read, and SQLite does without writing
    return None if _text(args[0]) in ("", ":memory:") else _unless_free(rules, "opens the database", args[0])


def _always(clause: str) -> _Check:
    return lambda rules, args: clause


_CHECKS: dict[str, _Check] = {
    # event: a description of the effect
    "open": _open,
    "os.remove": _on_path("removes the file", 0, 1),
    "os.rename": _rename,
    "os.rmdir": _on_path("removes the directory", 0, 1),
    "os.mkdir": _on_path("creates the directory", 0, 2),
    "os.chmod": _on_path("changes the mode of", 0, 2),
    "os.chown": _on_path("changes the owner of", 0, 3),
    "os.link": _on_path("creates the link", 1, 3),
    "os.symlink": _on_path("creates the link", 1, 2),
    "os.truncate": _on_path("truncates the file"),
    "os.utime": _on_path("changes the time of", 0, 3),
    "shutil.rmtree": _on_path("removes the directory", 0, 1),
    "sqlite3.connect": _database,
    "subprocess.Popen": _program(1),
    "os.system": _program(),
    "os.exec": _program(),
    "os.posix_spawn": _program(),
    "os.spawn": _program(1),
    "os.startfile": _program(),
    "os.fork": _always("forks"),
    "os.forkpty": _always("forks"),
    "pty.spawn": _program(),
    "os.kill": _always("sends a signal"),
    "os.killpg": _always("sends a signal"),
    "socket.__new__": _socket,
    "socket.connect": _address(1),
    "socket.bind": _address(1),
    "socket.sendto": _address(1),
    "socket.getaddrinfo": _host,
    "socket.gethostbyname": _host,
    "socket.gethostbyaddr": _host,
    "http.client.connect": lambda rules, args: _host(rules, args[1:]),
}


def _unless_free(rules: _Rules, clause: str, path: Any, base: int | None = None) -> str | None:
    """Return the clause on `path`; None if it is in a directory that traced code may write to."""
    if isinstance(path, int):
        return None  # it was opened before
    name = _text(path)
    directory = f"/proc/self/fd/{base}" if base is not None and base >= 0 else ""
    real = os.path.realpath(os.path.join(directory, name))
    if name == os.devnull:
        return None
    free = [folder for folder in rules.free if _is_below(real, folder)]
    is_free = bool(free)
    if _is_below(real, rules.working_directory):  # a directory for temporary files may be above it, or below
        is_free = f"{os.sep}__pycache__{os.sep}" in real or not all(_is_below(rules.working_directory, d) for d in free)
    return None if is_free else f"{clause} {name}"


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip(os.sep) + os.sep)


def _free_directories() -> tuple[str, ...]:
    return (os.path.realpath(tempfile.gettempdir()),)


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)
