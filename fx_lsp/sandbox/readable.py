"""List what a process of an interpreter has to read: the system, the interpreter, and all that it imports from."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/nix/store", "/snap")
_DOWNLOADS = ("torch/hub", "huggingface/hub", "huggingface/datasets")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
WRITABLE_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")


def of_interpreter(home: str) -> list[str]:
    """Return the paths that this interpreter reads: the system's, its own, and those that it imports from."""
    paths = [
        *_SYSTEM,
        *_DEVICES,
        *importlib.import_module("fx_lsp").__path__,
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        sys.base_exec_prefix,
    ]
    native = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    return [*_existing(paths), *narrowed(_existing([*native, *_editable(sys.path)]), home), *libraries(home)]


def libraries(home: str) -> list[str]:
    """Return the folders that modules are imported from, and those of the native libraries that are loaded."""
    return [*narrowed(_existing([*(path for path in sys.path if path), *_mapped()]), home)]


def without_programs(paths: Iterable[str]) -> Iterator[str]:
    """Yield paths without their folders of programs: whoever may start the dynamic loader starts what it can read."""
    for path in paths:
        names: list[str] = []
        with suppress(OSError):  # a file, or a folder that cannot be listed
            names = os.listdir(path)
        if not {"bin", "sbin"}.isdisjoint(names):
            yield from without_programs(os.path.join(path, name) for name in names)
        elif os.path.basename(path) not in {"bin", "sbin"}:
            yield path


def downloads(home: str) -> list[str]:
    """Return the folders of models and datasets in the user's folder for caches. Tokens are not in them."""
    folder = os.environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    return _existing(os.path.join(folder, name) for name in _DOWNLOADS) if folder else []


def of_project(roots: Iterable[str], files: Iterable[str], home: str) -> list[str]:
    """Return the paths that the code of files reads: their folders and the project's, without those inside of others.

    A link gives no right to what it leads to: whoever wrote the project may have put it there.
    """
    paths = _existing(filter(None, [*roots, *map(os.path.dirname, files)]))
    narrow = [path for path in paths if not _contains(path, home)]
    return sorted(path for path in paths if not any(path.startswith(other + os.sep) for other in narrow))


def narrowed(paths: Iterable[str], home: str) -> Iterator[str]:
    """Yield paths; in place of the user's home folder, its modules and packages, and in place of one above it, nothing.

    A script in the home folder imports what is beside it, and gets no key of the user.
    """
    for path in paths:
        if not _contains(path, home):
            yield path
        elif path == os.path.realpath(home):
            with suppress(OSError):
                for name in os.listdir(path):
                    inner = os.path.join(path, name)
                    if name.endswith(".py") or os.path.exists(os.path.join(inner, "__init__.py")):
                        yield inner


def _editable(entries: Iterable[str]) -> Iterator[str]:
    """Yield the folders of packages that are installed in place, as their installers have recorded (PEP 610)."""
    for entry in entries:
        with suppress(OSError):
            for name in os.listdir(entry):
                if name.endswith(".dist-info"):
                    yield from _recorded(os.path.join(entry, name, "direct_url.json"))


def _recorded(file: str) -> Iterator[str]:
    with suppress(OSError, ValueError, KeyError, TypeError), open(file, encoding="utf-8") as stream:
        recorded: dict[str, Any] = json.load(stream)
        if recorded.get("dir_info", {}).get("editable"):
            yield unquote(urlsplit(str(recorded["url"])).path)


def _mapped() -> Iterator[str]:
    """Yield the folders of the libraries that are loaded (Linux)."""
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as stream:
        for line in stream:
            _, slash, path = line.rstrip("\n").partition("/")
            if slash and ".so" in path:
                yield os.path.dirname("/" + path)


def _contains(path: str, home: str) -> bool:
    """Return True for the user's home folder, and for those above it."""
    return bool(home) and (os.path.realpath(home) + os.sep).startswith(path + os.sep)


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in dict.fromkeys(map(os.path.realpath, paths)) if os.path.exists(path) and path != os.sep]
