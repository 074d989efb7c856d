"""Name the files that change when an installed package that this process has imported is upgraded or edited."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from fx_lsp.tracer.program.paths import OWN_FOLDER, STANDARD_LIBRARY, folder_of_installed, is_installed

OF_KEY = frozenset({"torch", "fx_lsp", "__main__", "torchgen", "functorch"})
"""Packages whose version is a part of each answer's key already."""


def package_files() -> list[str]:
    """Return the file of each imported installed package, and the list of files of its distribution.

    An upgrade removes that list, since its path has the version, and an installation of the same version replaces it.
    """
    files: list[str] = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name in OF_KEY or name.startswith("_") or not isinstance(file, str):
            continue
        folder = folder_of_installed(file)
        if folder is not None:
            files += [file, *_record(folder, name)]
    return files


def foreign_modules(roots: Sequence[str]) -> list[str]:
    """Return the files of imported modules that belong neither to the project nor to an installed package, such as
    those of an editable installation.
    """
    elsewhere = (*STANDARD_LIBRARY, OWN_FOLDER, *(os.path.join(root, "") for root in roots))
    files = ((name.partition(".")[0], getattr(module, "__file__", None)) for name, module in list(sys.modules.items()))
    return [
        file
        for package, file in files
        if isinstance(file, str)
        and package not in OF_KEY
        and os.path.isabs(file)
        and not file.startswith(elsewhere)
        and not is_installed(file)
    ]


@cache
def _record(folder: str, name: str) -> tuple[str, ...]:
    """Return the file with the list of files of the distribution that a module comes from, if there is one."""
    named = _by_name(folder).get(_normal(name))
    if named is None:
        start = f"{name}/__init__.py,"
        tops = (each for each in _by_name(folder).values() if _mentions(os.path.join(folder, each, "RECORD"), start))
        named = next(tops, None)
    if named is None:
        return ()
    files = (os.path.join(folder, named, file) for file in ("RECORD", "METADATA"))
    return tuple(file for file in files if os.path.exists(file))[:1]


@cache
def _by_name(folder: str) -> dict[str, str]:
    """Return the names of the metadata folders of distributions, by the name of the distribution."""
    names: list[str] = []
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
    return {_normal(name.partition("-")[0]): name for name in names}


def _mentions(file: str, start: str) -> bool:
    """Return True if a line of a file starts with a text."""
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return any(line.startswith(start) for line in stream)
    except OSError:
        return False


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
