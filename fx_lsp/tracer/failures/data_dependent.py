"""Explain uses of a tensor's values, which a trace does not have, and suggest code that avoids them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fx_lsp.messages.exceptions import (
    AS_LONG_AS_LARGEST_VALUE,
    AS_LONG_AS_REPEATS,
    ASSERTS_VALUE,
    BOUND_OF_SLICE,
    BRANCHES,
    COMPARES_VALUES,
    COUNTS,
    ELEMENT_PER_DISTINCT_VALUE,
    ELEMENT_PER_RUN,
    ELEMENT_PER_TRUE,
    ELEMENT_PER_TRUE_OF_MASK,
    INTEGER_INDEX,
    ITERATES,
    LOOPS_WHILE,
    ROW_PER_NONZERO,
    ROW_PER_TRUE,
    TO_NUMBER,
    TO_NUMBER_AS_SIZE,
    TO_NUMBER_IN_ARITHMETIC,
    TO_NUMBER_THAT_DECIDES,
    TO_NUMBERS,
    UNPACKS_VALUES,
)
from fx_lsp.model import Failure, Span
from fx_lsp.syntax import parse


def explain(operation: str, span: Span | None, lines: list[str]) -> Failure | None:
    """Return why the expression at `span` of a file's `lines` needs a value, as a clause, and a hint that fits it; None
    if the source does not show it.

    `operation` is the operation that raised ("aten.nonzero.default", or "").
    """
    if span is None or span.end_col == 0:
        return None
    try:
        tree = parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None
    path = _path(tree, span)
    return next(_needs(path, operation), None) if path else None


def _path(tree: ast.AST, span: Span) -> list[ast.AST]:
    """Return the nodes around a span, the innermost first: the expression (or statement) itself."""
    path: list[ast.AST] = []
    node: ast.AST | None = tree
    while node is not None:
        path.insert(0, node)
        node = next((n for n in ast.iter_child_nodes(node) if _covers(n, span)), None)
    return path if isinstance(path[0], (ast.expr, ast.stmt)) else []


def _covers(node: ast.AST, span: Span) -> bool:
    if isinstance(node, ast.comprehension):
        return _covers(node.iter, span) or any(_covers(test, span) for test in node.ifs)
    if not isinstance(node, (ast.expr, ast.stmt, ast.ExceptHandler, ast.keyword)):
        return False
    start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return start <= (span.line, span.col) and (span.end_line, span.end_col) <= end


def _needs(path: list[ast.AST], operation: str) -> Iterator[Failure]:
    """Yield the possible readings, the best first."""
    within = dict(zip(path[1:], path, strict=False))  # the child of each ancestor on the way to the expression
    if not _makes_tensor(operation):
        yield from _decisions(path, within)
    node = path[0]
    if isinstance(node, ast.Call):
        yield from _call(node, path)
    if isinstance(node, ast.Subscript):
        yield _subscript(node, operation)
    if isinstance(node, (ast.Tuple, ast.List)) or (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    ):
        yield UNPACKS_VALUES.failure(code=_text(node))


def _decisions(path: list[ast.AST], within: dict[ast.AST, ast.AST]) -> Iterator[Failure]:
    for node, around in zip(path, [*path[1:], None], strict=True):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) and within.get(node) in (node.test, None):
            yield _decision(node)
        elif _is_range(node) and isinstance(around, ast.For):
            yield ITERATES.failure(loop=_heading(around))
        elif _is_range(node):
            yield COUNTS.failure(code=_text(node))
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.stmt)):
            break


def _decision(node: ast.If | ast.While | ast.IfExp | ast.Assert) -> Failure:
    test = _text(node.test)
    if isinstance(node, ast.Assert):
        return ASSERTS_VALUE.failure(test=test)
    if isinstance(node, ast.While):
        return LOOPS_WHILE.failure(test=test)
    return BRANCHES.failure(code=f"if {test}:" if isinstance(node, ast.If) else _text(node))


_NUMBERS = frozenset({"item", "int", "float", "bool", "complex", "__int__", "__float__", "__bool__", "__index__"})
_LENGTHS = {
    "nonzero": ROW_PER_NONZERO,
    "argwhere": ROW_PER_NONZERO,
    "where": ELEMENT_PER_TRUE,
    "masked_select": ELEMENT_PER_TRUE_OF_MASK,
    "unique": ELEMENT_PER_DISTINCT_VALUE,
    "unique_consecutive": ELEMENT_PER_RUN,
    "repeat_interleave": AS_LONG_AS_REPEATS,
    "bincount": AS_LONG_AS_LARGEST_VALUE,
}
"""Operations whose result's size depends on values."""


