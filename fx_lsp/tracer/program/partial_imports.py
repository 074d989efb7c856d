"""Handle imports that a target may not need: missing packages, and errors in other files of the project.

There are placeholders for a package that is not installed, for a module or a name that the installed version lacks, and
for packages that raise on import. Any use of a placeholder raises, so that no trace depends on it. In another file, a
statement that raises is left out.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fx_lsp.tracer.program.absences import Absences, Absent, tolerant
from fx_lsp.tracer.program.paths import is_installed

MAX_PACKAGES = 12
"""The most packages of one project with placeholders."""


class PackageRaised(ImportError):
    """An installed package raised an error while it was imported."""

    def __init__(self, package: str, error: Exception) -> None:
        super().__init__(f"`{package}` cannot be imported: {_told(error)}", name=package)
        self.__cause__ = error
        self.__traceback__ = error.__traceback__


class PartialImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find missing modules, by the dotted names of their packages or their own, with the error of each.

    `lacking` is raised by an import in the user's own file of a name that an installed package lacks.
    """

    def __init__(self, own: str) -> None:
        """Begin with nothing missing; `own` is the file with the imports."""
        self.errors: dict[str, ImportError] = {}
        self.lacking: ImportError | None = None
        self.files: dict[str, str] = {}
        self.first_error: Exception | None = None
        self._own = own

    def take(self, error: Exception) -> bool:
        """Replace the package, or leave out the statement of another file, that raised an error; False if the error has
        another cause.
        """
        is_new = self._take_package(error) or self._take_file(error) or self._take_name(error)
        if is_new and self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        return is_new

    def _take_package(self, error: Exception) -> bool:
        missing = _missing_module(error)
        package = missing or _raising_package(error)
        if not package or package in self.errors or len(self.errors) >= MAX_PACKAGES:
            return False
        for name in [name for name in sys.modules if package in _packages_of(name)]:
            del sys.modules[name]
        is_error = isinstance(error, ImportError)
        self.errors[package] = error if is_error and missing else PackageRaised(package, error)
        self.first_error = self.first_error or self.errors[package]
        return True

    def _take_file(self, error: Exception) -> bool:
        is_of_package = _missing_module(error) or _raising_package(error) or isinstance(error, SyntaxError)
        file, line = ("", 0) if is_of_package else _raising_file(error, self._own)
        if not file or file in self.files:
            return False
        told = f"skipped, because it raises when `{Path(file).name}` is imported: line {line}, {_told(error)}"
        self.files[file], self.first_error = told, self.first_error or error
        return True

    def _take_name(self, error: Exception) -> bool:
        if self.lacking is not None or not isinstance(error, ImportError) or not _is_lacked(error, self._own):
            return False
        self.lacking, self.first_error = error, self.first_error or error
        return True

    @property
    def first(self) -> ImportError | None:
        """Return the error of the first missing package, or of a missing name, or None."""
        return next(iter(self.errors.values()), self.lacking)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on the packages that are not installed, if there are any, and one on those that raise."""
        raised = [error for error in self.errors.values() if isinstance(error, PackageRaised)]
        missing = [name for name, error in self.errors.items() if error not in raised]
        told = (
            ("not installed, and skipped", [f"`{name}`" for name in missing if "." not in name]),
            ("not in the installed version, and skipped", [f"`{name}`" for name in missing if "." in name]),
        )
        absent = [f"{why}: {', '.join(names)}" for why, names in told if names]
        lacking = [f"skipped: {_told(self.lacking)}"] if self.lacking is not None else []
        return (*absent, *(f"skipped: {error}" for error in raised), *lacking, *self.files.values())

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        """Return the spec of a placeholder for a module of a missing package, or of a file that runs in part."""
        if self._stands_for(fullname) is not None:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        finders = (finder for finder in sys.meta_path if self.files and not isinstance(finder, PartialImports))
        specs = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.origin not in self.files or not isinstance(spec.loader, SourceFileLoader):
            return None
        spec.loader = _InPart(spec.loader)
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return a module with any attribute."""
        error = self._stands_for(spec.name)
        assert error is not None, "only what is missing has such a spec"
        return _MissingModule(spec.name, error)

    def _stands_for(self, name: str) -> ImportError | None:
        """Return the error of a missing module, or None."""
        return next((self.errors[package] for package in _packages_of(name) if package in self.errors), None)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: a placeholder is complete when created."""


class _InPart(importlib.abc.Loader):
    """Run a file without its top-level statements that raise: their names are absent."""

    def __init__(self, loader: SourceFileLoader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        """Run the file."""
        tree = tolerant(ast.parse(self._loader.get_source(module.__name__) or "", self._loader.path), ())
        vars(module).update(Absences().namespace())
        exec(compile(tree, self._loader.path, "exec", dont_inherit=True), vars(module))


def forget_stand_ins() -> None:
    """Forget the placeholders for missing packages, and the files that run in part."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, PartialImports)]
    for name, module in list(sys.modules.items()):
        if isinstance(module, _MissingModule):
            del sys.modules[name]


