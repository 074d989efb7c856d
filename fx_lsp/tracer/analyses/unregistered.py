"""Find layers and parameters that a module does not register with PyTorch: in lists, dictionaries, plain attributes."""

from __future__ import annotations

import ast
import gc
from collections.abc import Collection, Iterator
from types import CellType
from typing import Any

import torch
from torch import nn

from fx_lsp.messages.findings import COMPUTED_TENSOR, PLAIN_CONTAINER, PLAIN_TENSOR
from fx_lsp.model import Remark, Span
from fx_lsp.tracer.analyses.untrained import assignments
from fx_lsp.tracer.run.checks.new_layers import leaves

_OWN = frozenset(vars(nn.Module()))
MAX_DEPTH = 4
"""The most levels of nested collections."""
_OWNERS = dict, list, tuple, set, CellType
"""What holds the attributes of objects, elements, default arguments and variables of inner functions."""
_COLLECTIONS = frozenset({"list", "tuple", "dict", "set", "sorted", "reversed", "zip"})
"""Calls that only combine existing objects."""


def unregistered(root: nn.Module, used: Collection[int], tree: ast.Module, file: str) -> Iterator[Remark]:
    """Yield a remark for each attribute with tensors that affect a result and that `root` does not register.

    `used` are the ids of the tensors that the call read. If other code of the file reads the attribute, except for the
    module's constructor and call, it may pass the tensors to an optimizer: then there is no remark, nor for constructor
    arguments.
    """
    registered = set(map(id, root.parameters()))
    for part in root.modules():
        for attribute, value in vars(part).items():
            is_computed = id(value) in used and _is_of_lost_parameter(value)
            is_hidden = is_computed or any(_is_hidden(tensor, used, registered) for tensor in _tensors(value))
            if attribute in _OWN or not is_hidden:
                continue
            definition = next((d for d in _definitions(type(part), tree) if attribute in assignments(d, file)), None)
            if (
                definition is None
                or _is_given(definition, attribute)
                or _is_read_elsewhere(attribute, definition, tree)
            ):
                continue
            yield _remark(attribute, value, assignments(definition, file)[attribute])


def _is_hidden(tensor: torch.Tensor, used: Collection[int], registered: Collection[int]) -> bool:
    return tensor.requires_grad and tensor.is_leaf and id(tensor) in used and id(tensor) not in registered


def _is_of_lost_parameter(value: Any) -> bool:
    """Return True for the result of an operation on parameters that no object has: `nn.Parameter(w) * 0.02`."""
    parameters = [*leaves([value])] if isinstance(value, torch.Tensor) else []
    if not parameters or not all(isinstance(parameter, nn.Parameter) for parameter in parameters):
        return False
    return not any(isinstance(owner, _OWNERS) for owner in gc.get_referrers(*parameters) if owner is not parameters)


def _parts(value: Any, depth: int = MAX_DEPTH) -> Iterator[Any]:
    """Yield the items of nested lists, tuples, sets and dictionaries; for anything else the value itself."""
    if isinstance(value, (list, tuple, set, dict)):
        for part in (value.values() if isinstance(value, dict) else value) if depth > 0 else ():
            yield from _parts(part, depth - 1)
    else:
        yield value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for part in _parts(value):
        if isinstance(part, nn.Module):
            yield from part.parameters()
        elif isinstance(part, torch.Tensor):
            yield part


def _remark(attribute: str, value: Any, span: Span) -> Remark:
    if isinstance(value, torch.Tensor):
        return (PLAIN_TENSOR if value.is_leaf else COMPUTED_TENSOR).remark(span, attribute=attribute)
    has_modules = any(isinstance(part, nn.Module) for part in _parts(value))
    items = "layers" if has_modules else "parameters"
    replacement = f"{'Module' if has_modules else 'Parameter'}{'Dict' if isinstance(value, dict) else 'List'}"
    return PLAIN_CONTAINER.remark(
        span, attribute=attribute, container=type(value).__name__, items=items, replacement=replacement
    )


def _definitions(cls: type, tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Yield the definitions in a file of a class and of its bases."""
    by_name = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return (by_name[base.__name__] for base in cls.__mro__ if base.__name__ in by_name)


def _is_of_self(node: ast.AST, attribute: str, context: type[ast.expr_context]) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr != attribute or not isinstance(node.ctx, context):
        return False
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_given(definition: ast.ClassDef, attribute: str) -> bool:
    """Return True if a method stores its argument: the caller may have registered it."""
    for method in (node for node in definition.body if isinstance(node, ast.FunctionDef)):
        parameters = {argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)} - {"self"}
        for node in ast.walk(method):
            if isinstance(node, ast.Assign) and any(_is_of_self(t, attribute, ast.Store) for t in node.targets):
                return not parameters.isdisjoint(_names_put_together(node.value))
    return False


def _names_put_together(node: ast.AST) -> set[str]:
    """Return the variables of an expression, except those that a call computes with."""
    if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _COLLECTIONS):
        return set()
    names = {node.id} if isinstance(node, ast.Name) else set[str]()
    return names.union(*map(_names_put_together, ast.iter_child_nodes(node)))


def _is_read_elsewhere(attribute: str, definition: ast.ClassDef, tree: ast.Module) -> bool:
    """Return True if code reads the attribute that neither `__init__` nor `forward` reaches within the class.

    Attributes of `self` in another class are different.
    """
    methods = {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}
    reached, waiting = set[str](), ["__init__", "forward"]
    while waiting:
        name = waiting.pop()
        if name in methods and name not in reached:
            reached.add(name)
            waiting += [node.attr for node in ast.walk(methods[name]) if isinstance(node, ast.Attribute)]
    inside = {id(node) for name in reached for node in ast.walk(methods[name])}
    own = {id(node) for node in ast.walk(definition)}
    reads = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))
    return any(
        node.attr == attribute
        and id(node) not in inside
        and (id(node) in own or not _is_of_self(node, attribute, ast.Load))
        for node in reads
    )