_COMPARING = {
    "max": "Use `torch.maximum`, or stack the tensors and use `amax`",
    "min": "Use `torch.minimum`, or stack the tensors and use `amin`",
    "sorted": "Use `torch.sort`",
    "any": "Use `torch.any`",
    "all": "Use `torch.all`",
}
"""Python functions that compare two numbers, or test one, and their replacement by tensor functions."""


def _call(node: ast.Call, path: list[ast.AST]) -> Iterator[Failure]:
    method = isinstance(node.func, ast.Attribute)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    shown = _text(_statement_of(path))
    if name in _NUMBERS:
        yield _number(shown, next(_paths_of_uses(path), path))
    elif name in ("tolist", "numpy", "list"):
        yield TO_NUMBERS.failure(code=shown)
    elif name in _LENGTHS:
        inner = isinstance(node.func, ast.Attribute) and not _is_module(node.func.value)
        subject = (
            node.func.value if method and inner and isinstance(node.func, ast.Attribute) else (node.args or [node])[0]
        )
        loop = next((f", and `{_heading(n)}` iterates over them" for n in _uses(path) if isinstance(n, ast.For)), "")
        yield _LENGTHS[name].failure(code=_text(node), subject=_text(subject), loop=loop)
    elif name in ("equal", "allclose"):
        yield COMPARES_VALUES.failure(code=_text(node), instead="Compare with `torch.eq`")
    elif not method and name in _COMPARING:
        yield COMPARES_VALUES.failure(code=_text(node), instead=_COMPARING[name])


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"


def _subscript(node: ast.Subscript, operation: str) -> Failure:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if _makes_tensor(operation):
        masks = [p for p in parts if not isinstance(p, (ast.Slice, ast.Constant))] or parts
        return ROW_PER_TRUE.failure(code=_text(node), subject=_text(masks[0]))
    if any(isinstance(p, ast.Slice) for p in parts):
        return BOUND_OF_SLICE.failure(code=_text(node))
    return INTEGER_INDEX.failure(code=_text(node))


def _uses(path: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes directly around the uses of the variable that the expression is bound to."""
    for around in _paths_of_uses(path):
        yield around[1]


def _paths_of_uses(path: list[ast.AST]) -> Iterator[list[ast.AST]]:
    statement = _statement_of(path)
    function = next((n for n in path if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module))), None)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) and function is not None:
        name, line = statement.targets[0].id, statement.end_lineno or statement.lineno
        uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name and n.lineno > line]
        for use in sorted(uses, key=lambda n: (n.lineno, n.col_offset)):
            yield _path(function, Span("", use.lineno, use.col_offset, use.end_lineno or 0, use.end_col_offset or 0))


def _number(code: str, path: list[ast.AST]) -> Failure:
    """Return the failure of code that turns a tensor into a number; `path` leads to the use of the number."""
    within = dict(zip(path[1:], path, strict=False))
    if (decision := next(_decisions(path, within), None)) is not None:
        return TO_NUMBER_THAT_DECIDES.failure(code=code, decision=decision.message, fix=decision.hint)
    for node in path[1:]:
        if isinstance(node, ast.Subscript) and within[node] is node.slice:
            return TO_NUMBER_AS_SIZE.failure(code=code, user=_text(node))
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in _SIZED:
                return TO_NUMBER_AS_SIZE.failure(code=code, user=_text(node))
        if isinstance(node, ast.BinOp):
            return TO_NUMBER_IN_ARITHMETIC.failure(code=code, user=_text(node))
        if isinstance(node, ast.stmt):
            break
    return TO_NUMBER.failure(code=code)


_SIZED = frozenset(
    {"view", "reshape", "expand", "zeros", "ones", "empty", "full", "randn", "rand", "arange", "new_zeros", "new_ones"}
    | {"new_empty", "new_full", "narrow", "split", "chunk", "repeat", "tile", "eye", "linspace", "pad", "unflatten"}
)
"""Calls whose number arguments are sizes."""


def _makes_tensor(operation: str) -> bool:
    """Return True if the operation that raised returns a tensor (of unknown size) rather than a number."""
    return bool(operation) and not any(w in operation for w in ("_local_scalar_dense", "equal", "is_nonzero", "item"))


def _statement_of(path: list[ast.AST]) -> ast.AST:
    """Return the simple statement around the expression, or the expression itself inside a compound one."""
    for node in path:
        if isinstance(node, ast.stmt):
            return node if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)) else path[0]
    return path[0]


def _heading(loop: ast.For) -> str:
    return f"for {_text(loop.target)} in {_text(loop.iter)}:"


def _is_range(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:69]}…"
