"""Parse Python, and notations inside of its strings. Standard library only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeGuard

FunctionNode: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
_ATTEMPTS = 5


def parse(text: str, file: str = "<text>") -> ast.Module:
    """Parse a module. Raises SyntaxError, ValueError, RecursionError or MemoryError on bad text.

    Before Python 3.12 threads share the parser's recursion counter, so concurrent parses may raise SystemError (cpython
    #106905) on good text; then the text is parsed again.
    """
    for _ in range(_ATTEMPTS):
        try:
            return ast.parse(text, file)
        except SystemError:
            continue
    return ast.parse(text, file)


@lru_cache(maxsize=8)
def tree_of(text: str) -> ast.Module | None:
    """Return the tree of a text, which nobody may change; None if it does not parse."""
    try:
        return parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function outside of its nested functions and classes."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, (*DEFINITIONS, ast.Lambda)):
            yield from own_nodes(child)


def parse_expression(text: str) -> ast.expr:
    """Return one parsed expression. Raises the errors of `parse`, and SyntaxError if `text` is not one expression."""
    body = parse(text).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise SyntaxError("not an expression")
    return body[0].value


def unparse(node: ast.AST) -> str:
    """Return the text of a node for people, `…` for one that is nested too deeply."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "…"


def is_main_guard(node: ast.stmt) -> TypeGuard[ast.If]:
    """Return True if `node` is `if __name__ == "__main__":`."""
    if not isinstance(node, ast.If):
        return False
    nodes = list(ast.walk(node.test))
    return any(isinstance(n, ast.Name) and n.id == "__name__" for n in nodes) and any(
        isinstance(n, ast.Constant) and n.value == "__main__" for n in nodes
    )


def entered(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that a program runs: those at the top level, and in place of its guard those under it."""
    return [inner for node in body for inner in (node.body if is_main_guard(node) else [node])]


def blocks_of(node: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a compound statement in their order."""
    parts = (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))
    ends = (getattr(node, "orelse", []), getattr(node, "finalbody", []))
    return [block for block in (getattr(node, "body", []), *(part.body for part in parts), *ends) if block]


def outermost_functions(block: Sequence[ast.stmt], around: str = "") -> Iterator[tuple[FunctionNode, str]]:
    """Yield the functions of a block that are in no other function, with their qualified names."""
    for node in block:
        name = f"{around}.{node.name}".lstrip(".") if isinstance(node, DEFINITIONS) else around
        if isinstance(node, FUNCTIONS):
            yield node, name
        else:
            for inner in blocks_of(node):
                yield from outermost_functions(inner, name)


def assigned(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Return the names that an assignment binds to its whole value: two of `a = b = 1`, none of `a, b = c`."""
    if isinstance(node, ast.AnnAssign):
        targets, value = [node.target], node.value
    elif isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    else:
        return []
    return [(target.id, value) for target in targets if isinstance(target, ast.Name) and value is not None]


def bound_lambda(node: ast.stmt) -> ast.FunctionDef | None:
    """Return the definition equivalent to `name = lambda x: …`, at the place of that statement; None for any other."""
    bound = assigned(node)
    if len(bound) != 1 or not isinstance(value := bound[0][1], ast.Lambda):
        return None
    (definition,) = parse("def _(): pass").body
    assert isinstance(definition, ast.FunctionDef)
    definition.name, definition.args = bound[0][0], value.args
    definition.body = [ast.copy_location(ast.Return(value.body), value.body)]
    return ast.copy_location(definition, node)


Term: TypeAlias = "tuple[tuple[str, ...], ...]"
"""The pattern of axes of one tensor: the names of the axes in each dimension, `...` for any number."""
_TERM = re.compile(r"(?:\s*(?:\.\.\.|[A-Za-z_]\w*|\d+|\*|\((?:\s*(?:\.\.\.|[A-Za-z_]\w*|\d+))*\s*\))(?=[\s()]|$))*\s*")
_AXIS = re.compile(r"\.\.\.|\w+|\*|[()]")


def axis_terms(text: str) -> list[Term] | None:
    """Return the terms on the left of a pattern with named axes, `"b (h d) n, b n -> b h d"`; None for any other text.

    A text without blanks and brackets may be in single letters (`"ij,jk->ik"`), and gives None.
    """
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if not arrow or not left.strip() or not all(_TERM.fullmatch(part) for part in (*terms, right)):
        return None
    if not any(re.search(r"[\s()]", part.strip()) for part in (*terms, right)):
        return None
    results = set(re.findall(r"[A-Za-z_]\w*|\.\.\.", right))
    if results and results.isdisjoint(_AXIS.findall(left)):
        return None  # prose: the result shares no axis with the operands
    return [_dimensions(term) for term in terms]


def _dimensions(term: str) -> Term:
    dimensions: list[tuple[str, ...]] = []
    product: list[str] | None = None
    for axis in _AXIS.findall(term):
        if axis == "(":
            product = []
        elif axis == ")":
            dimensions.append(tuple(product or ()))
            product = None
        elif product is not None:
            product.append(axis)
        else:
            dimensions.append((axis,))
    return tuple(dimensions)


def edited_lines(old: list[str], new: list[str]) -> dict[int, int]:
    """Map the line numbers of `old` to those of `new` for the lines before and after the edited region."""
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    tail = next((i for i in range(shorter - head) if old[-1 - i] != new[-1 - i]), shorter - head)
    mapping = {n: n for n in range(1, head + 1)}
    shift = len(new) - len(old)
    mapping.update({n: n + shift for n in range(len(old) - tail + 1, len(old) + 1)})
    return mapping
