"""Walk the statements of a step, and the names that they read and bind."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from fx_lsp.syntax import DEFINITIONS, blocks_of

Region: TypeAlias = "ast.For | ast.While | ast.FunctionDef"
Contexts: TypeAlias = "type[ast.expr_context] | tuple[type[ast.expr_context], ...]"
READ = (ast.Load, ast.Del)
LOOPS = (ast.For, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def path_to(block: list[ast.stmt], line: int) -> list[tuple[list[ast.stmt], ast.stmt]]:
    """Return the statements around the loop or function that begins at a line, and that statement, each with its block;
    empty if there is none.
    """
    for node in block:
        if node.lineno == line and isinstance(node, (*LOOPS, ast.FunctionDef)):
            return [(block, node)]
        if node.lineno <= line <= (node.end_lineno or node.lineno):
            for path in map(path_to, blocks_of(node), itertools.repeat(line)):
                if path:
                    return [(block, node), *path]
    return []


def region_at(tree: ast.Module, line: int) -> Region | None:
    """Return the loop or function that begins at a line."""
    path = path_to(tree.body, line)
    region = path[-1][1] if path else None
    return region if isinstance(region, (*LOOPS, ast.FunctionDef)) else None


def nodes_below(node: ast.AST, *opaque: type[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without those inside functions, classes and nodes of the types `opaque`."""
    stack: list[ast.AST] = list(ast.iter_child_nodes(node))
    while stack:
        part = stack.pop()
        yield part
        if not isinstance(part, (*DEFINITIONS, ast.Lambda, *opaque)):
            stack.extend(ast.iter_child_nodes(part))


def statements_in(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block and of the blocks in it, without those inside functions and classes."""
    for node in block:
        yield node
        for inner in inner_blocks(node):
            yield from statements_in(inner)


def inner_blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a statement that run as a part of it."""
    return [] if isinstance(node, DEFINITIONS) else blocks_of(node)


def straight(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body that run exactly once."""
    for node in body:
        yield from straight(node.body) if isinstance(node, (ast.With, ast.AsyncWith)) else [node]


def header_of(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement outside of its nested statements, without the variables of comprehensions."""
    stack: list[tuple[ast.AST, frozenset[str]]] = [(part, frozenset()) for part in ast.iter_child_nodes(node)]
    while stack:
        part, inner = stack.pop()
        if isinstance(part, ast.stmt) or (isinstance(part, ast.Name) and part.id in inner):
            continue
        yield part
        if isinstance(part, COMPREHENSIONS):
            inner |= names_in(*(generator.target for generator in part.generators))
        elif isinstance(part, ast.Lambda):
            inner |= parameters_in(part.args)
        stack.extend((child, inner) for child in ast.iter_child_nodes(part))


def header_names(node: ast.stmt, contexts: Contexts = ast.expr_context) -> set[str]:
    """Return the names in the header of a statement that have one of the contexts."""
    parts = (part for part in header_of(node) if isinstance(part, ast.Name))
    return {part.id for part in parts if isinstance(part.ctx, contexts)}


def names_in(*nodes: ast.AST, contexts: Contexts = ast.expr_context) -> set[str]:
    """Return the names in nodes that have one of the contexts."""
    parts = (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name))
    return {part.id for part in parts if isinstance(part.ctx, contexts)}


def parameters_in(node: ast.AST) -> set[str]:
    """Return the names of the parameters of all functions in a node."""
    return {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}


def bound_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that a body assigns, except by augmented assignment."""
    assigning = (node for node in statements_in(body) if not isinstance(node, ast.AugAssign))
    return {name for node in assigning for name in header_names(node, ast.Store)}


def fresh_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds and does not read."""
    return names_in(node, contexts=ast.Store) - names_in(node, contexts=READ)


def last_name(node: ast.AST) -> str:
    """Return the last name of a dotted name: `backward` of `loss.backward`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def calls_by_name(tree: ast.AST) -> set[str]:
    """Return the names that are called directly: `model` of `model(x)`, not `x` of `x.to(device)`."""
    return {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def without_effects_on(body: list[ast.stmt], names: Collection[str]) -> list[ast.stmt]:
    """Return a body without the calls that it makes for their effect with some names, and without the assignments that
    read such a name and bind what nothing else reads.
    """
    kept = [*body]
    for node in body:
        others = [other for other in kept if other is not node]
        is_read = bool(names_in(node, contexts=ast.Load) & {*names})
        bound = header_names(node, ast.Store)
        is_unused = isinstance(node, ast.Assign) and bound.isdisjoint(names_in(*others, contexts=READ))
        if is_read and (isinstance(node, ast.Expr) or is_unused) and len(kept) > 1:
            kept = others
    for node in kept:
        for block in inner_blocks(node):
            block[:] = without_effects_on(block, names)
    return kept
