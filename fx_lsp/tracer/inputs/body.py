"""What a function's body says about its parameters: ranks, dtypes, and what is no tensor."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fx_lsp.tracer.inputs.dims import Shape, parameter_shape
from fx_lsp.tracer.inputs.requirements import Requirement, requirements, shape_of

Use = Literal["tensor", "called", "iterated", "count", "compared", "operand", "indexed"]


@dataclass
class Facts:
    """What the body shows of one parameter.

    `rank` is exact, `likely_rank` a guess, `min_rank` a lower bound; `sizes` those that the code demands, by index;
    `shape` is what the docstring says; `dtype` a short name; `uses` what it is used as; `length` how many items it is
    unpacked into; `literals` what it is compared with; `attributes` are read from it, and `keys` looked up in it.
    """

    rank: int | None = None
    likely_rank: int | None = None
    min_rank: int = 0
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    shape: Shape | None = None
    length: int | None = None
    attributes: set[str] = field(default_factory=set[str])
    keys: set[str] = field(default_factory=set[str])
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


_COUNTS = {
    **dict.fromkeys(
        ("range", "arange", "view", "reshape", "expand", "repeat", "new_zeros", "new_ones", "new_empty"), 0
    ),
    **dict.fromkeys(("zeros", "ones", "empty", "rand", "randn", "eye", "unflatten", "int"), 0),
    **dict.fromkeys(("linspace", "full", "topk", "chunk", "split", "unfold", "repeat_interleave", "roll", "narrow"), 1),
}
"""Functions that count with their arguments, from the one at that position on."""


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
    for demand in requirements(function):
        if demand.name in facts:
            _demand(facts[demand.name], demand)
    docstring = ast.get_docstring(function) or ""
    for name, found in facts.items():
        found.shape = parameter_shape(docstring, name) if docstring else None
    return facts


def constructor_facts(definition: ast.ClassDef | None) -> dict[str, Facts]:
    """Facts by parameter of a class's constructor, also those that methods show of `self.name = name`."""
    methods = [n for n in definition.body if isinstance(n, ast.FunctionDef)] if definition is not None else []
    constructor = next((m for m in methods if m.name == "__init__"), None)
    facts = body_facts(constructor)
    kept: dict[str, str] = {}
    for node in ast.walk(constructor) if constructor is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in facts:
            kept |= {t.attr: node.value.id for t in node.targets if isinstance(t, ast.Attribute)}
    for method in methods:
        for node in ast.walk(method):
            _visit(node, facts, {}, kept)
    return facts


def lend_facts(tree: ast.Module, facts: dict[str, Facts], methods: bool) -> None:
    """Likely ranks of parameters that are only handed on, from those of the same name elsewhere in the file.

    Methods lend to methods and functions to functions; names of up to three letters stand for anything.
    """
    poor = {n for n, f in facts.items() if len(n) > 3 and f.rank is None and f.shape is None}
    for function in _definitions(tree.body) if poor else ():
        bodies = function.body if isinstance(function, ast.ClassDef) and methods else [function]
        for body in bodies:
            if isinstance(body, ast.FunctionDef) and methods == isinstance(function, ast.ClassDef):
                shared = poor & {a.arg for a in [*body.args.args, *body.args.kwonlyargs]}
                found = body_facts(body) if shared else {}
                for name in shared:
                    facts[name].likely_rank = facts[name].likely_rank or found[name].rank


def _inside_call(expression: ast.expr, name: ast.Name) -> bool:
    """Whether a name stands in a call, an attribute or a subscript below `expression`: it does not count then."""
    nodes = [n for n in ast.walk(expression) if isinstance(n, (ast.Call, ast.Attribute, ast.Subscript))]
    return any(name in ast.walk(node) for node in nodes)


def _demand(facts: Facts, demand: Requirement) -> None:
    facts.uses.add("tensor")
    facts.rank = demand.rank if demand.rank is not None else facts.rank
    facts.min_rank = max(facts.min_rank, demand.min_rank)
    if demand.size is not None:
        facts.sizes.setdefault(demand.index, demand.size)
        facts.min_rank = max(facts.min_rank, demand.index + 1 if demand.index >= 0 else -demand.index)


def _rebound_lines(function: ast.FunctionDef, facts: dict[str, Facts]) -> dict[str, int]:
    """The first line on which each parameter is assigned anew: what follows says nothing of the argument."""
    lines: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in facts:
            lines[node.id] = min(lines.get(node.id, node.lineno), node.lineno)
    return lines


def _visit(
    node: ast.AST, facts: dict[str, Facts], rebound: dict[str, int], kept: Mapping[str, str] | None = None
) -> None:
    """Take in what one node shows; with `kept` only of attributes of `self`, by the parameter that each holds."""

    def named(name: str, line: int) -> Facts | None:
        if kept is not None:
            return None
        return facts.get(name) if line <= rebound.get(name, line) else None

    def of(expression: ast.expr) -> Facts | None:
        if kept is None:
            return named(expression.id, expression.lineno) if isinstance(expression, ast.Name) else None
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            return facts.get(kept.get(expression.attr, "")) if expression.value.id == "self" else None
        return None

    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
        shaped = shape_of(node.value)
        subject = named(shaped, node.lineno) if shaped is not None else None
        elements = node.targets[0].elts
        if subject is None and (found := of(node.value)) is not None:
            found.uses.add("iterated")
            found.length = len(elements)
        if subject is not None:
            starred = sum(isinstance(e, ast.Starred) for e in elements)
            if starred:
                subject.min_rank = max(subject.min_rank, len(elements) - starred)
            else:
                subject.rank = len(elements)
    elif isinstance(node, ast.Subscript):
        _visit_subscript(node, of, named)
    elif isinstance(node, ast.Attribute):
        found = of(node.value)
        if found is not None:
            found.uses.add("tensor")
            found.attributes.add(node.attr)
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
            for comparator in node.comparators:
                parts = comparator.elts if isinstance(comparator, (ast.Tuple, ast.List, ast.Set)) else [comparator]
                found.literals += [part.value for part in parts if isinstance(part, ast.Constant)]
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


def _visit_subscript(node: ast.Subscript, of: Any, named: Any) -> None:
    shaped = shape_of(node.value)
    if shaped is not None:
        found = named(shaped, node.lineno)
        index = _integer(node.slice)
        if found is not None and index is not None:
            found.min_rank = max(found.min_rank, index + 1 if index >= 0 else -index)
        return
    if isinstance(node.value, ast.Dict) and (key := of(node.slice)) is not None:
        key.uses.add("compared")
        key.literals += [k.value for k in node.value.keys if isinstance(k, ast.Constant)]
    found = of(node.value)
    if found is not None and _integer(node.slice) is not None:
        found.uses.add("indexed")
    if found is not None and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        found.keys.add(node.slice.value)
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
    if name in _COUNTS and (method or isinstance(node.func, ast.Name) or name not in ("view", "repeat", "expand")):
        for argument in node.args[_COUNTS[name] :]:
            for part in ast.walk(argument):
                if (
                    isinstance(part, (ast.Name))
                    and (found := of(part)) is not None
                    and not _inside_call(argument, part)
                ):
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
                found.sizes.update({-1 - i: 3 for i in range(spatial)} if position == 1 else {})
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


def _integer(node: ast.expr) -> int | None:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        return None
    return found if type(found) is int else None


def find_class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    """The definition of a class at the top level, or None."""
    return next((n for n in reversed(_definitions(tree.body)) if n.name == name and isinstance(n, ast.ClassDef)), None)


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
