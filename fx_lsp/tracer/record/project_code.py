"""Find the project's code: its files, and the names of its functions and classes."""

from __future__ import annotations

import ast
import os
import sys
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_INSTALLED = frozenset({"site-packages", "dist-packages"})
_MAX_DECORATORS = 16


class ProjectFiles:
    """Find the Python files below `root` that are neither installed nor part of a virtual environment.

    Relative names are relative to `directory`; `foreign` are the requested names of other files.
    """

    def __init__(self, root: str, directory: str) -> None:
        self._root = os.path.realpath(root)
        self._directory = directory
        self._paths: dict[str, str | None] = {}
        self.foreign: set[str] = set()

    def relative(self, file: str) -> str | None:
        """Return the path of a code object's file relative to the root, with slashes; None if it is not below it."""
        try:
            return self._paths[file]
        except KeyError:
            self._paths[file] = path = self._find(file)
            if path is None:
                self.foreign.add(file)
            return path

    def _find(self, file: str) -> str | None:
        if not file or file.startswith("<"):
            return None
        path = os.path.realpath(os.path.join(self._directory, file))
        if not _is_below(path, self._root) or not os.path.isfile(path):
            return None
        if any(_is_below(prefix, self._root) and _is_below(path, prefix) for prefix in _prefixes()):
            return None
        relative = os.path.relpath(path, self._root)
        parts = relative.split(os.sep)[:-1]
        if not _INSTALLED.isdisjoint(parts):
            return None
        folders = (os.path.join(self._root, *parts[:end]) for end in range(1, len(parts) + 1))
        if any(os.path.exists(os.path.join(folder, "pyvenv.cfg")) for folder in folders):
            return None
        return relative.replace(os.sep, "/")


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip(os.sep) + os.sep)


def _prefixes() -> set[str]:
    return {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix)}


def qualified_name(code: CodeType) -> str:
    """Return the qualified name of a function: `Block.extra`, `outer.<locals>.inner`."""
    if sys.version_info >= (3, 11):
        return code.co_qualname
    return _names_in(code.co_filename).get((code.co_firstlineno, code.co_name), code.co_name)


@lru_cache(maxsize=256)
def _names_in(file: str) -> dict[tuple[int, str], str]:
    """Return qualified names by first line (a decorator's, if there is one) and name."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return {}
    names: dict[tuple[int, str], str] = {}
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, prefix = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{prefix}{node.name}"
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            names[first, node.name] = name
            prefix = f"{name}." if isinstance(node, ast.ClassDef) else f"{name}.<locals>."
        waiting += [(child, prefix) for child in ast.iter_child_nodes(node)]
    return names


def owner_of(first: Any, owner: str, name: str) -> type | None:
    """Return the class with the qualified name `owner` that `first`, an instance or a class, belongs to.

    None if there is none, or if its `name` is a static method: then `first` is an ordinary argument.
    """
    cls = first if isinstance(first, type) else type(first)
    base = next((k for k in cls.__mro__ if k.__qualname__ == owner), None)
    return None if base is None or isinstance(vars(base).get(name), staticmethod) else base


def code_of(function: Any) -> CodeType | None:
    """Return the code of a function, below decorators with `__wrapped__`; None for anything else."""
    for _ in range(_MAX_DECORATORS):
        if not isinstance(function, FunctionType):
            break
        if "__wrapped__" not in vars(function):
            return function.__code__
        function = vars(function)["__wrapped__"]
    return None
