"""Packages that are not installed and that a target may do without: something stands in for them in its file's imports.

Whatever is done with that raises, so that nothing is traced that needs them."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fx_lsp.tracer.program.absences import Absent

MAX_PACKAGES = 12
"""For how many packages of one project something stands in."""


class MissingPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of packages that are not installed, by the names of those, with the error that each one raised."""

    def __init__(self) -> None:
        self.errors: dict[str, ImportError] = {}

    def take(self, error: ImportError) -> bool:
        """Stand in for the package whose import raised an error; False where that is not what it is about."""
        package = (error.name or "").partition(".")[0]
        if not package or package in self.errors or len(self.errors) == MAX_PACKAGES or not _is_missing(package):
            return False
        for name in [n for n in sys.modules if n.partition(".")[0] == package]:
            del sys.modules[name]
        if not self.errors:
            sys.meta_path.insert(0, self)
        self.errors[package] = error
        return True

    @property
    def first(self) -> ImportError | None:
        """Return what the import of the first of the packages raised."""
        return next(iter(self.errors.values()), None)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on the packages, if there are any."""
        names = ", ".join(f"`{name}`" for name in self.errors)
        return (f"not installed, and left out: {names}",) if names else ()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Return the spec of a module that stands in for one of a missing package."""
        if fullname.partition(".")[0] not in self.errors:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Make a module with any attribute."""
        return _MissingModule(spec.name, self.errors[spec.name.partition(".")[0]])

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: a stand-in is complete as it is made."""


def stand_in_for(text: str, module: ModuleType) -> None:
    """Have something stand in for the packages that are not installed and that imports at the top level of a text need,
    directly or by other files. `module` is that in which the text is going to run."""
    missing = MissingPackages()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            code = compile(ast.Module([node], []), module.__name__, "exec", dont_inherit=True)
            while (error := _raised(code, module)) is not None and missing.take(error):
                pass


def _raised(code: CodeType, module: ModuleType) -> ImportError | None:
    """Return what an import raises of packages that are not there."""
    names = {name: getattr(module, name, None) for name in ("__name__", "__package__", "__spec__", "__file__")}
    try:
        exec(code, names)
    except ImportError as error:
        return error
    except Exception:
        return None
    return None


class _MissingModule(ModuleType):
    """A module that has every name, each of which is absent."""

    def __init__(self, name: str, error: ImportError) -> None:
        super().__init__(name)
        self._error = error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(self._error, imported=True)


def _is_missing(package: str) -> bool:
    """Return True for a package that is not there, or a folder without sources, as a submodule leaves one."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return True
    folders = spec.submodule_search_locations if spec.origin is None else None
    return folders is not None and not any(any(Path(folder).rglob("*.py")) for folder in folders)