def stand_in_for(text: str, module: ModuleType) -> PartialImports:
    """Replace missing packages for the imports at the top level of a text, direct or through other files; return the
    finder.

    `module` is the module in which the text will run.
    """
    missing = PartialImports(module.__file__ or "")
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            code = compile(ast.Module([node], []), module.__name__, "exec", dont_inherit=True)
            while (error := _raised(code, module)) is not None and missing.take(error):
                pass
    return missing


def _raised(code: CodeType, module: ModuleType) -> Exception | None:
    """Return the exception of an import, or None."""
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


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def _raising_file(error: Exception, own: str) -> tuple[str, int]:
    """Return the file of the project whose import raised an error, and the line, or "" and 0.

    It is the last before the error, and not the user's `own` file.
    """
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>"
    ]
    file, line = frames[-1] if frames else ("", 0)
    of_python = Path(os.__file__).parent in Path(file).parents
    return (
        (file, line) if Path(file).is_file() and file != own and not is_installed(file) and not of_python else ("", 0)
    )


def _packages_of(name: str) -> list[str]:
    """Return the dotted names of the packages around a module, the outermost first, and its own."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _missing_module(error: Exception) -> str:
    """Return the package that an import did not find, or the module that an installed one lacks, or ""."""
    names = _packages_of(error.name) if isinstance(error, ImportError) and error.name else []
    if not names or _is_missing(names[0]):
        return names[0] if names else ""
    if not isinstance(error, ModuleNotFoundError) or not _is_installed(names[0]):
        return ""
    return next((name for name in names if _is_missing(name)), "")


def _is_installed(package: str) -> bool:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and is_installed(spec.origin)


def _is_lacked(error: ImportError, own: str) -> bool:
    """Return True if an import in a file asks for a name that an installed package lacks."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if (error.name or "").partition(".")[0] in NEVER_REPLACED:
        return False
    return bool(frames) and frames[-1].f_code.co_filename == own and error.path is not None and is_installed(error.path)


def _raising_package(error: Exception) -> str:
    """Return the installed package of which a module raised on import, or "".

    It is the first before the error, because the user's code imports that. For a package that traces depend on, it is
    that module alone.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "<module>" and is_installed(frame.f_code.co_filename):
            module = str(frame.f_globals.get("__name__") or "")
            package = module.partition(".")[0]
            return package if package not in NEVER_REPLACED else module if module != package else ""
    return ""


NEVER_REPLACED = frozenset({"torch", "fx_lsp"})
"""Packages that every trace needs."""


def _is_missing(package: str) -> bool:
    """Return True for a missing package, or a folder without sources, such as an empty submodule."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return True
    folders = spec.submodule_search_locations if spec.origin is None else None
    return folders is not None and not any(any(Path(folder).rglob("*.py")) for folder in folders)
