"""Find the requirements of code on its tensors: `assert x.dim() == 4`, `if x.shape[-1] != 3: raise …`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Requirement:
    """Hold a requirement on the tensor in a variable: its `rank`, its `min_rank`, or the size at `index`."""

    name: str
    rank: int | None = None
    min_rank: int = 0
    index: int = 0
    size: int | None = None


def requirements(node: ast.AST) -> Iterator[Requirement]:
    """Yield the requirements of every assertion and every `if` that raises below `node`."""
    for statement in ast.walk(node):
        if isinstance(statement, ast.Assert):
            yield from demanded(statement.test, True)
        elif isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise):
            yield from demanded(statement.test, False)


def demanded(test: ast.expr, truth: bool) -> Iterator[Requirement]:
    """Yield the requirements of a condition that has to have this truth."""
    yield from _true(test) if truth else _false(test)


def expected_ranks(statement: ast.AST) -> Iterator[Requirement]:
    """Yield the ranks that a branch is written for: 4 for `if x.dim() == 4:`, unless it raises."""
    if isinstance(statement, (ast.If, ast.IfExp)):
        raises = isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise)
        yield from (demand for demand in _true(statement.test) if demand.rank is not None and not raises)


def _true(test: ast.expr) -> Iterator[Requirement]:
    if isinstance(test, ast.BoolOp):
        for value in test.values if isinstance(test.op, ast.And) else test.values[:1]:
            yield from _true(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _false(test.operand)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        yield from _compared(test.left, type(test.ops[0]), test.comparators[0])


def _false(test: ast.expr) -> Iterator[Requirement]:
    if isinstance(test, ast.BoolOp):
        if isinstance(test.op, ast.Or):
            for value in test.values:
                yield from _false(value)
        else:  # one of them has to be false: `x.dim() != 2 and x.dim() != 3`
            yield from (demand for demand in _false(test.values[0]) if demand.rank is not None)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _true(test.operand)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in _NEGATED:
        yield from _compared(test.left, _NEGATED[type(test.ops[0])], test.comparators[0])


_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
}


def _compared(left: ast.expr, operator: type[ast.cmpop], right: ast.expr) -> Iterator[Requirement]:
    value = _constant(right)
    if value is None and operator in _MIRRORED:
        left, operator, value = right, _MIRRORED[operator], _constant(left)
    if isinstance(value, (tuple, list)) and operator is ast.In and value:
        operator, value = ast.Eq, value[0]
    if (name := _rank_of(left)) is not None and isinstance(value, int):
        if operator is ast.Eq:
            yield Requirement(name, rank=value)
        elif operator in (ast.GtE, ast.Gt):
            yield Requirement(name, min_rank=value + (operator is ast.Gt))
        elif operator in (ast.LtE, ast.Lt):
            yield Requirement(name, rank=value - (operator is ast.Lt))
    elif (sized := _size_of(left)) is not None and isinstance(value, int) and operator is ast.Eq:
        yield Requirement(sized[0], index=sized[1], size=value)
    elif (sliced := _last_sizes_of(left)) is not None and isinstance(value, (tuple, list)) and operator is ast.Eq:
        for position, size in enumerate(reversed(value)):
            yield Requirement(sliced, index=-1 - position, size=size)


def _constant(node: ast.expr) -> int | tuple[int, ...] | list[int] | None:
    try:
        constant = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return constant if type(constant) in (int, tuple, list) else None


def _rank_of(node: ast.expr) -> str | None:
    """Return `x` for `x.dim()`, `x.ndim`, `len(x.shape)` and the like."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        return shape_of(node.args[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("dim", "ndimension"):
        return _name(node.func.value)
    return _name(node.value) if isinstance(node, ast.Attribute) and node.attr == "ndim" else None


def _size_of(node: ast.expr) -> tuple[str, int] | None:
    """Return `x` and the index for `x.shape[i]` and `x.size(i)`."""
    if isinstance(node, ast.Subscript):
        name, index = shape_of(node.value), _constant(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and node.args:
        name, index = _name(node.func.value), _constant(node.args[0])
    else:
        return None
    return (name, index) if name is not None and isinstance(index, int) else None


def _last_sizes_of(node: ast.expr) -> str | None:
    """Return `x` for `x.shape[-2:]` and for `x.shape` itself."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.upper is None:
        node = node.value
    return shape_of(node)


def shape_of(node: ast.expr) -> str | None:
    """Return `x` for `x.shape` and `x.size()`."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return _name(node.value)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and not node.args
    ):
        return _name(node.func.value)
    return None


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def compared_with_none(node: ast.AST) -> set[str]:
    """Return the names that are compared with None below `node`: `if targets is not None`."""
    return {
        compared.left.id
        for compared in ast.walk(node)
        if isinstance(compared, ast.Compare) and isinstance(compared.left, ast.Name)
        if isinstance(compared.comparators[0], ast.Constant) and compared.comparators[0].value is None
    }
