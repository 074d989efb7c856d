"""Order the entries of `sys.path` for the user's code, so that none hides another that matters."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location


def is_installed(file: str) -> bool:
    """Return True for a file of an installed package, in any environment."""
    return not _INSTALLED.isdisjoint(file.split(os.sep))


def folder_of_installed(file: str) -> str | None:
    """Return the folder of installed packages that a file is in, or None."""
    parts = file.split(os.sep)
    ends = [i + 1 for i, part in enumerate(parts) if part in _INSTALLED]
    return os.sep.join(parts[: ends[-1]]) if ends else None


_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages."""


def insert_user_paths(roots: Iterable[str]) -> None:
    """Insert `roots` into `sys.path`: after the standard library, before site-packages, in order.

    So a user's `types.py` hides nothing of Python's, and a user's package wins over an installed one of the same name.
    Existing entries stay in place, and the `roots` after them come after them: a package is not hidden by a module in
    it with its name.
    """
    at = _end_of_standard_library()
    for root in roots:
        path = os.path.abspath(root)
        present = [os.path.normcase(os.path.abspath(p)) for p in sys.path]
        if os.path.normcase(path) in present:
            at = max(at, present.index(os.path.normcase(path)) + 1)
        else:
            sys.path.insert(at, path)
            at += 1


def _end_of_standard_library() -> int:
    library = os.path.dirname(os.path.abspath(os.__file__))
    version = f"{sys.version_info[0]}{sys.version_info[1]}"
    own = {
        library,
        os.path.join(library, "lib-dynload"),
        os.path.join(os.path.dirname(library), f"python{version}.zip"),
        os.path.join(sys.base_prefix, f"python{version}.zip"),
        os.path.join(sys.base_exec_prefix, "DLLs"),
    }
    own = {os.path.normcase(p) for p in own}
    return max((i + 1 for i, p in enumerate(sys.path) if os.path.normcase(os.path.abspath(p)) in own), default=0)


STANDARD_LIBRARY = tuple(
    {os.path.join(os.path.abspath(sysconfig.get_path(name)), "") for name in ("stdlib", "platstdlib")}
)
"""The folders of the standard library, with a separator at the end. That of installed packages may be in them."""
OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "")
"""The folder of fx-lsp, with a separator at the end."""


def find_spec(name: str, path: Sequence[str] | None, texts: Mapping[str, str]) -> ModuleSpec | None:
    """Return the spec of a module in a file on disk, or in one that has only an unsaved text; None for any other."""
    spec = PathFinder.find_spec(name, path)
    for folder in (sys.path if path is None else path) if spec is None else ():
        stem = os.path.join(folder or os.getcwd(), name.rpartition(".")[2])
        files = (file for file in (os.path.join(stem, "__init__.py"), f"{stem}.py") if file in texts)
        if (file := next(files, None)) is not None:
            return spec_from_file_location(name, file)
    return spec
