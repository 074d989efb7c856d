"""Find the names that a program binds at its start: under its `if __name__ == "__main__":`, and in functions called
there that declare names `global`. Reads syntax only.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

from fx_lsp.syntax import DEFINITIONS, FUNCTIONS, FunctionNode, is_main_guard
from fx_lsp.tracing.slicing.backward_slice import Backwards, KeptCode, Path, blocks, header_nodes, render
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.scopes import binds_of, loads_of

MAX_DEPTH = 3
"""The most functions between the guard and a function that declares a name `global`."""
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Entry:
    """Hold the guards of a module, and the functions that lead from them to assignments of globals."""

    def __init__(self, text: str, index: ModuleIndex) -> None:
        self._text, self._body, self._imported = text, index.body, index.imports
        self._guards = [node for node in index.body if isinstance(node, ast.If) and is_main_guard(node)]
        self._functions: Mapping[str, FunctionNode] = index.functions if self._guards else {}

    @cached_property
    def _bound(self) -> frozenset[str]:
        """Return the names that the guards themselves bind."""
        return frozenset(name for guard in self._guards for name in binds_of(guard))

    @cached_property
    def _declared(self) -> Mapping[str, str]:
        """Return the assigning function of each name that it declares `global`."""
        declared: dict[str, str] = {}
        for function in self._functions.values():
            for name in _globals_of(function):
                declared.setdefault(name, function.name)
        return declared

    def slice(self, names: Collection[str], without: Collection[str]) -> tuple[Mapping[int, str], set[str]]:
        """Return the lines that bind those of `names` that the entry binds, with positions kept, and the other names
        that they read.

        The functions `without` are needed completely, so nothing is left out of them.
        """
        needs = Backwards(self._imported, set(self._bound.intersection(names)), skipped=runs_long)
        paths: list[Path] = []
        for function in self._assigning(names, without):
            paths += self._followed(function, needs)
        for guard in self._guards:
            needs.bind(guard.body)
        lines: dict[int, str] = {}
        for node in self._body if needs.kept else ():
            path = next((path for path in paths if path[0] is node), ())
            if path or any(inner in needs.kept for block in blocks(node) for inner in block):
                way = path[1:] if is_main_guard(node) else path
                lines |= render(self._text, [node], KeptCode(needs.kept | {node}, way, choices=needs.choices))
        return lines, needs.names - {path[0].name for path in paths if isinstance(path[0], FUNCTIONS)}

    def _assigning(self, names: Collection[str], without: Collection[str]) -> Iterator[FunctionNode]:
        """Yield the functions that assign those of `names` that nothing else binds."""
        declaring = {self._declared[name] for name in names if name in self._declared and name not in self._bound}
        yield from (self._functions[name] for name in sorted(declaring) if name not in without)

    def _followed(self, function: FunctionNode, needs: Backwards) -> Iterator[Path]:
        """Add to `needs` the code that the globals of a function need, in it and at its call sites. Return a path for
        each place.
        """
        calls = self._way_to(function.name, MAX_DEPTH)
        if calls is None:
            return
        declared = [node for node in walk(function) if isinstance(node, ast.Global)]
        inner = Backwards(self._imported, _globals_of(function), {function, *declared}, runs_long)
        inner.bind(function.body)
        inner.leave(function)
        yield (function, declared[0])
        for path in calls:
            needs.kept |= inner.kept
            needs.names |= inner.names
            inner = Backwards(self._imported, {*loads_of(path[-1]), *binds_of(path[-1])}, skipped=runs_long)
            inner.follow((), path)
            yield path
        needs.kept |= inner.kept
        needs.names |= inner.names

    def _way_to(self, name: str, depth: int) -> list[Path] | None:
        """Return the statements that call the function `name`, and the calls of their enclosing functions; None without
        any.
        """
        for guard in self._guards:
            path = _call_in(guard, name)
            if path is not None:
                return [path]
        for function in self._functions.values() if depth else ():
            path = _call_in(function, name)
            outer = self._way_to(function.name, depth - 1) if path is not None and function.name != name else None
            if path is not None and outer is not None:
                return [path, *outer]
        return None


def runs_long(node: ast.stmt) -> bool:
    """Return True for a loop over data: it trains, or it binds nothing that counts afterwards."""
    return isinstance(node, _LOOPS) and any(
        isinstance(part, ast.Attribute) and part.attr in ("backward", "step", "eval", "train") for part in walk(node)
    )


def _globals_of(function: FunctionNode) -> set[str]:
    return {name for node in walk(function) if isinstance(node, ast.Global) for name in node.names}


def _call_in(node: ast.stmt, name: str) -> Path | None:
    """Return the path to the first statement below `node` that calls the function `name`."""
    for block in blocks(node):
        for statement in block:
            calls = (part for part in header_nodes(statement) if isinstance(part, ast.Call))
            if any(isinstance(call.func, ast.Name) and call.func.id == name for call in calls):
                return (node, statement)
            inner = _call_in(statement, name) if not isinstance(statement, DEFINITIONS) else None
            if inner is not None:
                return (node, *inner)
    return None
