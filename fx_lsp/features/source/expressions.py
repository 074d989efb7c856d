"""Query the text of one definition with `ast`. Lines and columns are as in `Span`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fx_lsp.model import Span
from fx_lsp.syntax import parse, unparse

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_DIMENSION = frozenset({"dim", "dim0", "dim1", "axis", "axis0", "axis1"})
_NEW_DIMENSION = frozenset({"unsqueeze", "stack", "diag_embed"})
"""Calls whose `dim` is a dimension of the result."""
_BY_POSITION = {
    "transpose": (0, 1),
    "swapaxes": (0, 1),
    **dict.fromkeys(("softmax", "log_softmax", "sum", "mean", "amax", "amin", "argmax", "argmin", "cumsum"), (0,)),
    **dict.fromkeys(("flatten", "size", "squeeze", "cat", "concat", "norm", "std", "var", "prod"), (0,)),
}
"""Positions, after the tensor, of a call's arguments that are numbers of dimensions."""
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
    ast.MatMult: "@",
}
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr, ast.Assert, ast.Raise, ast.Delete)


@dataclass(frozen=True)
class CursorContext:
    """Hold the spans of the expressions around a position, innermost first.

    `name` is the variable under the cursor (None elsewhere), `stored` is True if it is bound here, not read; `function`
    is the span of the innermost `def` around it.
    """

    spans: tuple[Span, ...]
    name: str | None = None
    stored: bool = False
    function: Span | None = None


BindingKind = Literal["assignment", "loop", "parameter"]


@dataclass(frozen=True)
class Binding:
    """Describe a variable bound at `line`, `col` by an assignment, a loop, a `with` or a function.

    Hints are placed at `end_line`, `end_col`. `plain` is the number in the text, if any: `n = 4`, or a default.
    """

    name: str
    line: int
    col: int
    end_line: int
    end_col: int
    kind: BindingKind = "assignment"
    annotated: bool = False
    plain: str = ""


@dataclass(frozen=True)
class DimensionArgument:
    """Describe an argument that is the number of a dimension, which ends at `end_line`, `end_col`.

    The tensor is the variable `name`, or the result of the expression that ends at `value_end`.
    """

    dim: int
    end_line: int
    end_col: int
    name: str
    value_end: tuple[int, int]


def expression_at(text: str, definition: Span, line: int, col: int) -> CursorContext | None:
    """Return the expressions at a position inside `definition`; None in white space, or if the text does not parse."""
    tree = parse_definition(text, definition)
    if tree is None:
        return None
    offset = definition.line - 1
    chain = [node for node in _chain(tree, line - offset, col) if isinstance(node, (ast.expr, ast.keyword, *_SIMPLE))]
    if not chain:
        return None
    chain.reverse()
    function = next((n for n in reversed(_chain(tree, line - offset, col)) if isinstance(n, FunctionNode)), None)
    innermost = chain[0]
    spans = tuple(dict.fromkeys(_span(node, definition.file, offset) for node in chain))
    name = innermost.id if isinstance(innermost, ast.Name) else None
    stored = isinstance(innermost, ast.Name) and isinstance(innermost.ctx, ast.Store)
    return CursorContext(spans, name, stored, None if function is None else _span(function, definition.file, offset))


def bindings(text: str, definition: Span) -> tuple[Binding, ...]:
    """Return every variable that a statement of `definition` binds."""
    tree = parse_definition(text, definition)
    return () if tree is None else tuple(_bindings(tree, definition.line - 1))


def returns(text: str, definition: Span) -> tuple[tuple[Span, Span], ...]:
    """Return the `return` statements of `definition` that have a value, each with the span of its expression."""
    tree = parse_definition(text, definition)
    if tree is None:
        return ()
    offset = definition.line - 1
    return tuple(
        (_span(node, definition.file, offset), _span(node.value, definition.file, offset))
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) and node.value is not None
    )


