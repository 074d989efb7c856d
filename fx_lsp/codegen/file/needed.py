"""Put the steps of a program that only some of its results use under conditions: the results may not be needed."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeAlias

import torch

from fx_lsp.codegen.ir.statement import Assign, Block, CodeComment, Evaluate, Statement, expression_of, names_used
from fx_lsp.codegen.ir.text import parse_expression

Writes: TypeAlias = "Mapping[Statement, Sequence[str]]"
"""The statements that write into memory, with the names of this memory."""


@dataclass(frozen=True)
class OperatorResult:
    """A result of an operator: its expression, and the flags of which any asks for it."""

    expression: str
    flags: tuple[str, ...]


def with_conditions(
    statements: Iterable[Statement], writes: Writes, results: Sequence[OperatorResult], empty: str
) -> tuple[list[Statement], list[str]]:
    """Return the statements of an operator with conditions and its return, and the flags that these use, in order.

    A step has a condition if fewer than all results use it. Steps in a row with the same condition share a block.
    `empty` is the expression of a result that is not computed.
    """
    flags = tuple(dict.fromkeys(f for result in results for f in result.flags))
    uses = _Uses(flags)
    for result in results:
        uses.add(parse_expression(result.expression), frozenset(result.flags) or uses.every)
    backwards = [uses.through(statement, writes) for statement in reversed(list(statements))]
    asked = set(uses.masked)
    conditional: list[Statement] = []
    defined: set[str] = set()
    for asking, group in groupby(reversed(backwards), lambda pair: pair[1]):
        body = tuple(statement for statement, _ in group)
        cheap = not any(_computes(statement, writes) for statement in body) and not names_used(body) & defined
        if asking == uses.every or cheap:
            conditional += body
            continue
        asked |= asking
        defined.update(target for statement in body if isinstance(statement, Assign) for target in statement.targets)
        conditional.append(Block("if", parse_expression(any_of(flags, asking)), body))
    returned = [_conditional_text(r.expression, flags, asked.intersection(r.flags), empty) for r in results]
    conditional.append(Evaluate(parse_expression(", ".join(returned)), None, "return"))
    return conditional, [f for f in flags if f in asked]


def _conditional_text(expression: str, flags: Sequence[str], asking: Collection[str], empty: str) -> str:
    return f"{expression} if {any_of(flags, asking)} else {empty}" if asking else expression


def any_of(flags: Iterable[str], chosen: Collection[str]) -> str:
    """Return the condition that one of the chosen flags is set, as text."""
    return " or ".join(f for f in flags if f in chosen)


def _computes(statement: Statement, writes: Writes) -> bool:
    """Return True if a statement launches a kernel or calls an operation, and does not only allocate."""
    return statement in writes or (isinstance(statement, Assign) and statement.node is not None)


@dataclass
class _Uses:
    """The `flags` of the results that use a name, or an item of it, below the present statement.

    `ordered` are the flags of all results; `masked` are those in the masks of calls, and `last` those of the results
    that use the present statement.
    """

    ordered: tuple[str, ...]
    flags: dict[tuple[str, Any], frozenset[str]] = field(default_factory=dict[tuple[str, Any], frozenset[str]])
    masked: set[str] = field(default_factory=set[str])
    last: frozenset[str] = frozenset()

    @property
    def every(self) -> frozenset[str]:
        """The flags of all results."""
        return frozenset(self.ordered)

    def add(self, value: ast.expr, flags: frozenset[str]) -> None:
        """Add a use of an expression by the results with some flags."""
        for key in _names_and_items(value):
            self.flags[key] = self.flags.get(key, frozenset()) | flags

    def of(self, name: str) -> frozenset[str]:
        """Return the flags of the results that use a name or an item of it."""
        return frozenset[str]().union(*(flags for (used, _), flags in self.flags.items() if used == name))

    def through(self, statement: Statement, writes: Writes) -> tuple[Statement, frozenset[str]]:
        """Return the statement above the present one with the flags of the results that use it, and go on there."""
        if isinstance(statement, CodeComment):
            return statement, self.last or self.every
        defined = statement.targets if isinstance(statement, Assign) else ()
        used = frozenset[str]().union(*map(self.of, (*defined, *writes.get(statement, ()))))
        self.last = self.every if not used or _mutates(statement) else used
        if isinstance(statement, Assign):
            statement = self._with_mask(statement)
        self.flags = {key: flags for key, flags in self.flags.items() if key[0] not in defined}
        value = expression_of(statement)
        if value is not None:
            self.add(value, self.last)
        return statement, self.last

    def _with_mask(self, statement: Assign) -> Assign:
        """Return a call whose mask leaves out the parts that no needed result uses."""
        place = _mask_place(statement)
        if place is None or not isinstance(statement.value, ast.Call):
            return statement
        mask = statement.value.args[place]
        if not isinstance(mask, ast.List):
            return statement
        (name,) = statement.targets
        whole = self.flags.get((name, None), frozenset[str]())
        parts: list[ast.expr] = []
        for number, part in enumerate(mask.elts):
            asking = whole | self.flags.get((name, number), frozenset[str]())
            if asking and asking != self.every and ast.unparse(part) == "True":
                self.masked |= asking
                part = parse_expression(any_of(self.ordered, asking))
            parts.append(part)
        arguments = [*statement.value.args]
        arguments[place] = ast.List(parts, ast.Load())
        return replace(statement, value=ast.Call(statement.value.func, arguments, statement.value.keywords))


def _mutates(statement: Statement) -> bool:
    """Return True if a statement calls an operation that writes into an argument."""
    target = None if statement.node is None else statement.node.target
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _mask_place(statement: Assign) -> int | None:
    """Return the position of the argument of an operation that says which of its results to compute, or None."""
    target = None if statement.node is None else statement.node.target
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(statement.value, ast.Call):
        return None
    places = [n for n, a in enumerate(target._schema.arguments) if a.name == "output_mask"]
    return places[0] if places and places[0] < len(statement.value.args) else None


def _names_and_items(value: ast.AST) -> Iterator[tuple[str, Any]]:
    """Yield the names in an expression, each with None, or with the index of the item that is used."""
    if isinstance(value, ast.Name):
        yield value.id, None
    elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
        yield value.value.id, value.slice.value if isinstance(value.slice, ast.Constant) else None
        yield from _names_and_items(value.slice)
    else:
        for part in ast.iter_child_nodes(value):
            yield from _names_and_items(part)
