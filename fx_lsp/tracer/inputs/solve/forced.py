"""What a target demands of sizes that no caller means: two sizes of one input that have to be equal, or a size that has
to be a number of the model's."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from fx_lsp.model import Remark, Span
from fx_lsp.syntax import FunctionNode
from fx_lsp.tracer.compat import sympy
from fx_lsp.tracer.inputs.evidence.requirements import shape_of
from fx_lsp.tracer.inputs.solve.path_conditions import Condition, Dimension, Exploration
from fx_lsp.tracer.inputs.solve.solver import equal_symbols
from fx_lsp.tracer.snippets import shown_expression


def forced(exploration: Exploration, function: FunctionNode | None, lines: list[str]) -> list[Remark]:
    """The demands of a run on symbols, each on the expression that makes it."""
    names = dimension_names(function)
    remarks: dict[Span, Remark] = {}
    asked: set[object] = set()
    for condition in exploration.conditions:
        first = condition.expression not in asked
        asked.add(condition.expression)
        if not condition.chain or not first or condition.chain[0] in remarks:
            continue
        demand = next(_demands(condition, exploration, names), None)
        if demand is not None:
            span = condition.chain[0]
            remarks[span] = Remark(f"{demand} here: `{shown_expression(span, lines)}` works only so", span, "warning")
    return list(remarks.values())


def _demands(condition: Condition, exploration: Exploration, names: Mapping[tuple[str, int], str]) -> Iterator[str]:
    dimensions = exploration.dimensions
    paths = [{dimensions[s].path for s in _symbols(tensor) if s in dimensions} for tensor in condition.operands]
    if len(paths) < 2 or any(path != paths[0] or len(path) != 1 for path in paths):
        return  # one of several tensors does not depend on the inputs, or they depend on different ones
    pair = equal_symbols(condition)
    if pair is not None:
        first, second = (dimensions[symbol] for symbol in pair)
        low, high = sorted((first, second), key=lambda d: d.index)
        square = low.index == low.rank - 2  # a matrix may well have as many rows as columns
        if first.path == second.path and first.rank and not square and not _is_square(condition):
            yield f"{name_of(high, names)} equals {name_of(low, names)}"
        return
    symbols: list[Any] = list(condition.expression.free_symbols)
    if len(symbols) == 1 and isinstance(condition.expression, sympy.Eq):
        symbol, sides = symbols[0], condition.expression.args
        constant = next((side for side in sides if isinstance(side, sympy.Integer)), None)
        dimension = dimensions.get(symbol) if symbol in sides else None
        if constant is not None and dimension is not None and _is_length(dimension):
            yield f"{name_of(dimension, names)} is {constant}"


def _is_length(dimension: Dimension) -> bool:
    """Whether a dimension counts positions, and neither examples nor features."""
    return (
        dimension.rank > 2
        and 0 < dimension.index < dimension.rank - (dimension.rank < 4)
        and (dimension.rank < 4 or dimension.index > 1)
    )


def _is_square(condition: Condition) -> bool:
    """Whether a condition is of an operation on square matrices: one that has a single operand, or views of one."""
    bases = {id(tensor if tensor._base is None else tensor._base) for tensor in condition.operands}
    return len(bases) < 2


def _symbols(tensor: torch.Tensor) -> set[sympy.Symbol]:
    sizes = (size.node.expr for size in tensor.shape if isinstance(size, torch.SymInt))
    return {symbol for size in sizes for symbol in size.free_symbols}


def name_of(dimension: Dimension, names: Mapping[tuple[str, int], str]) -> str:
    """What the code calls a dimension, or which one of its tensor it is: `T`, `x.shape[1]`, `heads`."""
    if not dimension.rank:
        return dimension.path
    place = names.get((dimension.path, dimension.index)) or names.get(
        (dimension.path, dimension.index - dimension.rank)
    )
    return place or f"{dimension.path}.shape[{dimension.index}]"


def dimension_names(function: FunctionNode | None) -> dict[tuple[str, int], str]:
    """The names that a function gives to sizes of its parameters: `B, T, C = x.shape`, `n = x.size(1)`."""
    names: dict[tuple[str, int], str] = {}
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names |= {place: name for place, name in _named(node.targets[0], node.value) if place not in names}
    return names


def _named(target: ast.expr, value: ast.expr) -> Iterable[tuple[tuple[str, int], str]]:
    tensor = shape_of(value)
    if isinstance(target, ast.Tuple) and tensor is not None:
        yield from (
            ((tensor, index), element.id)
            for index, element in enumerate(target.elts)
            if isinstance(element, ast.Name) and element.id != "_"
        )
    elif isinstance(target, ast.Name) and isinstance(value, ast.Subscript):
        tensor = shape_of(value.value)
        if tensor is not None and isinstance(value.slice, ast.Constant) and isinstance(value.slice.value, int):
            yield (tensor, value.slice.value), target.id
