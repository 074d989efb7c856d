"""Track values that depend on a guess: remarks on them are information, not mistakes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fx_lsp.model import Remark, Span
from fx_lsp.syntax import FUNCTIONS, FunctionNode
from fx_lsp.tracer.source.expressions import expression


@dataclass(frozen=True)
class GuessedVariables:
    """Hold the `names` of variables with guessed values in a function, and of variables computed from them."""

    names: frozenset[str]

    @classmethod
    def among(cls, node: FunctionNode, names: Iterable[str]) -> GuessedVariables:
        """Return the guesses of a function, starting with `names` of outer variables or of its parameters."""
        variables = frozenset(names)
        while True:
            bound = {name for targets, value in _bindings(node) if _reads(value, variables) for name in targets}
            if bound <= variables:
                return cls(variables)
            variables |= bound

    def are_read(self, span: Span | None, lines: list[str]) -> bool:
        """Return True if the expression at a span reads one of the variables."""
        node = expression(span, lines)
        return node is not None and _reads(node, self.names)

    def reported(self, remarks: Iterable[Remark], lines: list[str]) -> tuple[Remark, ...]:
        """Return remarks; those that depend on a guess have the severity "information"."""
        return tuple(replace(r, severity="information") if self.are_read(r.span, lines) else r for r in remarks)


def _bindings(node: ast.AST) -> Iterator[tuple[list[str], ast.AST]]:
    """Yield the names that each statement below `node` binds, and their value; a call binds the parameters of a
    function that is defined there.
    """
    functions = {part.name: part for part in ast.walk(node) if isinstance(part, FUNCTIONS) and part is not node}
    for part in ast.walk(node):
        if isinstance(part, ast.Assign):
            yield _stored(*part.targets), part.value
        elif isinstance(part, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and part.value is not None:
            yield _stored(part.target), part.value
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in functions:
            parameters = functions[part.func.id].args
            yield [a.arg for a in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)], part
        elif isinstance(part, (ast.For, ast.AsyncFor, ast.comprehension)):
            yield _stored(part.target), part.iter
        elif isinstance(part, ast.withitem) and part.optional_vars is not None:
            yield _stored(part.optional_vars), part.context_expr


def _stored(*targets: ast.expr) -> list[str]:
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _reads(node: ast.AST, names: frozenset[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
