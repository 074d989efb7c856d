"""Statements of kernels and of the functions around them, as data with definitions and uses."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import fx

from fx_lsp.codegen.ir.text import name, parse_expression, substitute, unparse


@dataclass(frozen=True)
class CodeLine:
    """A line of text and the operation that it comes from."""

    text: str
    node: fx.Node | None = None


@dataclass(frozen=True)
class CodeComment:
    """A comment on a line of its own."""

    text: str
    node: fx.Node | None = None


@dataclass(frozen=True)
class Assign:
    """`targets = value`; with an operator, such as "+", one target is updated: `target += value`."""

    targets: tuple[str, ...]
    value: ast.expr
    node: fx.Node | None = None
    operator: str = ""


@dataclass(frozen=True)
class Evaluate:
    """An expression statement, such as the call of a store, or a `keyword`, such as "return", with its expression."""

    value: ast.expr
    node: fx.Node | None = None
    keyword: str = ""


@dataclass(frozen=True)
class For:
    """`for variable in values:`."""

    variable: str
    values: ast.expr
    body: tuple[Statement, ...]
    node: fx.Node | None = None


@dataclass(frozen=True)
class Block:
    """`if value:`, or another statement with a body: a `keyword` and its expression."""

    keyword: str
    value: ast.expr
    body: tuple[Statement, ...]
    node: fx.Node | None = None


Statement: TypeAlias = "CodeComment | Assign | Evaluate | For | Block"


def assign(
    targets: str | Sequence[str], value: str | ast.expr, node: fx.Node | None = None, operator: str = ""
) -> Assign:
    """Return an assignment. Its value may be Python text."""
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    return Assign(names, parse_expression(value) if isinstance(value, str) else value, node, operator)


def expression_of(statement: Statement) -> ast.expr | None:
    """Return the expression of a statement, without those in its body. Returns None for a comment."""
    if isinstance(statement, CodeComment):
        return None
    return statement.values if isinstance(statement, For) else statement.value


def every_statement(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Yield statements and those of their bodies."""
    for statement in statements:
        yield statement
        if isinstance(statement, (For, Block)):
            yield from every_statement(statement.body)


def expressions_in(statements: Iterable[Statement]) -> Iterator[ast.expr]:
    """Yield the expressions of statements and of their bodies."""
    for statement in every_statement(statements):
        value = expression_of(statement)
        if value is not None:
            yield value


def names_used(statements: Iterable[Statement]) -> set[str]:
    """Return the names read in statements. An update of a name does not count as a read."""
    return {name for value in expressions_in(statements) for name in _names_in(value)}


def divisors(statements: Iterable[Statement], numbers: Collection[str]) -> set[str]:
    """Return the names by which statements divide integers, except where these consist of `numbers` alone."""
    parts = (part for value in expressions_in(statements) for part in ast.walk(value))
    divisions = [p for p in parts if isinstance(p, ast.BinOp) and isinstance(p.op, (ast.FloorDiv, ast.Mod))]
    return {name for d in divisions if not _names_in(d.left) <= set(numbers) for name in _names_in(d.right)}


def _names_in(value: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}


def rename(statements: Iterable[Statement], names: Mapping[str, str]) -> tuple[Statement, ...]:
    """Return statements with names replaced in definitions and uses."""
    replacements = {old: name(new) for old, new in names.items()}
    return _mapped(statements, lambda value: substitute(value, replacements), lambda old: names.get(old, old))


def with_expressions(statements: Iterable[Statement], change: Callable[[ast.expr], ast.expr]) -> tuple[Statement, ...]:
    """Return statements with each expression changed."""
    return _mapped(statements, change, lambda old: old)


def _mapped(
    statements: Iterable[Statement], value: Callable[[ast.expr], ast.expr], target: Callable[[str], str]
) -> tuple[Statement, ...]:
    changed: list[Statement] = []
    for each in statements:
        if isinstance(each, Assign):
            changed.append(replace(each, targets=tuple(map(target, each.targets)), value=value(each.value)))
        elif isinstance(each, Evaluate):
            changed.append(replace(each, value=value(each.value)))
        elif isinstance(each, For):
            body = _mapped(each.body, value, target)
            changed.append(replace(each, variable=target(each.variable), values=value(each.values), body=body))
        elif isinstance(each, Block):
            changed.append(replace(each, value=value(each.value), body=_mapped(each.body, value, target)))
        else:
            changed.append(each)
    return tuple(changed)


def without_definitions(statements: Iterable[Statement], names: Collection[str]) -> tuple[Statement, ...]:
    """Return statements without assignments that only define some names."""
    kept: list[Statement] = []
    for each in statements:
        if isinstance(each, (For, Block)):
            kept.append(replace(each, body=without_definitions(each.body, names)))
        elif not isinstance(each, Assign) or not set(each.targets) <= set(names):
            kept.append(each)
    return tuple(kept)


def print_statements(statements: Iterable[Statement], indent: str = "    ") -> list[CodeLine]:
    """Return statements as lines. `file/format.py` breaks long ones."""
    lines: list[CodeLine] = []
    for each in statements:
        lines.append(CodeLine(indent + _text(each), each.node))
        if isinstance(each, (For, Block)):
            lines += print_statements(each.body, f"{indent}    ")
    return lines


def _text(statement: Statement) -> str:
    if isinstance(statement, CodeComment):
        return f"# {statement.text}"
    if isinstance(statement, For):
        return f"for {statement.variable} in {_printed(statement.values)}:"
    if isinstance(statement, Block):
        return f"{statement.keyword} {_printed(statement.value)}:"
    if isinstance(statement, Evaluate):
        bare = _without_brackets(statement.value) if statement.keyword else _printed(statement.value)
        return f"{statement.keyword} {bare}" if statement.keyword else bare
    several = len(statement.targets) > 1
    value = _without_brackets(statement.value) if several else _printed(statement.value)
    return f"{', '.join(statement.targets)} {statement.operator}= {value}"


def _without_brackets(value: ast.expr) -> str:
    """Return an expression as text, a tuple of several elements without its brackets."""
    if isinstance(value, ast.Tuple) and len(value.elts) > 1:
        return ", ".join(map(_printed, value.elts))
    return _printed(value)


def _printed(value: ast.expr) -> str:
    """Return an expression as text, with the usual brackets instead of those of `ast.unparse`."""
    return unparse(_Brackets().visit(deepcopy(value)) if any(map(_has_odd_brackets, ast.walk(value))) else value)


def _has_odd_brackets(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return not any(isinstance(part, ast.Slice) for part in node.slice.elts)
    return isinstance(node, ast.BoolOp) or _is_division_in_product(node)


def _is_division_in_product(node: ast.AST) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.BinOp)):
        return False
    return isinstance(node.left.op, (ast.FloorDiv, ast.Mod))


class _Brackets(ast.NodeTransformer):
    """Add brackets to a tuple index, such as the grid of a launch, and to a division inside a product.

    Remove them from `not` beside `and`.
    """

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if _has_odd_brackets(node):
            node.slice = name(ast.unparse(node.slice))
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        node.values = [name(ast.unparse(v)) if isinstance(v, ast.UnaryOp) else v for v in node.values]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        divided = _is_division_in_product(node)
        self.generic_visit(node)
        if divided:
            node.left = name(f"({ast.unparse(node.left)})")
        return node
