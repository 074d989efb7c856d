"""Explain uses of a tensor's values, which a trace does not have, and suggest code that avoids them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from fx_lsp.model import Span
from fx_lsp.syntax import parse

NO_VALUES = "a trace has shapes but no values"


@dataclass(frozen=True)
class Need:
    """Hold the use of a value, as a clause, and a hint that fits it."""

    message: str
    hint: str


def explain(operation: str, span: Span | None, lines: list[str]) -> Need | None:
    """Return why the expression at `span` of a file's `lines` needs a value; None if the source does not show it.

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


def _needs(path: list[ast.AST], operation: str) -> Iterator[Need]:
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
        yield Need(f"{_quoted(node)} unpacks a tensor's values", _ARGUMENT)


def _decisions(path: list[ast.AST], within: dict[ast.AST, ast.AST]) -> Iterator[Need]:
    for node, around in zip(path, [*path[1:], None], strict=True):
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)) and within.get(node) in (node.test, None):
            yield _decision(node)
        elif _is_range(node) and isinstance(around, ast.For):
            yield Need(f"{_heading(around)} runs a number of iterations that depends on a tensor's value", _COUNT)
        elif _is_range(node):
            yield Need(f"{_quoted(node)} counts up to a tensor's value", _COUNT)
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.stmt)):
            break


def _decision(node: ast.If | ast.While | ast.IfExp | ast.Assert) -> Need:
    test = _text(node.test)
    if isinstance(node, ast.Assert):
        return Need(
            f"`assert {test}` checks a tensor's value",
            "Check it outside of the traced function, or with `torch._assert_async`.",
        )
    if isinstance(node, ast.While):
        hint = "Loop a fixed number of times and use `torch.where` to leave finished elements unchanged."
        return Need(f"`while {test}:` loops depending on a tensor's value", hint)
    shown = f"`if {test}:`" if isinstance(node, ast.If) else _quoted(node)
    return Need(
        f"{shown} branches on a tensor's value",
        "Use `torch.where` (both sides are computed) or `torch.cond`, or branch on shapes.",
    )


_COUNT = "Use a fixed number of iterations, or pass the number as an argument."
_ARGUMENT = "Keep it a tensor, or pass the numbers as an argument."
_SIZE = "Pass the number as an argument, or keep the full size and mask the unused elements."
_MASK = "Keep the shape and mask instead: `torch.where(mask, x, 0)` or `x.masked_fill(~mask, 0)`."
_NUMBERS = frozenset({"item", "int", "float", "bool", "complex", "__int__", "__float__", "__bool__", "__index__"})
_LENGTHS = {
    "nonzero": ("has one row for each nonzero element of {}", _MASK),
    "argwhere": ("has one row for each nonzero element of {}", _MASK),
    "where": ("has one element for each true element of {}", _MASK),
    "masked_select": ("has one element for each true element of its mask", _MASK),
    "unique": ("has one element for each distinct value of {}", _ARGUMENT),
    "unique_consecutive": ("has one element for each run of equal values in {}", _ARGUMENT),
    "repeat_interleave": (
        "is as long as the sum of the repeats",
        "Pass `output_size=` and the repeats as an argument.",
    ),
    "bincount": ("is as long as the largest value of {}", "Use `scatter_add` into a tensor of fixed size."),
}
"""Operations whose result's size depends on values: a description of the size, and a remedy."""


_COMPARING = {
    "max": "Use `torch.maximum`, or stack the tensors and use `amax`: the result stays a tensor.",
    "min": "Use `torch.minimum`, or stack the tensors and use `amin`: the result stays a tensor.",
    "sorted": "Use `torch.sort`: the result stays a tensor.",
    "any": "Use `torch.any`: the result stays a tensor.",
    "all": "Use `torch.all`: the result stays a tensor.",
}
"""Python functions that compare two numbers, or test one, and their replacement by tensor functions."""


def _call(node: ast.Call, path: list[ast.AST]) -> Iterator[Need]:
    method = isinstance(node.func, ast.Attribute)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    shown = _quoted(_statement_of(path))
    if name in _NUMBERS:
        use, hint = _use(path)
        yield Need(f"{shown} turns a tensor into a Python number{use}", hint)
    elif name in ("tolist", "numpy", "list"):
        yield Need(f"{shown} turns a tensor into Python numbers", _ARGUMENT)
    elif name in _LENGTHS:
        says, hint = _LENGTHS[name]
        inner = isinstance(node.func, ast.Attribute) and not _is_module(node.func.value)
        subject = (
            node.func.value if method and inner and isinstance(node.func, ast.Attribute) else (node.args or [node])[0]
        )
        loop = next((f", and {_heading(n)} iterates over them" for n in _uses(path) if isinstance(n, ast.For)), "")
        yield Need(f"{_quoted(node)} {says.format(_quoted(subject))}{loop}", hint)
    elif name in ("equal", "allclose"):
        yield Need(
            f"{_quoted(node)} compares the values of tensors", "Compare with `torch.eq`: the result stays a tensor."
        )
    elif not method and name in _COMPARING:
        yield Need(f"{_quoted(node)} compares the values of tensors", _COMPARING[name])


def _is_module(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "torch"


def _subscript(node: ast.Subscript, operation: str) -> Need:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if _makes_tensor(operation):
        masks = [p for p in parts if not isinstance(p, (ast.Slice, ast.Constant))] or parts
        return Need(f"{_quoted(node)} has one row for each true element of {_quoted(masks[0])}", _MASK)
    if any(isinstance(p, ast.Slice) for p in parts):
        return Need(f"{_quoted(node)} uses a tensor as the bound of a slice", _SIZE)
    return Need(
        f"{_quoted(node)} uses a tensor as an integer index", "Use `index_select` with a one-element index tensor."
    )


def _use(path: list[ast.AST]) -> tuple[str, str]:
    """Describe the use of the expression at the start of `path`, or of the variable that it is bound to; and a hint."""
    uses = (_used_in(around) for around in _paths_of_uses(path))
    return next(uses, None) or _used_in(path)


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


def _used_in(path: list[ast.AST]) -> tuple[str, str]:
    within = dict(zip(path[1:], path, strict=False))
    if (decision := next(_decisions(path, within), None)) is not None:
        return f": {decision.message}", decision.hint
    for node in path[1:]:
        if isinstance(node, ast.Subscript) and within[node] is node.slice:
            return f", used as a size in {_quoted(node)}", _SIZE
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in _SIZED:
                return f", used as a size in {_quoted(node)}", _SIZE
        if isinstance(node, ast.BinOp):
            return (
                f", used in {_quoted(node)}",
                "Keep it a tensor: arithmetic also works with one-element tensors.",
            )
        if isinstance(node, ast.stmt):
            break
    return "", _ARGUMENT


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
    return f"`for {_text(loop.target)} in {_text(loop.iter)}:`"


def _is_range(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _quoted(node: ast.AST) -> str:
    return f"`{_text(node)}`"


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:69]}…"
