"""Make the parts of a batch that a step reads the parameters of the step: `x, y = batch`, `batch["image"]`."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from fx_lsp.syntax import assigned
from fx_lsp.training.statements import READ, Region, bound_names, names_in, parameters_in, statements_in

Key: TypeAlias = "int | str"
_CASTS = frozenset({"to", "cuda", "cpu", "float", "double", "half", "long", "int", "contiguous", "clone"})


def split_parameter(function: ast.FunctionDef) -> None:
    """Replace the parameter `batch` of a method by its parts, if the method reads only parts of it."""
    arguments = function.args.args
    for index in [index for index, argument in enumerate(arguments) if argument.arg == "batch"]:
        parts = split_batches(function.body, ["batch"], function)
        if [*parts] != ["batch"]:
            arguments[index : index + 1] = [ast.copy_location(ast.arg(name), arguments[index]) for name in parts]


def split_batches(body: list[ast.stmt], batches: Sequence[str], region: Region) -> dict[str, ast.expr]:
    """Return the parameters of a step, each with its expression in terms of the loop's variables.

    A batch of which the body reads only parts becomes these parts, there as well.
    """
    parts: dict[str, ast.expr] = {}
    for batch in batches:
        value = ast.copy_location(ast.Name(batch, ast.Load()), region)
        names_by_key = _split(body, batch, parameters_in(region))
        if names_by_key is None:
            parts[batch] = value
            continue
        read = names_in(*body, contexts=READ)
        for key, name in names_by_key.items():
            if name in read:
                parts[name] = ast.copy_location(ast.Subscript(value, ast.Constant(key), ast.Load()), region)
    return parts


def _split(body: list[ast.stmt], batch: str, parameters: Collection[str]) -> dict[Key, str] | None:
    """Replace the parts of a batch in a body by variables; return the variable of each key. None if the body reads it
    whole.

    A part has the body's own variable for it, or a free name, which is none of the `parameters`.
    """
    keys = _keys_read(body, batch)
    unpacked = [targets for node in statements_in(body) if (targets := _unpacked_names(node, batch))]
    names_read = (part.id for node in body for part in ast.walk(node) if isinstance(part, ast.Name))
    reads = [*names_read].count(batch)
    if not reads or len(unpacked) + len(keys) < reads:
        return None
    names: dict[Key, str] = {number: name for several in unpacked for number, name in enumerate(several)}
    pairs = ((name, _key_of(_without_casts(value), batch)) for name, value in _pairs(body))
    own = {key: name for name, key in pairs if key is not None and keys.count(key) == 1}
    bound = names_in(*body, contexts=READ) | bound_names(body) | {*parameters}
    for key in keys:
        if key not in names:
            names[key] = own.get(key) or _free_variable(key, batch, bound | {*names.values()})
    replaced = [_PartsByName(batch, names).visit(node) for node in body]
    body[:] = [node for node in replaced if not isinstance(node, ast.Pass)]
    return names


def _keys_read(body: Sequence[ast.stmt], batch: str) -> list[Key]:
    """Return the keys of a batch that a body reads, in the order of its text."""
    subscripts = [part for node in body for part in ast.walk(node) if isinstance(part, ast.Subscript)]
    subscripts.sort(key=lambda part: (part.lineno, part.col_offset))
    return [key for part in subscripts if (key := _key_of(part, batch)) is not None]


class _PartsByName(ast.NodeTransformer):
    """Replace the parts of a batch by variables."""

    def __init__(self, batch: str, names: Mapping[Key, str]) -> None:
        self._batch, self._names = batch, names

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Replace `batch[key]`."""
        key = _key_of(node, self._batch)
        if key is None:
            return self.generic_visit(node)
        return ast.copy_location(ast.Name(self._names[key], ast.Load()), node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Replace `x, y = batch` by nothing."""
        if _unpacked_names(node, self._batch):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)


def _unpacked_names(node: ast.stmt, batch: str) -> list[str]:
    """Return the names of `x, y = batch`; none for any other statement."""
    match node:
        case ast.Assign([ast.Tuple(targets) | ast.List(targets), *_], ast.Name(name)) if name == batch:
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            return names if len(names) == len(targets) else []
        case _:
            return []


def _key_of(node: ast.AST, batch: str) -> Key | None:
    """Return the key of `batch[0]` or `batch["image"]`; None for any other node."""
    match node:
        case ast.Subscript(ast.Name(name), ast.Constant(int() | str() as key)) if name == batch:
            return key
        case _:
            return None


def _pairs(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables of `a = x` and of `a, b = x, y` with their values."""
    for node in statements_in(body):
        yield from assigned(node)
        match node:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                pairs = zip(targets, values, strict=False)
                yield from ((target.id, value) for target, value in pairs if isinstance(target, ast.Name))
            case _:
                pass


def _without_casts(node: ast.expr) -> ast.expr:
    """Return `x` of `x.to(device).float()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS:
        node = node.func.value
    return node


def _free_variable(key: Key, batch: str, bound: Collection[str]) -> str:
    """Return a variable for a part of a batch: its key if that is a free identifier."""
    is_name = isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key)
    name = str(key) if is_name else f"{batch}_{key}"
    while name in bound:
        name = f"{batch}_{name}"
    return name
