"""Project code that says when its functions are entered, while a program runs; afterwards it is as it was written."""

from __future__ import annotations

import ast
import builtins
import gc
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from fx_lsp.tracer.program.paths import is_installed

ENTERED, LEFT = " entered", " left"
"""The names of what instrumented code calls where a function begins, and where a constructor ends."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_METHODS = frozenset({"forward", "__init__"})
"""Methods that classes of other files may inherit, and that say what a target is called or constructed with."""


class Instrument:
    """Compiles files below `roots` with calls of `entered` and `left`; of those `watched` every function has one.

    `texts` are unsaved, by path.
    """

    def __init__(self, roots: Sequence[str], texts: Mapping[str, str], watched: Collection[str]) -> None:
        self._roots = tuple(root + os.sep for root in roots)
        self._texts, self._watched = texts, watched
        self._compiled: dict[str, str] = {}

    def install(self) -> None:
        """Have modules of the project imported so from now on."""
        sys.meta_path.insert(0, _Finder(self))
        self.listen(lambda: None, lambda: None)

    def listen(self, entered: Callable[[], object], left: Callable[[], object]) -> None:
        """Have these called from now on; what they look at is the frame of their caller."""
        setattr(builtins, ENTERED, entered)
        setattr(builtins, LEFT, left)

    def compile(self, tree: ast.Module, text: str, file: str) -> ast.Module:
        """Return the tree of a file with the calls in it; `text` is what it is restored to. The tree is changed."""
        self._compiled[file] = text
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS) and (file in self._watched or node.name in _METHODS):
                is_documented = ast.get_docstring(node, clean=False) is not None
                node.body.insert(int(is_documented), _call(ENTERED, node.body[0]))
                if node.name == "__init__":
                    node.body.append(_call(LEFT, node.body[-1]))
        return tree

    def concerns(self, file: str) -> bool:
        """Return whether a file is one of the project's."""
        return file.startswith(self._roots) and file.endswith(".py") and not is_installed(file)

    def text_of(self, file: str) -> str | None:
        """Return the unsaved text of a file, if there is one."""
        return self._texts.get(os.path.realpath(file), self._texts.get(file))

    def restore(self) -> None:
        """Have the functions that exist in this process run as their files have them, from now on."""
        self.listen(lambda: None, lambda: None)
        plain: dict[str, Mapping[tuple[int, str], CodeType]] = {}
        for function in [item for item in gc.get_objects() if type(item) is FunctionType]:
            code = function.__code__
            file = code.co_filename
            if file not in self._compiled or code.co_name.startswith("<"):
                continue
            if file not in plain:
                module = compile(self._compiled[file], file, "exec", dont_inherit=True)
                plain[file] = {(inner.co_firstlineno, inner.co_name): inner for inner in _codes_in(module)}
            wanted = plain[file].get((code.co_firstlineno, code.co_name))
            if wanted is not None and wanted.co_freevars == code.co_freevars:
                function.__code__ = wanted


def _call(name: str, near: ast.stmt) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
    for part in ast.walk(call):
        ast.copy_location(part, near)
    return call


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not self._instrument.concerns(spec.origin):
            return None
        spec.loader = _Loader(fullname, spec.origin, self._instrument)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, instrument: Instrument) -> None:
        super().__init__(fullname, path)
        self._instrument = instrument

    def get_source(self, fullname: str) -> str:
        unsaved = self._instrument.text_of(self.path)
        return unsaved if unsaved is not None else super().get_source(fullname) or ""

    def get_code(self, fullname: str) -> Any:
        text = self.get_source(fullname)
        tree = self._instrument.compile(ast.parse(text, self.path), text, self.path)
        return compile(tree, self.path, "exec", dont_inherit=True)
