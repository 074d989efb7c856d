"""Packages that cannot be had and that a target may do without: something stands in for them in its file's imports.

They are not installed, or raise when they are imported. Whatever is done with a stand-in raises, so that nothing is
traced that needs them."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fx_lsp.tracer.program.absences import Absent
from fx_lsp.tracer.program.paths import is_installed

MAX_PACKAGES = 12
"""For how many packages of one project something stands in."""


class PackageRaised(ImportError):
    """An installed package raised an error while it was imported."""

    def __init__(self, package: str, error: Exception) -> None:
        first_line = next(iter(str(error).strip().splitlines()), "")
        super().__init__(f"`{package}` cannot be imported: {type(error).__name__}: {first_line}", name=package)
        self.__cause__ = error
        self.__traceback__ = error.__traceback__


class MissingPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of packages that cannot be had, by the names of those, with the error that each one raised."""

    def __init__(self) -> None:
        self.errors: dict[str, ImportError] = {}

    def take(self, error: Exception) -> bool:
        """Stand in for the package whose import raised an error; False where that is not what it is about."""
        missing = _missing_package(error)
        package = missing or _raising_package(error)
        if not package or package in self.errors or len(self.errors) == MAX_PACKAGES:
            return False
        for name in [n for n in sys.modules if n.partition(".")[0] == package]:
            del sys.modules[name]
        if not self.errors:
            sys.meta_path.insert(0, self)
        self.errors[package] = error if missing and isinstance(error, ImportError) else PackageRaised(package, error)
        return True

    @property
    def first(self) -> ImportError | None:
        """Return why the first of the packages cannot be had."""
        return next(iter(self.errors.values()), None)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on the packages that are not installed, if there are any, and one on each that raises."""
        raised = [error for error in self.errors.values() if isinstance(error, PackageRaised)]
        missing = [f"`{name}`" for name, error in self.errors.items() if error not in raised]
        absent = [f"not installed, and left out: {', '.join(missing)}"] if missing else []
        return (*absent, *(f"left out: {error}" for error in raised))

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


def _raised(code: CodeType, module: ModuleType) -> Exception | None:
    """Return what an import raises."""
    names = {name: getattr(module, name, None) for name in ("__name__", "__package__", "__spec__", "__file__")}
    try:
        exec(code, names)
    except Exception as error:
        return error
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


def _missing_package(error: Exception) -> str:
    """Return the package that an import did not find, or ""."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else ""
    return package if package and _is_missing(package) else ""


def _raising_package(error: Exception) -> str:
    """Return the installed package of which a module raised while it was imported, or "".

    It is the first on the way to the error, as that is what the user's code imports.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "<module>" and is_installed(frame.f_code.co_filename):
            package = str(frame.f_globals.get("__name__") or "").partition(".")[0]
            return "" if package in NEVER_REPLACED else package
    return ""


NEVER_REPLACED = frozenset({"torch", "fx_lsp"})
"""Packages without which nothing is traced."""


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
