"""Project code that says when its functions and training steps begin, and whose loops end when they bring nothing new,
while a program runs; afterwards it is as it was written.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Protocol

from fx_lsp.syntax import blocks_of
from fx_lsp.tracer.program.paths import find_spec, is_installed
from fx_lsp.tracer.program.rewriting.edit import new_codes
from fx_lsp.tracer.program.rewriting.script import rehearse_functions, with_short_loops
from fx_lsp.training.function import step_statements
from fx_lsp.training.statements import LOOPS
from fx_lsp.training.step import STEP, steps_of

ENTERED, LEFT, REACHED = " entered", " left", " reached"
"""The names of what instrumented code calls where a function begins, where a constructor ends, and before the loop of a
step, with the name of the step and its function.
"""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_ASYNC = (ast.Await, ast.Yield, ast.YieldFrom)
_METHODS = frozenset({"forward", "__init__"})
"""Methods that classes of other files may inherit, and that say what a target is called or constructed with."""


class Listener(Protocol):
    """Hears of functions of the project that begin, of constructors that come to their end, and of steps."""

    def entered(self, frame: FrameType) -> None: ...
    def left(self, frame: FrameType) -> None: ...
    def reached(self, frame: FrameType, name: str, step: FunctionType) -> None: ...


class Instrument:
    """Compiles files below `roots` so that they tell of functions that begin; of those `watched` every function does.

    `texts` are unsaved, by path; `places` are the functions that have run, by file and line.
    """

    def __init__(self, roots: Sequence[str], texts: Mapping[str, str], watched: Collection[str]) -> None:
        self._roots = tuple(root + os.sep for root in roots)
        self.texts, self._watched = texts, watched
        self.places: set[tuple[str, int]] = set()
        self._compiled: dict[str, str] = {}
        self._functions: dict[int, FunctionType] = {}
        self._seen: set[CodeType] = set()
        self._watch: Listener | None = None
        self._is_restored = False

    def install(self) -> None:
        """Have modules of the project imported so from now on."""
        sys.meta_path.insert(0, _Finder(self))
        self.hear()

    def hear(self) -> None:
        """Have what is compiled by this tell it when it runs."""
        setattr(builtins, ENTERED, self._entered)
        setattr(builtins, LEFT, self._left)
        setattr(builtins, REACHED, self._reached)

    def listen(self, watch: Listener) -> None:
        """Tell `watch` of the frames that are entered and left from now on."""
        self._watch = watch

    def compile(self, tree: ast.Module, text: str, file: str) -> ast.Module:
        """Return the tree of a file with the calls in it; `text` is what it is restored to. The tree is changed."""
        if self._is_restored:
            return tree
        self._compiled[file] = text
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS) and (file in self._watched or node.name in _METHODS):
                is_documented = ast.get_docstring(node, clean=False) is not None
                node.body.insert(int(is_documented), _call(ENTERED, node.body[0]))
                if node.name == "__init__":
                    node.body.append(_call(LEFT, node.body[-1]))
        if file in self._watched:
            _add_steps(tree, text)
        return tree

    def imported(self, tree: ast.Module, text: str, file: str) -> ast.Module:
        """Return the tree that runs for an imported file: as `compile` does, with loops that end early.

        Functions with steps do without data that are missing, as those of a program.
        """
        if not self._is_restored:
            if file in self._watched:
                steps = steps_of(tree)
                rehearse_functions(tree, {node.lineno for step in steps for node in step.path})
            tree = with_short_loops(tree)
        return self.compile(tree, text, file)

    def concerns(self, file: str) -> bool:
        """Return whether a file is one of the project's."""
        return file.startswith(self._roots) and file.endswith(".py") and not is_installed(file)

    def text_of(self, file: str) -> str | None:
        """Return the unsaved text of a file, if there is one."""
        return self.texts.get(os.path.realpath(file), self.texts.get(file))

    def restore(self) -> None:
        """Have the functions that exist in this process run as their files have them, and tell of nothing more."""
        self._watch, self._is_restored = None, True
        self.collect()
        for file in self._compiled:
            self.edit(file, self._compiled[file])

    def collect(self) -> None:
        """Find the functions that exist by now; what the garbage collector leaves alone later cannot be found then."""
        functions = (item for item in gc.get_objects() if type(item) is FunctionType)
        self._functions |= {id(f): f for f in functions if f.__code__.co_filename in self._compiled}

    def can_edit(self, file: str, text: str) -> bool:
        """Return whether each function of a file sees the same variables in a later text."""
        return all(code.co_freevars == function.__code__.co_freevars for function, code in self._pairs(file, text))

    def edit(self, file: str, text: str) -> None:
        """Have the functions of a file run as a later text has them; only bodies of functions may differ there."""
        for function, code in self._pairs(file, text):
            if code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code

    def replace(self, code: CodeType) -> None:
        """Have the functions that begin where a code does run that code."""
        place = code.co_filename, code.co_firstlineno, code.co_name
        for function in self._functions.values():
            old = function.__code__
            is_there = (old.co_filename, old.co_firstlineno, old.co_name) == place
            if is_there and old.co_freevars == code.co_freevars:
                function.__code__ = code

    def _pairs(self, file: str, text: str) -> list[tuple[FunctionType, CodeType]]:
        """Return the functions of a file, each with its code in a later text."""
        if file not in self._compiled:
            return []
        codes = new_codes(file, self._compiled[file], text)
        functions = [f for f in self._functions.values() if f.__code__.co_filename == file]
        pairs = ((f, codes.get((f.__code__.co_firstlineno, f.__code__.co_name))) for f in functions)
        return [(function, code) for function, code in pairs if code is not None]

    def _entered(self) -> None:
        frame = sys._getframe(1)
        code = frame.f_code
        if code not in self._seen:
            self._seen.add(code)
            self.places.add((code.co_filename, code.co_firstlineno))
        if self._watch is not None:
            self._watch.entered(frame)

    def _left(self) -> None:
        if self._watch is not None:
            self._watch.left(sys._getframe(1))

    def _reached(self, name: str, step: FunctionType) -> None:
        if self._watch is not None:
            self._watch.reached(sys._getframe(1), name, step)


