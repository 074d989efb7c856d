"""What a function's body says about its parameters: ranks, dtypes, and what is no tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Use = Literal["tensor", "called", "iterated", "count", "compared", "operand"]


@dataclass
class Facts:
    """What the body shows of one parameter.

    `rank` is exact; `min_rank` a lower bound; `last_sizes` are those of its last dimensions; `dtype` is a short name;
    `uses` what it is used as; `literals` what it is compared with.
    """

    rank: int | None = None
    min_rank: int = 0
    last_sizes: tuple[int, ...] = ()
    dtype: str | None = None
    uses: set[Use] = field(default_factory=set)
    literals: list[Any] = field(default_factory=list)


_OPERAND_RANKS = {
    "linear": {1: 2, 2: 1},
    "layer_norm": {2: 1, 3: 1},
    "rms_norm": {2: 1},
    "group_norm": {2: 1, 3: 1},
    "batch_norm": {1: 1, 2: 1, 3: 1, 4: 1},
    "embedding": {1: 2},
    "bmm": {0: 3, 1: 3},
    "mm": {0: 2, 1: 2},
    "addmm": {1: 2, 2: 2},
    "scaled_dot_product_attention": {0: 4, 1: 4, 2: 4},
    "conv1d": {2: 1},
    "conv2d": {2: 1},
    "conv3d": {2: 1},
}
"""The rank of an operand of a torch function, by its position."""
_INDEX_ARGUMENT = {"embedding": 0, "one_hot": 0, "gather": 1, "index_select": 1, "cross_entropy": 1, "nll_loss": 1}
_MASK_ARGUMENT = {"masked_fill": 0, "masked_fill_": 0, "where": 0, "masked_select": 0}


def body_facts(function: ast.FunctionDef | None) -> dict[str, Facts]:
    """Facts by parameter name; variables that only rename a parameter are not followed."""
    if function is None:
        return {}
    arguments = function.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    if arguments.vararg:
        names.append(arguments.vararg.arg)
    facts = {name: Facts() for name in names}
    rebound = _rebound_lines(function, facts)
    for node in ast.walk(function):
        _visit(node, facts, rebound)
    return facts


def _rebound_lines(function: ast.FunctionDef, facts: dict[str, Facts]) -> dict[str, int]:
    """The first line on which each parameter is assigned anew: what follows says nothing of the argument."""
    lines: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in facts:
            lines[node.id] = min(lines.get(node.id, node.lineno), node.lineno)
    return lines


def _visit(node: ast.AST, facts: dict[str, Facts], rebound: dict[str, int]) -> None:
    def of(expression: ast.expr) -> Facts | None:
        if isinstance(expression, ast.Name) and expression.lineno <= rebound.get(expression.id, expression.lineno):
            return facts.get(expression.id)
        return None

    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
        subject = of(shaped) if (shaped := _shape_of(node.value)) is not None else None
        elements = node.targets[0].elts
        if subject is not None:
            starred = sum(isinstance(e, ast.Starred) for e in elements)
            if starred:
                subject.min_rank = max(subject.min_rank, len(elements) - starred)
            else:
                subject.rank = len(elements)
    elif isinstance(node, ast.Subscript):
        _visit_subscript(node, of)
    elif isinstance(node, ast.Attribute):
        found = of(node.value)
        if found is not None:
            found.uses.add("tensor")
    elif isinstance(node, ast.Call):
        _visit_call(node, of)
    elif isinstance(node, (ast.For, ast.comprehension)):
        found = of(node.iter)
        if found is not None:
            found.uses.add("iterated")
    elif isinstance(node, ast.Compare):
        found = of(node.left)
        if found is not None:
            found.uses.add("compared")
            found.literals += [c.value for c in node.comparators if isinstance(c, ast.Constant)]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        for side in (node.left, node.right):
            if (found := of(side)) is not None:
                found.uses.add("operand")
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        for side in (node.left, node.right):
            found = of(side)
            if found is not None:
                found.uses.add("tensor")
                found.min_rank = max(found.min_rank, 2)


def _visit_subscript(node: ast.Subscript, of: Any) -> None:
    shaped = _shape_of(node.value)
    if shaped is not None:
        found = of(shaped)
        index = _integer(node.slice)
        if found is not None and index is not None:
            found.min_rank = max(found.min_rank, index + 1 if index >= 0 else -index)
        return
    found = of(node.value)
    if found is None or not isinstance(node.slice, ast.Tuple):
        return
    items = [i for i in node.slice.elts if not (isinstance(i, ast.Constant) and i.value in (None, Ellipsis))]
    found.uses.add("tensor")
    if any(isinstance(i, ast.Constant) and i.value is Ellipsis for i in node.slice.elts):
        found.min_rank = max(found.min_rank, len(items))
    elif isinstance(node.slice.elts[-1], ast.Slice) and node.slice.elts[-1].lower is None:
        found.rank = found.rank or len(items)
    else:
        found.min_rank = max(found.min_rank, len(items))


def _visit_call(node: ast.Call, of: Any) -> None:
    called = of(node.func)
    if called is not None:
        called.uses.add("called")
    name = (
        node.func.attr
        if isinstance(node.func, ast.Attribute)
        else node.func.id
        if isinstance(node.func, ast.Name)
        else ""
    )
    subject = of(node.func.value) if isinstance(node.func, ast.Attribute) else None
    method = subject is not None
    dims = [i for i in map(_integer, node.args) if i is not None]
    if subject is not None:
        if name in ("permute",) and len(dims) == len(node.args) > 1:
            subject.rank = len(dims)
        elif (
            name in ("transpose", "size", "swapaxes", "flatten", "squeeze", "sum", "mean", "softmax", "chunk") and dims
        ):
            subject.min_rank = max(subject.min_rank, *(d + 1 if d >= 0 else -d for d in dims))
    if name in ("range", "arange"):
        for argument in node.args:
            if (found := of(argument)) is not None:
                found.uses.add("count")
    if (
        name == "einsum"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ):
        terms = node.args[0].value.replace(" ", "").split("->")[0].split(",")
        for term, operand in zip(terms, node.args[1:], strict=False):
            if (found := of(operand)) is not None and "..." not in term:
                found.rank = len(term)
    convolution = re.fullmatch(r"conv(_transpose)?([123])d", name)
    if convolution and not method:
        spatial = int(convolution[2])
        for position, argument in enumerate(node.args[:2]):
            if (found := of(argument)) is not None:
                found.rank = spatial + 2
                found.last_sizes = (3,) * spatial if position == 1 else ()
    if not method:
        for position, rank in _OPERAND_RANKS.get(name, {}).items():
            if position < len(node.args) and (found := of(node.args[position])) is not None:
                found.rank = rank
    for table, dtype in ((_INDEX_ARGUMENT, "i64"), (_MASK_ARGUMENT, "b8")):
        if name in table:
            index = table[name] - (
                1 if method and table is _INDEX_ARGUMENT and name in ("gather", "index_select") else 0
            )
            index += 1 if not method and table is _MASK_ARGUMENT and name != "where" else 0
            if 0 <= index < len(node.args) and (found := of(node.args[index])) is not None:
                found.dtype = dtype


def _shape_of(node: ast.expr) -> ast.expr | None:
    """`x` for `x.shape` and `x.size()`."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "size"
        and not node.args
    ):
        return node.func.value
    return None


def _integer(node: ast.expr) -> int | None:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        return None
    return found if type(found) is int else None


def find_function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The definition of a qualified name, or None."""
    body: Sequence[ast.stmt] = tree.body
    found: ast.FunctionDef | None = None
    for part in name.split("."):
        match = [n for n in _definitions(body) if n.name == part]
        if not match:
            return None
        body = match[-1].body
        found = match[-1] if isinstance(match[-1], ast.FunctionDef) else None
    return found


def _definitions(body: Sequence[ast.stmt]) -> list[ast.FunctionDef | ast.ClassDef]:
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.append(node)
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            found += _definitions([n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)])
    return found
