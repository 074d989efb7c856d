"""Detect whether a file runs as a program: its top level does something besides defining. Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Collection

from fx_lsp.syntax import DEFINITIONS, blocks_of, entered, is_main_guard
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.scopes import binds_of
from fx_lsp.tracing.source.torch_values import TorchValues

SCRIPT = "__main__"
"""The name of a file as a program."""


def driver_of(index: ModuleIndex) -> ast.stmt | None:
    """Return the first statement of a file that shows it to be a program: its guard, a loop, or a call of its
    definitions, or of an object that they make. None for a file that is imported, or run by a test tool.
    """
    if any(name.startswith("test_") for name in index.functions):
        return None
    values = [node for number, node in enumerate(index.body) if index.loads(number) & index.definitions.keys()]
    objects = {name for node in values if isinstance(node, ast.Assign) for name in binds_of(node)}
    return next((node for node in index.body if _drives(node, index, objects)), None)


def top_level_code(index: ModuleIndex, values: TorchValues) -> list[ast.stmt]:
    """Return the statements of a file's top level that make or use values from torch; none if no such value is used."""
    code = [node for node in entered(index.body) if not isinstance(node, (*DEFINITIONS, ast.Import, ast.ImportFrom))]
    using = [any(_uses(part, values) for part in walk(node)) for node in code]
    making = [any(isinstance(part, ast.Call) and values.has(part) for part in walk(node)) for node in code]
    is_used = any(using) and not any(name.startswith("test_") for name in index.functions)
    return [node for node, *is_code in zip(code, using, making, strict=True) if any(is_code)] if is_used else []


def _uses(node: ast.AST, values: TorchValues) -> bool:
    """Return True for an operation on a value from torch, or a call with one: `net(x)`, `x + 1`, `print(x.sum())`."""
    match node:
        case ast.Call(function, arguments, keywords):
            operands = [function, *arguments, *(keyword.value for keyword in keywords)]
        case ast.BinOp(left, _, right):
            operands = [left, right]
        case _:
            return False
    operands = [operand.value if isinstance(operand, ast.Attribute) else operand for operand in operands]
    own = (node for node in operands if isinstance(node, ast.Call) or getattr(node, "id", "") in values.names)
    return any(values.has(node) for node in own)


def _drives(node: ast.stmt, index: ModuleIndex, objects: Collection[str]) -> bool:
    if isinstance(node, ast.If) and is_main_guard(node):
        return not all(isinstance(part, (*DEFINITIONS, ast.Pass)) or _calls_main_of_tool(part) for part in node.body)
    if isinstance(node, (ast.For, ast.While, ast.With)):
        return any(isinstance(part, ast.Call) for part in walk(node))
    if isinstance(node, (ast.Try, ast.If)):
        return any(_drives(part, index, objects) for block in blocks_of(node) for part in block)
    called = {part.func.id for part in walk(node) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    if isinstance(node, ast.Expr):
        return bool(called & {*index.definitions, *objects}) or _ends_in_backward(node)
    return isinstance(node, (ast.Assign, ast.AugAssign)) and bool(called & index.functions.keys())


def _calls_main_of_tool(node: ast.stmt) -> bool:
    """Return True for `unittest.main()` and the like."""
    call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    return call is not None and isinstance(call.func, ast.Attribute) and call.func.attr == "main"


def _ends_in_backward(node: ast.Expr) -> bool:
    call = node.value
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