def chained_calls(text: str, definition: Span) -> tuple[tuple[int, int], ...]:
    """Return the ends of calls whose result has its next call on another line."""
    tree = parse_definition(text, definition)
    chains = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    calls = [n.value for n in chains if isinstance(n.value, ast.Call) and n.value.end_lineno != n.end_lineno]
    return tuple(((call.end_lineno or 0) + definition.line - 1, call.end_col_offset or 0) for call in calls)


def dimension_arguments(text: str, definition: Span) -> tuple[DimensionArgument, ...]:
    """Return the arguments of calls that are numbers of dimensions: `dim=-1`, `transpose(1, 2)`."""
    tree, offset = parse_definition(text, definition), definition.line - 1
    calls = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    return tuple(
        DimensionArgument(
            dim,
            (argument.end_lineno or 0) + offset,
            argument.end_col_offset or 0,
            tensor.id if isinstance(tensor, ast.Name) else "",
            ((tensor.end_lineno or 0) + offset, tensor.end_col_offset or 0),
        )
        for call in calls
        for tensor, argument, dim in _dim_arguments(call)
    )


def attribute_reads(text: str, definition: Span) -> dict[tuple[int, int], str]:
    """Return the attributes that are read, as source text, by the end of the read; each once per function."""
    tree, offset = parse_definition(text, definition), definition.line - 1
    reads: dict[tuple[int, str], tuple[int, int]] = {}
    functions = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, FunctionNode)]
    for function in functions:
        inside = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)]
        for node in sorted(inside, key=lambda n: (n.lineno, n.col_offset)):
            end = (node.end_lineno or 0) + offset, node.end_col_offset or 0
            reads.setdefault((function.lineno, unparse(node)), end)
    return {end: name for (_, name), end in reads.items()}


def operation_name(text: str, definition: Span, span: Span) -> str:
    """Return a short name of an expression: `gelu` for `F.gelu(x)`, `@` for `a @ b`; "" for any other."""
    tree, offset = parse_definition(text, definition), definition.line - 1
    end = span.end_line - offset, span.end_col
    ending = [] if tree is None else [n for n in ast.walk(tree) if isinstance(n, ast.expr) and _edges(n)[1] == end]
    exact = [n for n in ending if _edges(n)[0] == (span.line - offset, span.col)]
    for node in (*exact, *(n for n in ending if isinstance(n, ast.Call))):  # a call in a chain starts at its own name
        if isinstance(node, ast.BinOp):
            return _OPERATORS.get(type(node.op), "")
        if isinstance(node, ast.Call):
            return node.func.attr if isinstance(node.func, ast.Attribute) else unparse(node.func)
    return ""


def parse_definition(text: str, definition: Span) -> ast.Module | None:
    """Return the tree of the lines of one definition, or None if they do not parse.

    Line 1 of the tree is the definition's first line; columns are those of `text`.
    """
    return _parse(_slice_lines(text, definition.line, definition.end_line))


@lru_cache(maxsize=32)
def _parse(segment: str) -> ast.Module | None:
    indented = segment[:1] in (" ", "\t")
    try:
        tree = parse("if 1:\n" + segment if indented else segment)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if indented:
        ast.increment_lineno(tree, -1)
    return tree


@lru_cache(maxsize=64)
def _slice_lines(text: str, first: int, last: int) -> str:
    start = 0
    for _ in range(first - 1):
        newline = text.find("\n", start)
        if newline < 0:
            return ""
        start = newline + 1
    end = start
    for _ in range(last - first + 1):
        newline = text.find("\n", end)
        if newline < 0:
            return text[start:]
        end = newline + 1
    return text[start:end]


def _chain(tree: ast.AST, line: int, col: int) -> list[ast.AST]:
    """Return the nodes around a position, outermost first. A position directly after an expression still
    belongs to it.
    """
    chain: list[ast.AST] = []
    node: ast.AST | None = tree
    while node is not None:
        inside = [child for child in _positioned_children(node) if _holds(child, line, col)]
        node = max(inside, key=lambda n: (n.lineno, n.col_offset)) if inside else None  # type: ignore[attr-defined]
        if node is not None:
            chain.append(node)
    return chain


