"""Infer ranks from matrix products whose axes are counted from the end, which have leading dimensions.

`q @ k.transpose(-2, -1)` has a batch. With a softmax of the product there are heads as well: attention is written for
batch × heads × length × width.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fx_lsp.syntax import FunctionNode, assigned

_PRODUCTS = frozenset({"matmul", "__matmul__"})
_SWAPS = frozenset({"transpose", "swapaxes", "swapdims"})
BATCH_RANK, HEADS_RANK = 3, 4


@dataclass
class _Dataflow:
    """Classify expressions in the order of statements. `lines` are those after which a parameter is rebound.

    `scores` and `weights` are variables with the parameters whose products they hold, before and after a softmax.
    """

    lines: Mapping[str, int]
    scores: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    weights: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


def ranks_of_products(function: FunctionNode, names: Mapping[str, object], lines: Mapping[str, int]) -> dict[str, int]:
    """Return the ranks that parameters most likely have because of the matrix products that they are in.

    `names` are the parameters, `lines` those on which they are rebound.
    """
    flow = _Dataflow({name: lines.get(name, 1 << 30) for name in names})
    ranks: dict[str, int] = {}
    statements = (node for node in ast.walk(function) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)))
    for statement in sorted(statements, key=lambda node: node.lineno):
        if statement.value is None:
            continue
        for part in ast.walk(statement.value):
            for name, rank in _ranks(part, flow):
                ranks[name] = max(ranks.get(name, 0), rank)
        for name, value in assigned(statement):
            flow.scores[name], flow.weights[name] = _scores(value, flow), _weights(value, flow)
    return ranks


def _ranks(part: ast.AST, flow: _Dataflow) -> Iterator[tuple[str, int]]:
    """Yield the ranks that a product or a softmax shows."""
    if not isinstance(part, ast.expr):
        return
    weighing = _softmaxed(part, flow)
    rank = BATCH_RANK if len(weighing) == 1 else HEADS_RANK  # of a tensor with itself: there are no heads yet
    yield from ((name, rank) for name in weighing)
    product = _operands(part)
    if product is None:
        return
    left, right = product
    weighing, value = _weights(left, flow), _parameter(right, flow)
    if weighing and value:
        yield value, BATCH_RANK if weighing == frozenset({value}) else HEADS_RANK
    yield from ((name, BATCH_RANK) for name in _product(part, flow))


def _scores(expression: ast.expr, flow: _Dataflow) -> frozenset[str]:
    """Return the parameters whose product an expression contains, without a softmax."""
    if _softmax(expression) is not None:
        return frozenset()
    if isinstance(expression, ast.Name):
        return flow.scores.get(expression.id, frozenset())
    within = (_scores(child, flow) for child in ast.iter_child_nodes(expression) if isinstance(child, ast.expr))
    return _product(expression, flow) or frozenset().union(*within)


def _weights(expression: ast.expr, flow: _Dataflow) -> frozenset[str]:
    """Return the parameters of whose product an expression contains the softmax."""
    if isinstance(expression, ast.Name):
        return flow.weights.get(expression.id, frozenset())
    within = (_weights(child, flow) for child in ast.iter_child_nodes(expression) if isinstance(child, ast.expr))
    return _softmaxed(expression, flow) or frozenset().union(*within)


def _softmaxed(expression: ast.expr, flow: _Dataflow) -> frozenset[str]:
    argument = _softmax(expression)
    return frozenset() if argument is None else _scores(argument, flow)


def _softmax(expression: ast.expr) -> ast.expr | None:
    """Return the argument of `softmax(x)`, `F.softmax(x)` or `x.softmax(…)`."""
    if not isinstance(expression, ast.Call) or _name(expression) != "softmax":
        return None
    return _subject(expression)


def _product(expression: ast.expr, flow: _Dataflow) -> frozenset[str]:
    """Return the two parameters of a product, the second with its last two axes swapped."""
    product = _operands(expression)
    if product is None or (swapped := _swapped(product[1])) is None:
        return frozenset()
    names = {_parameter(product[0], flow), _parameter(swapped, flow)}
    return frozenset() if "" in names else frozenset(names)


def _operands(expression: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.MatMult):
        return expression.left, expression.right
    if isinstance(expression, ast.Call) and _name(expression) in _PRODUCTS:
        subject = _subject(expression)
        if subject is not None and expression.args:
            return subject, expression.args[-1]
    return None


def _swapped(expression: ast.expr) -> ast.expr | None:
    """Return the tensor whose last two axes are swapped, counted from the end: `x.transpose(-2, -1)`, `x.mT`."""
    if isinstance(expression, ast.Attribute) and expression.attr == "mT":
        return expression.value
    if isinstance(expression, ast.Call) and _name(expression) in _SWAPS and len(expression.args) >= 2:
        axes = {ast.unparse(axis) for axis in expression.args[-2:]}
        return _subject(expression) if axes == {"-1", "-2"} else None
    return None


def _parameter(expression: ast.expr, flow: _Dataflow) -> str:
    """Return the parameter that an expression refers to; "" for any other."""
    if isinstance(expression, ast.Name) and expression.lineno <= flow.lines.get(expression.id, 0):
        return expression.id
    return ""


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _subject(call: ast.Call) -> ast.expr | None:
    """Return the tensor that a method or a function of torch operates on."""
    of_module = isinstance(call.func, ast.Name) or (
        isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in _MODULES
    )
    if of_module:
        return call.args[0] if call.args else None
    return call.func.value if isinstance(call.func, ast.Attribute) else None


_MODULES = frozenset({"torch", "F", "nn.functional", "torch.nn.functional", "torch.special"})
