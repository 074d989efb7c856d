"""Find the statements of a step that get values from data and read nothing that the step computes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fx_lsp.training.loops import numbers_of
from fx_lsp.training.statements import (
    Region,
    bound_names,
    fresh_names,
    header_names,
    names_in,
    parameters_in,
    region_at,
    statements_in,
    straight,
)


@dataclass(frozen=True)
class Draw:
    """Describe a statement of a step that draws from an iterator, `x, y = next(batches)`, and the names it binds."""

    statement: ast.stmt
    iterator: ast.expr
    bound: tuple[str, ...]


def draws_of(tree: ast.Module, step: int) -> Iterator[Draw]:
    """Yield the statements of a step that draw from an iterator and read no variable of the step itself."""
    for node in closed_statements(region_at(tree, step)):
        calls = (part for part in ast.walk(node) if _calls(part, "next"))
        call, bound = next(calls, None), tuple(sorted(fresh_names(node)))
        if isinstance(call, ast.Call) and call.args and bound:
            yield Draw(node, call.args[0], bound)


def bound_from_data(tree: ast.Module, step: int, is_stop: Callable[[ast.stmt], bool]) -> tuple[str, ...]:
    """Return the names that a step gets from data in the first of its statements that satisfies `is_stop`.

    These include `x`, `y` of `x, y = next(batches)`, but not the result of a model.
    """
    region = region_at(tree, step)
    stops = (node for node in straight(region.body if region else ()) if is_stop(node))
    stop, closed = next(stops, None), [*closed_statements(region)]
    return tuple(sorted(fresh_names(stop))) if stop is not None and stop in closed else ()


def closed_statements(region: Region | None) -> Iterator[ast.stmt]:
    """Yield the statements of a step that read no input and no variable of the step itself."""
    if region is None:
        return
    own = names_in(region.target) - numbers_of(region) if isinstance(region, ast.For) else set[str]()
    own |= parameters_in(region) - {"self"}
    for node in straight(region.body):
        if own.isdisjoint(names_in(node) - fresh_names(node)):
            yield node
        own |= bound_names([node]) - _begun_again(node)


def _begun_again(node: ast.stmt) -> set[str]:
    """Return the names that a statement, or one in it, assigns only new iterators: `batches = iter(loader)`."""
    begun, others = set[str](), set[str]()
    for part in statements_in([node]):
        begins = isinstance(part, ast.Assign) and _calls(part.value, "iter")
        (begun if begins else others).update(header_names(part, ast.Store))
    return begun - others


def _calls(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