def _positioned_children(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            yield from _positioned_children(child)


def _holds(node: ast.AST, line: int, col: int) -> bool:
    start, end = _edges(node)
    return start <= (line, col) <= end


def _edges(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    start = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
    for decorator in getattr(node, "decorator_list", ()):
        start = min(start, (decorator.lineno, decorator.col_offset))
    return start, (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))


def _span(node: ast.AST, file: str, offset: int) -> Span:
    (line, col), (end_line, end_col) = _edges(node)
    return Span(file, line + offset, col, end_line + offset, end_col)


def _bindings(tree: ast.Module, offset: int) -> Iterator[Binding]:
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            yield from _parameters(node, offset)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            plain = unparse(node.value) if isinstance(node.value, ast.Constant) else ""
            yield from _stored(node, targets, "assignment", offset, plain)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            plain = unparse(node.value) if isinstance(node.value, ast.Constant) else ""
            end = (node.annotation.end_lineno or 0) + offset, node.annotation.end_col_offset or 0
            yield Binding(node.target.id, node.lineno + offset, node.col_offset, *end, "assignment", True, plain)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield from _stored(node.target, [node.target], "loop", offset)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for variables in (item.optional_vars for item in node.items if item.optional_vars is not None):
                yield from _stored(variables, [variables], "assignment", offset)
        elif isinstance(node, ast.NamedExpr):
            yield from _stored(node, [node.target], "assignment", offset)


def _stored(
    head: ast.stmt | ast.expr, targets: Sequence[ast.expr], kind: BindingKind, offset: int, plain: str = ""
) -> Iterator[Binding]:
    """Yield the variables among `targets`, which the statement or expression `head` binds."""
    for node in (node for target in targets for node in ast.walk(target)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            end = (node.end_lineno or node.lineno) + offset, node.end_col_offset or 0
            yield Binding(node.id, head.lineno + offset, head.col_offset, *end, kind, plain=plain)


def _parameters(function: FunctionNode, offset: int) -> Iterator[Binding]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults: dict[str, ast.expr | None] = {arg.arg: value for arg, value in keywords}
    defaults |= {arg.arg: value for arg, value in zip(reversed(positional), reversed(arguments.defaults), strict=False)}
    for arg in (*positional, *arguments.kwonlyargs, *filter(None, (arguments.vararg, arguments.kwarg))):
        default = defaults.get(arg.arg)
        plain = "" if default is None else unparse(default)
        end = (arg.end_lineno or arg.lineno) + offset, arg.end_col_offset or 0
        start = function.lineno + offset, function.col_offset
        yield Binding(arg.arg, *start, *end, "parameter", arg.annotation is not None, plain)


def _dim_arguments(call: ast.Call) -> Iterator[tuple[ast.expr, ast.expr, int]]:
    """Yield the arguments of a call that are numbers of dimensions: the tensor, the argument, and the number.

    `a.sum(b, 1)` is read both as a method of `a` and as a function of `b`; only one of them is a tensor.
    """
    callee = call.func
    if not isinstance(callee, ast.Attribute) or callee.attr in _NEW_DIMENSION:
        return
    by_name = [keyword.value for keyword in call.keywords if keyword.arg in _DIMENSION]
    for tensor, behind in ((callee.value, call.args), *((arg, call.args[1:]) for arg in call.args[:1])):
        by_position = [behind[n] for n in _BY_POSITION.get(callee.attr, ()) if n < len(behind)]
        first = tensor.elts[0] if isinstance(tensor, (ast.List, ast.Tuple)) and tensor.elts else tensor
        for argument in (*by_position, *by_name):
            if (dim := _integer(argument)) is not None:
                yield first, argument, dim


def _integer(node: ast.expr) -> int | None:
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    constant = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if not isinstance(constant, ast.Constant) or type(constant.value) is not int:
        return None
    return -constant.value if negative else constant.value
