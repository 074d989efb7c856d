"""Tell loops that train, and loops that evaluate, from other loops."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence

from fx_lsp.training.results import LOSS, calls_backward, losses_below, results_of
from fx_lsp.training.statements import (
    LOOPS,
    header_names,
    header_of,
    last_name,
    names_in,
    nodes_below,
    statements_in,
)

_COUNTS = frozenset({"range", "trange", "count"})
_MODEL = re.compile(
    r"(^|_)(model|net\w*|network|module|encoder|decoder|generator|discriminator|classifier)\w{0,2}$", re.IGNORECASE
)


def trains(loop: ast.For | ast.While) -> bool:
    """Return True for a loop of training steps: the innermost loop over data around `backward`, or the innermost of
    all.
    """
    if not goes_through_data(loop):
        return bool(losses_below(loop, *LOOPS))
    return calls_backward(loop) and not any(goes_through_data(n) and calls_backward(n) for n in nodes_below(loop))


def goes_through_data(node: ast.AST) -> bool:
    """Return True if a node is a loop that iterates over something other than numbers."""
    return isinstance(node, ast.For) and not _is_counted(node.iter)


def _is_counted(node: ast.expr) -> bool:
    while isinstance(node, ast.Call) and node.args and last_name(node.func) not in _COUNTS:
        if not last_name(node.func).islower():
            return False  # a class instance: `DataLoader([1, 2, 3])` yields batches
        node = node.args[0]
    if isinstance(node, (ast.List, ast.Tuple)):
        return not any(isinstance(part, ast.Call) for part in ast.walk(node))
    return isinstance(node, ast.Call) and last_name(node.func) in _COUNTS


def numbers_of(region: ast.AST) -> set[str]:
    """Return the variables of a loop that are numbers: of `range`, and the first of `enumerate`."""
    if not isinstance(region, ast.For):
        return set()
    if not goes_through_data(region):
        return names_in(region.target)
    node = region.iter
    while isinstance(node, ast.Call) and node.args:
        if last_name(node.func) == "enumerate" and isinstance(region.target, ast.Tuple):
            return names_in(region.target.elts[0])
        node = node.args[0]
    return set()


def evaluates(loop: ast.For | ast.While) -> bool:
    """Return True if a loop passes batches to a model or a loss, and reads values of the result."""
    if not isinstance(loop, ast.For) or not goes_through_data(loop) or calls_backward(loop):
        return False
    batch = names_in(loop.target)
    derived = _derived_from(batch, loop.body)
    parts = (part for statement in statements_in(loop.body) for part in header_of(statement))
    calls = [part for part in parts if isinstance(part, ast.Call)]
    applied = [call for call in calls if names_in(*call.args, *(k.value for k in call.keywords)) & derived]
    models = [call for call in applied if _is_model(call.func) and names_in(call.func).isdisjoint(batch)]
    losses = [call for call in applied if LOSS.search(last_name(call.func))]
    return bool(models and (losses or results_of(loop.body)))


def _derived_from(names: Collection[str], body: Sequence[ast.stmt]) -> set[str]:
    """Return the names that hold values derived from `names`, as the statements of a body assign them."""
    derived = {*names}
    for statement in statements_in(body):
        if derived & header_names(statement, ast.Load):
            derived |= header_names(statement, ast.Store)
    return derived


def _is_model(function: ast.expr) -> bool:
    """Return True if a function has the name of a module: `model`, `self.net`."""
    is_of_self = isinstance(function, ast.Attribute) and names_in(function) == {"self"}
    return (isinstance(function, ast.Name) or is_of_self) and _MODEL.search(last_name(function)) is not None
