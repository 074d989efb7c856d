"""Find the results of a step: the losses that it calls `backward` on, or the tensors whose values it reads.

An evaluation reads values of tensors to sum, collect or log them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from fx_lsp.training.statements import bound_names, header_names, last_name, names_in, nodes_below, straight

_BACKWARD = frozenset({"backward", "manual_backward"})
LOSS = re.compile(r"loss|criterion|cross_entropy|objective", re.IGNORECASE)
_VALUES = frozenset({"item", "tolist", "numpy"})
_TO_NUMBERS = frozenset({"float", "int"})
_ON_THE_WAY = frozenset({"cpu", "detach", "data"})


def loss_of(node: ast.AST) -> ast.expr | None:
    """Return the expression of `backward`: `loss` of `scaler.scale(loss).backward()` and `self.manual_backward(loss)`.

    None for any other node.
    """
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    match call.func.value, call.func.attr, call.args:
        case _, method, _ if method not in _BACKWARD:
            return None
        case receiver, _, _ if last_name(receiver).endswith("autograd"):
            return _losses_given(call)
        case _, "manual_backward", arguments:
            return next(iter(arguments), None)
        case ast.Name(), _, [ast.Name(name) as loss] if LOSS.search(name) and not call.keywords:
            return loss
        case ast.Call(function, [scaled]), _, _ if last_name(function) == "scale":
            return scaled
        case receiver, _, _:
            return receiver


def _losses_given(call: ast.Call) -> ast.expr | None:
    """Return the losses of a call of `autograd.backward`: a list as a tuple, a single loss as it is."""
    listed = next((argument for argument in call.args if isinstance(argument, (ast.List, ast.Tuple))), None)
    if listed is None:
        return next(iter(call.args), None)
    return listed.elts[0] if len(listed.elts) == 1 else ast.copy_location(ast.Tuple(listed.elts, ast.Load()), call)


def losses_below(node: ast.AST, *opaque: type[ast.AST]) -> list[ast.expr]:
    """Return the losses that the code below a node calls `backward` on, outside of nodes of the types `opaque`."""
    return [loss for part in nodes_below(node, *opaque) if (loss := loss_of(part)) is not None]


def calls_backward(*nodes: ast.AST) -> bool:
    """Return True if one of the nodes calls `backward`, or code below it does."""
    return any(loss_of(node) is not None or losses_below(node) for node in nodes)


def results_of(body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return the results of a body without `backward`: the expressions that it sums, collects or reads values of."""
    results = [result for node in straight(body) for result in results_read_by(node, body)]
    return list({ast.dump(result): result for result in results if names_in(result)}.values())


def results_read_by(node: ast.stmt, body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return the results whose values a statement reads, adds to an outer variable, or appends to a list."""
    match node:
        case ast.AugAssign(target, ast.Add(), value):
            is_outer = names_in(target).isdisjoint(bound_names([part for part in body if part is not node]))
            return (_tensors_in(value) or _unless_numbers(value, body)) if is_outer else []
        case ast.Expr(ast.Call(function, [_, value, *_])) if last_name(function) == "log":
            return _tensors_in(value) or [value]
        case ast.Expr(ast.Call(function, [value])) if last_name(function) == "append":
            return _tensors_in(value) or _unless_numbers(value, body)
        case ast.Assign(value=value) | ast.Expr(value):
            return _tensors_in(value)
        case _:
            return []


def _unless_numbers(node: ast.expr, body: Sequence[ast.stmt]) -> list[ast.expr]:
    """Return a summed expression as a list; empty if it is computed from values read from tensors before."""
    reading = [part for part in straight(body) if isinstance(part, ast.Assign) and _tensors_in(part.value)]
    numbers = {name for part in reading for name in header_names(part, ast.Store)}
    return [node] if names_in(node).isdisjoint(numbers) else []


def _tensors_in(node: ast.AST) -> list[ast.expr]:
    """Return the expressions whose values an expression reads: `loss` in `loss.item() * len(x)`."""
    match node:
        case ast.Call(ast.Attribute(tensor, method), []) if method in _VALUES:
            return [_without_moves(tensor)]
        case ast.Call(ast.Name(function), [tensor]) if function in _TO_NUMBERS:
            return _tensors_in(tensor) or [tensor]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            tensors = [tensor for value in values for tensor in _tensors_in(value)]
            return [ast.copy_location(ast.ListComp(tensor, node.generators), node) for tensor in tensors]
        case _:
            return [tensor for child in ast.iter_child_nodes(node) for tensor in _tensors_in(child)]


def _without_moves(node: ast.expr) -> ast.expr:
    """Return `x` of `x.detach().cpu()` and `x.data`."""
    while True:
        inner = node.func if isinstance(node, ast.Call) and not node.args else node
        if not isinstance(inner, ast.Attribute) or inner.attr not in _ON_THE_WAY:
            return node
        node = inner.value