def _add_steps(tree: ast.Module, text: str) -> None:
    """Add before each loop that is a step its function, and a call with it; the tree is changed.

    Where that cannot be made, because a variable that the loop carries is not bound, the loop runs all the same.
    """
    steps = {step.region.lineno: step for step in steps_of(ast.parse(text)) if isinstance(step.region, LOOPS)}
    for block in [block for node in ast.walk(tree) for block in _blocks(node)]:
        for node in [node for node in block if isinstance(node, LOOPS) and node.lineno in steps]:
            step = steps[node.lineno]
            is_async = any(isinstance(part, (ast.AsyncFunctionDef, *_ASYNC)) for part in (*step.path, *ast.walk(node)))
            statements = step_statements(step.region, step.path, step.name) if not is_async else []
            if statements and _compiles(statements):
                name = ast.Name(STEP.format(step.name.rpartition(".")[2]), ast.Load())
                call = ast.Expr(ast.Call(ast.Name(REACHED, ast.Load()), [ast.Constant(step.name), name], []))
                handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
                attempt = ast.Try([*statements, call], [handler], [], [])
                block.insert(block.index(node), ast.copy_location(attempt, node))
    ast.fix_missing_locations(tree)


def _compiles(statements: Sequence[ast.stmt]) -> bool:
    """Return True if the function of a step is valid Python: one with a `nonlocal` statement is not."""
    try:
        compile(ast.fix_missing_locations(ast.Module([*statements], [])), "", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    return blocks_of(node) if isinstance(node, ast.stmt) else [node.body] if isinstance(node, ast.Module) else []


def _call(name: str, near: ast.stmt) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
    for part in ast.walk(call):
        ast.copy_location(part, near)
    return call


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        spec = find_spec(fullname, path, self._instrument.texts)
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
        unsaved = self._instrument.text_of(self.path)
        tree = ast.parse(unsaved if unsaved is not None else self.get_data(self.path), self.path)
        tree = self._instrument.imported(tree, self.get_source(fullname), self.path)
        return compile(tree, self.path, "exec", dont_inherit=True)
