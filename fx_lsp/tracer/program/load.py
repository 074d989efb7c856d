"""Load the user's module from the unsaved buffer: only the part that the target reaches, or all of it if that fails."""

from __future__ import annotations
import __future__

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from fx_lsp.model import TraceRequest
from fx_lsp.tracer.compat import DATA_DEPENDENT
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.absences import Absences, Absent, tolerant, without_lacking_names
from fx_lsp.tracer.program.installed import OF_KEY
from fx_lsp.tracer.program.partial_imports import PartialImports
from fx_lsp.tracer.program.paths import find_spec, is_installed
from fx_lsp.tracer.program.processes.environment import is_set_for
from fx_lsp.training.function import with_step


@dataclass
class Loaded:
    """Hold the module that defines the target, and remarks on how it was loaded.

    `whole` is the reason why more than the slice had to run, and `missing` the first import error of a missing package
    with a placeholder.
    """

    module: ModuleType
    whole: bool
    notes: tuple[str, ...] = ()
    missing: ImportError | None = None


Rewrite = Callable[[ast.Module, str, str], ast.Module]
"""Returns the tree that runs of a file, from its tree, its text and its path."""
_rewrites: list[Rewrite] = []


@contextmanager
def rewritten(rewrite: Rewrite) -> Generator[None, None, None]:
    """Inside, the files of targets are loaded as `rewrite` returns them."""
    _rewrites.append(rewrite)
    try:
        yield
    finally:
        _rewrites.pop()


class LoadError(Exception):
    """The user's module raised while it was imported; `__cause__` is its exception."""


_SLICE_TOO_SMALL = (NameError, AttributeError, KeyError)


def load(request: TraceRequest, mode: AbstractContextManager[object], with_stand_ins: bool = True) -> Loaded:
    """Execute the target's slice as a module. Raises LoadError from the exception of the user's code.

    Its top level runs under `mode`, so that its tensors are fake; `with_stand_ins` adds placeholders for missing
    packages, which raise when they are used.
    """
    use_overlays(request.overlays)
    trouble = None
    try:
        trouble = import_package(request.package) if request.package else None
        loaded = _load_without_packages(request, mode) if with_stand_ins else _load(request, mode)
    except SystemExit:
        raise
    except Exception as error:
        raise LoadError from (trouble or error)
    if trouble is not None:
        left_out = f"`{request.package}` was not imported as a package: {type(trouble).__name__}: {trouble}"
        return replace(loaded, notes=(*loaded.notes, left_out))
    return loaded


def use_overlays(texts: Mapping[str, str]) -> None:
    """Import files from unsaved texts, by their paths, from now on."""
    if texts:
        sys.meta_path.insert(0, _Overlays(texts))


def import_package(name: str) -> Exception | None:
    """Import a package. Returns the exception, if it raises; then only the modules in the package can be imported.

    So a target can be traced that does not need the failing imports of its package's `__init__`.
    """
    try:
        importlib.import_module(name)
    except Exception as error:
        parts = name.split(".")
        for package in (".".join(parts[: i + 1]) for i in range(len(parts))):
            spec = None if package in sys.modules else importlib.util.find_spec(package)
            if spec is not None:
                sys.modules[package] = importlib.util.module_from_spec(spec)
        return error
    return None


def _load_without_packages(request: TraceRequest, mode: AbstractContextManager[object]) -> Loaded:
    """Load the target's module, with placeholders for missing packages, and values for unset environment variables.

    If that fails, their first exception is raised.
    """
    missing = PartialImports(request.file)
    while True:
        try:
            loaded = _load(request, mode, lacks_names=missing.lacking is not None)
        except Exception as error:
            if not missing.take(error) and not is_set_for(error):
                raise missing.first_error or error from None
        else:
            return replace(loaded, notes=(*loaded.notes, *missing.notes()), missing=missing.first)


def _load(request: TraceRequest, mode: AbstractContextManager[object], lacks_names: bool = False) -> Loaded:
    try:
        tree = syntax_of(request, request.sliced)
        tree = without_lacking_names(tree) if lacks_names else tree
        return Loaded(_execute(request, request.sliced, mode, tree), whole=False)
    except OSError as error:
        return _without_data(request, mode, error)
    except _SLICE_TOO_SMALL as error:
        if request.sliced == request.source or isinstance(error, ModuleNotFoundError):
            raise
        raised = f"{type(error).__name__}: {error}"
    note = f"the whole file was run, because the part that {request.name} uses raised {raised}"
    return Loaded(_execute(request, request.source, mode), whole=True, notes=(note,))


def _without_data(request: TraceRequest, mode: AbstractContextManager[object], error: OSError) -> Loaded:
    """Return the slice without code that needs missing files; raises the error if the target itself does."""
    module = _execute(request, request.sliced, mode, tolerant(ast.parse(request.sliced, request.file), ()))
    if isinstance(vars(module).get(request.name.partition(".")[0]), Absent):
        raise error
    note = f"code that uses missing data was skipped: {type(error).__name__}: {error}"
    return Loaded(module, whole=False, notes=(note,))


def without_what_raises(request: TraceRequest, mode: AbstractContextManager[object]) -> ModuleType:
    """Return the target's module, in which statements that raise leave their names absent, also those in the
    constructor of its class.
    """
    if request.package:
        import_package(request.package)
    tree = ast.parse(request.sliced, request.file)
    return _execute(request, request.sliced, mode, tolerant(tree, constructor_lines(tree, request.name)))


