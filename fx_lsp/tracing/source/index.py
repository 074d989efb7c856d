"""Index the names that the top level of a module defines, imports, binds, reads and changes, once, by name."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from fx_lsp.syntax import DEFINITIONS, FUNCTIONS, FunctionNode, is_main_guard
from fx_lsp.tracing.source.operators import libraries_of, registered, used
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.scopes import (
    alterations_of,
    binds_of,
    calls_of,
    changes_of,
    effects_of,
    loads_of,
)
from fx_lsp.tracing.source.tensor_code import collect_imports

Numbers: TypeAlias = Mapping[str, Sequence[int]]
"""Statements by their names, each as its index in the module's body, in order.

Statements that do not run on import, or that only train, are left out.
"""


class ModuleIndex:
    """Index the statements of a module by their names. Blocks at the top level count as part of it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.body = tree.body
        self._loads: dict[int, frozenset[str]] = {}

    @cached_property
    def definitions(self) -> Mapping[str, FunctionNode | ast.ClassDef]:
        """Return the functions and classes that are statements of the module; the last one of each name."""
        return {node.name: node for node in self.body if isinstance(node, DEFINITIONS)}

    @cached_property
    def functions(self) -> Mapping[str, FunctionNode]:
        """Return the functions that are statements of the module."""
        return {name: node for name, node in self.definitions.items() if isinstance(node, FUNCTIONS)}

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        """Return the classes that are statements of the module."""
        return {name: node for name, node in self.definitions.items() if isinstance(node, ast.ClassDef)}

    @cached_property
    def imports(self) -> Mapping[str, str]:
        """Return the full names of the module's own imports."""
        return collect_imports(self.body)

    @cached_property
    def import_statements(self) -> Sequence[ast.Import | ast.ImportFrom]:
        """Return every import in the file, including those in functions."""
        return [node for node in walk(self.tree) if isinstance(node, (ast.Import, ast.ImportFrom))]

    @cached_property
    def all_imports(self) -> Mapping[str, str]:
        """Return the full names of all imports anywhere in the file."""
        return collect_imports(self.import_statements)

    @cached_property
    def origins(self) -> Mapping[str, tuple[str, str, int]]:
        """Return the module, the name in it ("" for the module itself) and the level of each imported name."""
        origins: dict[str, tuple[str, str, int]] = {}
        for node in self.import_statements:
            for alias in node.names:
                of_module = (node.module or "", alias.name, node.level) if isinstance(node, ast.ImportFrom) else None
                origins[alias.asname or alias.name] = of_module or (alias.name, "", 0)
        return origins

    @cached_property
    def annotations(self) -> Mapping[str, frozenset[str]]:
        """Return, for each parameter name, the names in its first annotation anywhere in the file."""
        names: dict[str, frozenset[str]] = {}
        for node in walk(self.tree):
            if isinstance(node, ast.arg) and node.annotation is not None and node.arg not in names:
                names[node.arg] = frozenset(n.id for n in walk(node.annotation) if isinstance(n, ast.Name))
        return names

    @cached_property
    def called_parameters(self) -> frozenset[str]:
        """Return the names of the parameters that functions of the module call."""
        return frozenset(
            call.func.id
            for function in self.functions.values()
            for call in walk(function)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            if any(isinstance(part, ast.arg) and part.arg == call.func.id for part in walk(function.args))
        )

    @cached_property
    def whole_modules(self) -> frozenset[str]:
        """Return the classes with a `forward` that no other class of the module is built of."""
        numbers = {node.name: i for i, node in enumerate(self.body) if isinstance(node, ast.ClassDef)}
        parts = {loaded for name, number in numbers.items() for loaded in self.loads(number) if loaded != name}
        methods = {
            name: {part.name for part in node.body if isinstance(part, FUNCTIONS)}
            for name, node in self.classes.items()
        }
        return frozenset(name for name, defined in methods.items() if "forward" in defined) - parts

    def loads(self, number: int) -> frozenset[str]:
        """Return the module-level names that a statement may read."""
        if number not in self._loads:
            statement = self.body[number]
            operators = (registered(statement, self._libraries) | used(statement)) & self.operators.keys()
            self._loads[number] = loads_of(statement) | operators
        return self._loads[number]

    def binds(self, name: str) -> bool:
        """Return whether a statement of the module binds `name`."""
        return name in self.binders

    def is_class(self, name: str) -> bool:
        """Return whether a statement of the module, or one in its blocks, defines a class `name`."""
        binders = (self.body[number] for number in self.binders.get(name, []))
        return any(isinstance(n, ast.ClassDef) and n.name == name for n in walk(*binders))

    def users(self, name: str) -> list[str]:
        """Return the functions and classes of the module that mention `name`."""
        return [n.name for i, n in enumerate(self.body) if isinstance(n, DEFINITIONS) and name in self.loads(i)]

    def holders(self, name: str) -> set[str]:
        """Return the containers at the top level that hold `name`: `NETS = {"small": Small}`, `@register class
        Small`.
        """
        held: set[str] = set()
        for number, node in enumerate(self.body):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in self.loads(number):
                held |= binds_of(node) if isinstance(node.value, (ast.List, ast.Dict, ast.Tuple)) else changes_of(node)
        involved = {i for i, node in enumerate(self.body) if name in self.loads(i) or name in binds_of(node)}
        return held.union(name for name, numbers in self.registrations.items() if involved.intersection(numbers))

    def import_line(self, package: str) -> int | None:
        """Return the first line on which the module itself imports `package`."""
        for node in self.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if any(name.partition(".")[0] == package for name in names):
                return node.lineno
        return None

    @cached_property
    def binders(self) -> Numbers:
        """Return the statements that bind a name."""
        return self._numbers(binds_of)

    @cached_property
    def changers(self) -> Numbers:
        """Return the statements that change the object of a name."""
        return self._numbers(changes_of)

    @cached_property
    def method_callers(self) -> Numbers:
        """Return the statements that make a call for its effect which may change an object, by its name."""
        return self._numbers(lambda statement: effects_of(statement, self.imports.keys()))

    @cached_property
    def module_callers(self) -> Numbers:
        """Return the statements that call a function of a module for its effect: `flags.DEFINE_integer("width", 64,
        "")`.
        """
        return self._numbers(lambda node: frozenset({_called_of(node)} & self.imports.keys()))

    @cached_property
    def operators(self) -> Numbers:
        """Return the statements that register operators, by their namespace (`mine::`)."""
        return self._numbers(lambda statement: registered(statement, self._libraries))

    @cached_property
    def alterations(self) -> Mapping[int, frozenset[str]]:
        """Return the names that the functions of the module change when called, by the index of each function."""
        altered = {number: alterations_of(node) for number, node in enumerate(self.body)}
        return {number: names for number, names in altered.items() if names}

    @cached_property
    def registrations(self) -> Numbers:
        """Return the statements that call a function which changes a name: `register("gelu", nn.GELU)`, `@register`."""
        altered: dict[str, set[str]] = {}
        for number, names in self.alterations.items():
            for function in binds_of(self.body[number]):
                altered.setdefault(function, set()).update(names)
        return self._numbers(lambda node: frozenset(n for called in calls_of(node) for n in altered.get(called, ())))

    @cached_property
    def _libraries(self) -> dict[str, str]:
        return libraries_of(self.body)

    def _numbers(self, names: Callable[[ast.stmt], frozenset[str]]) -> Numbers:
        numbers: dict[str, list[int]] = {}
        for number, statement in enumerate(self.body):
            if not _never_runs(statement):
                for name in names(statement):
                    numbers.setdefault(name, []).append(number)
        return numbers


def _called_of(node: ast.stmt) -> str:
    """Return `flags` for `flags.DEFINE_integer("width", 64, "")`: a call for its effect whose first argument is a
    literal.
    """
    call = node.value if isinstance(node, ast.Expr) else None
    owner = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    is_named = isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
    return owner.id if is_named and isinstance(owner, ast.Name) and owner.id != "torch" else ""


def _never_runs(node: ast.stmt) -> bool:
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("backward", "step")
            for n in walk(node)
        )
    return is_main_guard(node)
