"""Make a step a function: the body of its loop, with a parameter for each part of a batch."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Mapping, Sequence

from fx_lsp.syntax import parse
from fx_lsp.training.batches import split_batches, split_parameter
from fx_lsp.training.body import returning
from fx_lsp.training.draws import closed_statements
from fx_lsp.training.loops import numbers_of
from fx_lsp.training.statements import (
    LOOPS,
    READ,
    bound_names,
    fresh_names,
    header_names,
    inner_blocks,
    names_in,
    nodes_below,
    parameters_in,
    path_to,
    statements_in,
)
from fx_lsp.training.step import BATCHES, STEP


def with_step(tree: ast.Module, line: int, name: str, inputs: Collection[str] = ()) -> ast.Module:
    """Return a copy of a module in which the step at `line` is a function that returns its losses, in place of a loop.

    It has the last part of `name`, after a blank if it was a loop. Names in `inputs` that it reads or gets from data
    become parameters; statements that bind them from data are dropped.
    """
    tree = copy.deepcopy(tree)
    path = path_to(tree.body, line)
    if path:
        block, region = path[-1]
        index = block.index(region)
        block[index : index + 1] = step_statements(region, [node for _, node in path[:-1]], name, inputs)
    return ast.fix_missing_locations(tree)


def step_statements(
    region: ast.stmt, around: Sequence[ast.stmt], name: str, inputs: Collection[str] = ()
) -> list[ast.stmt]:
    """Return the function of a step and, for a loop over data, the statement that sets its batches; the region is
    changed. `around` are the statements that it is in; `name` and `inputs` are as in `with_step`.
    """
    assert isinstance(region, (*LOOPS, ast.FunctionDef))
    region.body = _without(region.body, [node for node in closed_statements(region) if fresh_names(node) & {*inputs}])
    if isinstance(region, ast.FunctionDef):
        _return_results(region, inputs)
        return [region]
    return _function_of(region, around, STEP.format(name.rpartition(".")[2]), inputs)


def as_step(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    """Make the function at `line` return its losses, in place, and return it; None for a loop."""
    path = path_to(tree.body, line)
    function = path[-1][1] if path else None
    if not isinstance(function, ast.FunctionDef):
        return None
    function.body = returning(function.body)
    ast.fix_missing_locations(tree)
    return function


def _without(body: list[ast.stmt], dropped: Collection[ast.stmt]) -> list[ast.stmt]:
    """Return a body without the statements `dropped`, which run exactly once."""
    rest = [node for node in body if node not in dropped]
    for node in rest:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            node.body = _without(node.body, dropped)
    return rest or [ast.copy_location(ast.Pass(), body[0])]


def _return_results(function: ast.FunctionDef, inputs: Collection[str]) -> None:
    """Make a function that is a step return its results, with parameters for `inputs` and for the parts of a batch."""
    function.body = returning(function.body)
    split_parameter(function)
    missing = [name for name in inputs if name not in parameters_in(function.args)]
    function.args.kwonlyargs += [ast.copy_location(ast.arg(name), function) for name in missing]
    function.args.kw_defaults += [None] * len(missing)


def _function_of(
    region: ast.For | ast.While, around: Sequence[ast.stmt], name: str, inputs: Collection[str]
) -> list[ast.stmt]:
    """Return the function for the body of a loop, and the statement that sets its batches."""
    head = region.target if isinstance(region, ast.For) else region
    body = returning(region.body)
    targets = [part.id for part in ast.walk(head) if isinstance(part, ast.Name)] if head is not region else []
    read, numbers = names_in(*body, contexts=READ), numbers_of(region)
    in_use = [target for target in dict.fromkeys(targets) if target in read]
    counted = [target for target in in_use if target in numbers]
    carried = sorted(_carried(body, targets, around, region) - {*inputs})
    parts = split_batches(body, [target for target in in_use if target not in numbers], region)
    defaults = [*(f"{number}=0" for number in counted), *(f"{variable}={variable}" for variable in carried)]
    signature = [*parts, *inputs, *(["*", *defaults] if defaults else [])]
    (function,) = parse(f"def _({', '.join(signature)}): pass").body
    assert isinstance(function, ast.FunctionDef)
    for part in ast.walk(function):
        ast.copy_location(part, head)
    function.name, function.body = name, body
    function.lineno, function.col_offset = region.lineno, region.col_offset
    return [function, _batches_of(region, name, parts)] if isinstance(region, ast.For) else [function]


def _batches_of(region: ast.For, name: str, parts: Mapping[str, ast.expr]) -> ast.stmt:
    """Return the statement that sets the generator of arguments of a loop's function, one dict per iteration."""
    keys: list[ast.expr | None] = [ast.Constant(parameter) for parameter in parts]
    batches = ast.Dict(keys, list(parts.values()))
    several = ast.GeneratorExp(batches, [ast.comprehension(region.target, region.iter, [], 0)])
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    attribute = ast.Attribute(ast.Name(name, ast.Load()), BATCHES, ast.Store())
    return ast.copy_location(ast.Assign([attribute], ast.Lambda(nothing, several)), region)


def _carried(
    body: Sequence[ast.stmt], targets: Collection[str], around: Sequence[ast.stmt], region: ast.stmt
) -> set[str]:
    """Return the loop-carried variables: those that a body reads before it assigns them, and that the function around
    its loop has.
    """
    stored = {name for node in statements_in(body) for name in header_names(node, ast.Store)}
    carried = _read_first(body, targets) & stored
    function = next((node for node in reversed(around) if isinstance(node, ast.FunctionDef)), None)
    if function is None:
        return carried
    inside = {*ast.walk(region)}
    outside = (part for part in nodes_below(function) if isinstance(part, ast.Name) and part not in inside)
    return carried & (parameters_in(function.args) | {part.id for part in outside if isinstance(part.ctx, ast.Store)})


def _read_first(block: Sequence[ast.stmt], bound: Collection[str]) -> set[str]:
    """Return the names that a block reads before it binds them, except those that are `bound` before."""
    early, before = set[str](), {*bound}
    for node in block:
        target = names_in(node.target) if isinstance(node, ast.AugAssign) else set[str]()
        early |= (header_names(node, ast.Load) | target) - before
        before |= header_names(node, ast.Store)
        for inner in inner_blocks(node):
            early |= _read_first(inner, before)
        if isinstance(node, ast.With):
            before |= bound_names(node.body)
    return early