def constructor_lines(tree: ast.Module, name: str) -> list[int]:
    """Return the first line of the constructor of the class that a qualified name is or is in, if it has one."""
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name.partition(".")[0])
    methods = (part for node in classes for part in node.body if isinstance(part, ast.FunctionDef))
    return [method.lineno for method in methods if method.name == "__init__"]


def _execute(
    request: TraceRequest, text: str, mode: AbstractContextManager[object], tree: ast.Module | None = None
) -> ModuleType:
    """Run a text of the target's file. `tree` is the text as it parses, or with changes."""
    tree = syntax_of(request, text) if tree is None else tree
    linecache.cache[request.file] = (len(text), None, text.splitlines(keepends=True), request.file)
    for rewrite in _rewrites[-1:]:
        tree = rewrite(tree, text, request.file)
    try:
        with mode:
            return _run(request, tree)
    except DATA_DEPENDENT:
        return _run(request, tree)


def syntax_of(request: TraceRequest, text: str) -> ast.Module:
    """Return the syntax of a text of the target's file, in which a step is a function that returns its losses."""
    tree = ast.parse(text, request.file)
    return with_step(tree, request.step, request.name) if request.step else tree


def empty_module(request: TraceRequest) -> ModuleType:
    """Return an empty module for the target's file, under its name."""
    return new_module(request.module, request.package, request.file)


def new_module(name: str, package: str, file: str) -> ModuleType:
    """Return an empty module for a file under a name, by which it can be imported."""
    module = ModuleType(name)
    module.__file__ = file
    module.__package__ = package
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=file)
    sys.modules[name] = module
    return module


def _run(request: TraceRequest, tree: ast.Module) -> ModuleType:
    module = empty_module(request)
    absences = Absences()
    vars(module).update(absences.namespace())
    exec(compile(tree, request.file, "exec", dont_inherit=True), module.__dict__)
    notes().numbers.update(absences.numbers)
    return module


def codes_of(tree: ast.Module, file: str) -> Iterator[tuple[Any, bool]]:
    """Yield the code of each statement of a slice, and whether it is an import."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    names = [alias.name for node in imports for alias in node.names]
    flags = sum(getattr(__future__, name).compiler_flag for name in names)
    for node in tree.body:
        inner = node.body[0] if isinstance(node, ast.Try) else node
        code = compile(ast.Module([node], []), file, "exec", flags, dont_inherit=True)
        yield code, isinstance(inner, (ast.Import, ast.ImportFrom))


class _Overlays(importlib.abc.MetaPathFinder):
    """Import files that are open in the editor from their unsaved text."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        spec = find_spec(fullname, path, self._texts)
        if spec is None or spec.origin is None:
            return None
        text = self._texts.get(os.path.realpath(spec.origin), self._texts.get(spec.origin))
        if text is None:
            return None
        spec.loader = _OverlayLoader(fullname, spec.origin, text)
        return spec


class _OverlayLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_source(self, fullname: str) -> str:
        return self._text

    def get_code(self, fullname: str) -> Any:
        return compile(self._text, self.path, "exec", dont_inherit=True)


def find(module: ModuleType, name: str) -> Any:
    """Return the object with a qualified name in the module. Raises AttributeError."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def dependencies(
    request: TraceRequest, package_dir: str | None, site: Sequence[str], before: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the project files that are loaded now or configure, without the target's own, and the names of installed
    modules.

    `before` are the modules that were loaded before the request; of those only the project's count. An installed target
    counts its top-level package (`package_dir`) as its project.
    """
    files = {place.file for fit in request.fits for place in fit.configurations} - {request.file}
    installed: list[str] = []
    for name, module in list(sys.modules.items()):
        if name in before and package_dir is None:
            continue
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or file == request.file:
            continue
        own = package_dir is not None and file.startswith(package_dir + os.sep)
        in_site = any(file.startswith(s + os.sep) for s in site)
        if own or (not in_site and any(file.startswith(root + os.sep) for root in request.roots)):
            files.add(file)
        if in_site and name not in before and name.partition(".")[0] not in OF_KEY:
            installed.append(name)
    return tuple(sorted(files)), tuple(installed)


def forget_changed(request: TraceRequest, package_dir: str | None, since: float) -> None:
    """Drop the modules of the target's own package if one of them changed after `since` (seconds since the epoch).

    If the target is itself installed, a zygote may have imported them long ago.
    """
    if package_dir is None:
        return
    own = {
        name: file
        for name, module in list(sys.modules.items())
        if isinstance(file := getattr(module, "__file__", None), str) and file.startswith(package_dir + os.sep)
    }
    if any(file in request.overlays or _changed(file, since) for file in own.values()):
        for name in own:
            del sys.modules[name]


def forget_project(roots: Sequence[str], before: Collection[str]) -> None:
    """Drop the modules below `roots` that were imported since `before`."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name not in before and isinstance(file, str) and any(file.startswith(r + os.sep) for r in roots):
            del sys.modules[name]


@contextmanager
def project_anew(request: TraceRequest, but: Collection[str]) -> Generator[None, None, None]:
    """Import the project's modules again inside, except for `but`, so that they use the current versions of these.

    Afterwards the modules that were loaded before are restored.
    """
    modules = {name: module for name, module in list(sys.modules.items()) if name not in but}
    kept = {name: module for name, module in modules.items() if is_of_project(name, module, request.roots)}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(kept)


def is_of_project(name: str, module: ModuleType, roots: Sequence[str]) -> bool:
    """Return True for a module below the roots that is not installed there."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or name.partition(".")[0] in OF_KEY:
        return False
    return any(file.startswith(root + os.sep) for root in roots) and not is_installed(file)


def _changed(file: str, since: float) -> bool:
    try:
        return os.stat(file).st_mtime > since
    except OSError:
        return True
