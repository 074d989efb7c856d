"""Find statements that register or use custom operators: `torch.ops.mine.scale` contains no name of the file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from fx_lsp.tracing.source.parsing import walk

_QUALIFIED = re.compile(r"([A-Za-z_]\w*)::[A-Za-z_]")


def libraries_of(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """Return the namespace of each name that is bound to a library of operators: `lib = Library("mine", "DEF")`."""
    libraries: dict[str, str] = {}
    for node in statements:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        value = node.value
        if isinstance(value, ast.Call) and _last_name(value.func) == "Library" and value.args:
            namespace = value.args[0]
            targets: list[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(namespace, ast.Constant) and isinstance(namespace.value, str):
                libraries |= {t.id: namespace.value for t in targets if isinstance(t, ast.Name)}
    return libraries


def registered(statement: ast.stmt, libraries: dict[str, str]) -> frozenset[str]:
    """Return the namespaces in which a statement registers operators, each as `mine::`."""
    return frozenset(f"{namespace}::" for namespace in _registered(statement, libraries))


def used(statement: ast.stmt) -> frozenset[str]:
    """Return the namespaces whose operators a statement uses: `mine::` for `torch.ops.mine.scale`."""
    nodes = (node for node in walk(statement) if isinstance(node, ast.Attribute))
    return frozenset(f"{node.attr}::" for node in nodes if _last_name(node.value) == "ops")


def _registered(statement: ast.stmt, libraries: dict[str, str]) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        parts: list[ast.expr] = statement.decorator_list
    elif isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign)) and statement.value is not None:
        parts = [statement.value]
    else:
        return
    for node in walk(*parts):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (match := _QUALIFIED.match(node.value)):
            yield match[1]
        elif isinstance(node, ast.Name) and node.id in libraries:
            yield libraries[node.id]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
