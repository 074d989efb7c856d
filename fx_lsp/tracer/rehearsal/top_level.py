"""Make the top-level statements of a program that compute with tensors a function, once the program has run.

Modules, parameters and other objects that the program makes are those of the run; the function reads them.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import ModuleType
from typing import Any, TypeVar

import torch

from fx_lsp.syntax import DEFINITIONS, entered
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.run.call import is_users_object, tensors_in
from fx_lsp.training.body import returning
from fx_lsp.training.results import calls_backward, loss_of
from fx_lsp.training.statements import names_in
from fx_lsp.training.step import steps_of

T = TypeVar("T")
MAX_ITERATIONS = 16
"""The most iterations of a loop that all become part of the function."""
FEW = 2
"""The number of iterations of a longer loop."""
_FEW = " few"
"""The function that limits the iterations of a loop."""
_SHOWN = " shown {}"
"""The name of a value that a statement only shows: `net(x)` of `print(net(x))`."""
_NO_CODE = (*DEFINITIONS, ast.Import, ast.ImportFrom)


@dataclass
class TopLevel:
    """Hold the statements of a program's top level, and those that `compute` with tensors of the top level.

    A statement whose tensors others compute is none of these: a training loop is a step, and `train(net)` calls one.
    """

    tree: ast.Module
    computing: list[ast.stmt] = field(default_factory=list[ast.stmt])
    others: list[ast.stmt] = field(default_factory=list[ast.stmt])
    results: dict[str, None] = field(default_factory=dict[str, None])

    def __post_init__(self) -> None:
        regions = {step.region for step in steps_of(self.tree)}
        self._by_place = {(node.lineno, node.col_offset): node for node in entered(self.tree.body)}
        self._steps = {
            node
            for node in self._by_place.values()
            if not isinstance(node, DEFINITIONS) and any(part in regions for part in ast.walk(node))
        }

    def add(self, place: ast.stmt, names: dict[str, Any], trained: bool, is_last: bool) -> bool:
        """Add the statement at a place, which ran operations and left `names`, if it computes; it failed if it
        `is_last`. Return whether it computes.
        """
        node = self._by_place[place.lineno, place.col_offset]
        if isinstance(node, _NO_CODE) or node in self._steps or (trained and loss_of(node) is None):
            return False
        bound = names_in(node, contexts=ast.Store)
        values = {name: names[name] for name in sorted(bound) if name in names and not is_last}
        results = [name for name, value in values.items() if _computed(value)]
        reads = any(_has_tensors(names.get(name)) for name in names_in(node, contexts=ast.Load))
        is_plain = all(isinstance(value, (int, float, str, tuple, list, type(None))) for value in values.values())
        computes = bool(results) or (is_plain and (reads or any(_calls_torch(part, names) for part in ast.walk(node))))
        if computes:
            self.computing.append(node)
            self.results.update(dict.fromkeys(results))
        return computes

    def pass_by(self, place: ast.stmt) -> None:
        """Note a statement that ran no operation."""
        node = self._by_place[place.lineno, place.col_offset]
        if not isinstance(node, _NO_CODE):
            self.others.append(node)

    def define(self, name: str, module: ModuleType) -> ast.Module:
        """Define the function `name` of the computing statements in the module that the program ran in; return the
        module's definitions and the function.
        """
        (function,) = ast.parse(f"def {name}(): pass").body
        assert isinstance(function, ast.FunctionDef)
        statements = [*self._statements()]
        results: list[ast.expr] = [ast.Name(n, ast.Load()) for n in (*self.results, *self._show(statements, module))]
        value = results[0] if len(results) == 1 else ast.Tuple(results, ast.Load())
        ast.copy_location(function, statements[0])
        ending = ast.copy_location(ast.Return(value), function)
        function.body = returning(statements) if any(map(calls_backward, statements)) else [*statements, ending]
        function.end_lineno, function.end_col_offset = statements[-1].end_lineno, statements[-1].end_col_offset
        for part in ast.walk(function):
            if isinstance(part, ast.For):
                arguments = [part.iter, ast.Constant(part.lineno)]
                part.iter = ast.copy_location(ast.Call(ast.Name(_FEW, ast.Load()), arguments, []), part.iter)
        definitions = [node for node in self.tree.body if isinstance(node, DEFINITIONS)]
        tree = ast.fix_missing_locations(ast.Module([*definitions, function], []))
        vars(module)[_FEW] = few
        exec(compile(ast.Module([function], []), module.__file__ or "", "exec", dont_inherit=True), vars(module))
        return tree

    def _statements(self) -> Iterator[ast.stmt]:
        """Yield the computing statements, and others that bind one of their names: `n = 4` before `n = x.sum()`."""
        chosen, wanted = [*self.computing], names_in(*self.computing, contexts=ast.Store)
        while more := [n for n in self.others if n not in chosen and names_in(n, contexts=ast.Store) & wanted]:
            chosen += more
            wanted |= names_in(*more, contexts=ast.Store)
        return iter(sorted(chosen, key=lambda node: (node.lineno, node.col_offset)))

    def _show(self, statements: Sequence[ast.stmt], module: ModuleType) -> Iterator[str]:
        """Replace calls that only show values by these values; yield the names of those that are always computed."""
        count = itertools.count()
        for part in (part for node in statements for part in ast.walk(node)):
            if isinstance(part, ast.Expr) and loss_of(part) is None:
                values = [*_shown_by(part.value, vars(module))]
                for index, value in enumerate(values):
                    if part in statements and not isinstance(value, (ast.Name, ast.Constant)):
                        yield (name := _SHOWN.format(next(count)))
                        values[index] = ast.NamedExpr(ast.Name(name, ast.Store()), value)
                part.value = ast.copy_location(ast.Tuple([*values], ast.Load()), part.value)


def _shown_by(node: ast.expr, names: Mapping[str, Any]) -> Iterator[ast.expr]:
    """Yield the values that an expression shows: `x.sum()` of `print(f"{x.sum():.2f}")`; else the expression."""
    match node:
        case ast.Call(ast.Name(name), parts) if name not in names:
            pass
        case ast.Call(ast.Attribute(ast.Constant(), "format"), parts) | ast.JoinedStr(parts) | ast.Tuple(parts):
            pass
        case ast.BinOp(ast.Constant(str()), ast.Mod(), part) | ast.FormattedValue(part) | ast.Starred(part):
            parts = [part]
        case _:
            yield node
            return
    yield from (value for part in parts for value in _shown_by(part, names))


def few(items: Iterable[T], line: int) -> Sequence[T]:
    """Return the items of the loop at a line, or the first few if there are many."""
    first = [*islice(items, MAX_ITERATIONS + 1)]
    if len(first) <= MAX_ITERATIONS:
        return first
    notes().add(f"the graph has {FEW} iterations of the loop at line {line}")
    return first[:FEW]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [] if is_users_object(value) else [tensor for _, tensor in tensors_in(value, "", 2)]


def _has_tensors(value: Any) -> bool:
    return bool(_tensors(value))


def _computed(value: Any) -> bool:
    """Return True for a value with tensors that are not parameters: leaves that require a gradient."""
    return any(not (tensor.is_leaf and tensor.requires_grad) for tensor in _tensors(value))


def _calls_torch(node: ast.AST, names: dict[str, Any]) -> bool:
    """Return True for a call of a function of PyTorch, by a dotted name."""
    if not isinstance(node, ast.Call):
        return False
    path, function = node.func, list[str]()
    while isinstance(path, ast.Attribute):
        function.append(path.attr)
        path = path.value
    value: Any = names.get(path.id) if isinstance(path, ast.Name) else None
    for attribute in reversed(function):
        value = getattr(value, attribute, None) if isinstance(value, ModuleType) else None
    return value in torch.overrides.get_testing_overrides() if callable(value) else False
