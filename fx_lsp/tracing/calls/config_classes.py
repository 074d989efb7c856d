"""Find the classes of a file that may be the type of a parameter with known uses. Reads syntax only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from fx_lsp.syntax import FUNCTIONS, FunctionNode
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk


def fitting_classes(index: ModuleIndex, name: str) -> set[str]:
    """Return the names of the classes that have every attribute read of a parameter of the target `name`, and of the
    modules that may be a parameter that is called.

    The parameters are those of the function, of the class's constructor, or of both for a method. If no class of the
    file has the attributes read of a stored constructor argument, imported classes may.
    """
    first = index.definitions.get(name.partition(".")[0])
    functions = list(_functions(first, name.split(".")))
    called = index.whole_modules if _calls_parameter(index, first, functions) else frozenset[str]()
    return {*called} - {name.partition(".")[0]} | _with_attributes(index, first, functions)


def _with_attributes(index: ModuleIndex, first: ast.stmt | None, functions: Iterable[FunctionNode]) -> set[str]:
    wanted = [attributes for function in functions for attributes in _attributes_read(function)]
    kept = _attributes_of_kept(first) if isinstance(first, ast.ClassDef) else []
    if not wanted and not kept:
        return set()
    classes = {name: fields_of(node) for name, node in index.classes.items()}
    fitting = {name for name, fields in classes.items() if any(attributes <= fields for attributes in wanted + kept)}
    if all(any(attributes <= fields for fields in classes.values()) for attributes in kept):
        return fitting
    return fitting | set(_imported_classes(index.tree))


def _imported_classes(tree: ast.Module) -> Iterator[str]:
    imported = (alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names)
    names = (alias.asname or alias.name for alias in imported)
    yield from (name for name in names if _CLASS_NAME.fullmatch(name))


_CLASS_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*")


def _calls_parameter(index: ModuleIndex, first: ast.stmt | None, functions: Iterable[FunctionNode]) -> bool:
    """Return True if functions of the file call a parameter of the same name as one of `functions`, or if a class calls
    one of its own, or what its constructor stores.
    """
    parameters = {name for function in functions for name in _parameters(function)}
    if not isinstance(first, ast.ClassDef) or parameters & index.called_parameters:
        return bool(parameters & index.called_parameters)
    stored = {*_kept_arguments(first)}
    for call in (node.func for node in walk(first) if isinstance(node, ast.Call)):
        match call:
            case ast.Name(called) if called in parameters:
                return True
            case ast.Attribute(ast.Name("self"), called) if called in stored:
                return True
            case _:
                pass
    return False


def _parameters(function: FunctionNode) -> Iterator[str]:
    arguments = function.args
    names = (a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
    yield from (name for name in names if name not in ("self", "cls"))


def _functions(first: ast.stmt | None, path: Sequence[str]) -> Iterator[FunctionNode]:
    if isinstance(first, FUNCTIONS):
        yield first
    elif isinstance(first, ast.ClassDef):
        wanted = {"__init__", *(path[1:2] or ["forward"])}
        yield from (node for node in first.body if isinstance(node, FUNCTIONS) and node.name in wanted)


def _attributes_read(function: FunctionNode) -> Iterator[set[str]]:
    """Yield the attributes that are read of each parameter, for parameters with any."""
    read: dict[str, set[str]] = {name: set() for name in _parameters(function)}
    for node in walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in read:
            read[node.value.id].add(node.attr)
    yield from (attributes for attributes in read.values() if attributes)


def _attributes_of_kept(definition: ast.ClassDef) -> list[set[str]]:
    """Return the attributes that methods read of the modules that a constructor takes and stores:
    `self.encoder.stem(x)`.

    Attributes of every module are ignored.
    """
    read: dict[str, set[str]] = {name: set() for name in _kept_arguments(definition)}
    for node in walk(definition) if read else ():
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Attribute):
            continue
        owner = node.value
        if isinstance(owner.value, ast.Name) and owner.value.id == "self":
            read.get(owner.attr, set()).add(node.attr)
    return [attributes - _OF_EVERY_MODULE for attributes in read.values() if attributes - _OF_EVERY_MODULE]


def _kept_arguments(definition: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes in which a constructor stores its arguments."""
    methods = (node for node in definition.body if isinstance(node, FUNCTIONS))
    constructor = next((method for method in methods if method.name == "__init__"), None)
    parameters = {a.arg for a in constructor.args.args} if constructor is not None else set[str]()
    for node in walk(constructor) if constructor is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in parameters:
            for target in node.targets:
                yield from _own_attribute(target)


_OF_EVERY_MODULE = frozenset(
    {"forward", "train", "eval", "training", "to", "cuda", "cpu", "float", "half", "double", "apply", "zero_grad"}
    | {"parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children"}
    | {"named_children", "state_dict", "load_state_dict", "requires_grad_", "register_buffer", "weight", "bias"}
)


def fields_of(definition: ast.ClassDef) -> set[str]:
    """Return the attributes of instances of a class: names bound in its body, and constructor parameters assigned to
    `self`.
    """
    fields: set[str] = set()
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            fields.add(node.target.id)
        elif isinstance(node, ast.Assign):
            fields |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, FUNCTIONS):
            fields.add(node.name)
            if node.name == "__init__":
                fields |= {part.arg for part in walk(node.args) if isinstance(part, ast.arg)}
                fields.update(*map(_own_attribute, walk(node)))
    return fields


def _own_attribute(node: ast.AST) -> set[str]:
    """Return `x` for `self.x` on the left of an assignment."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
        return {node.attr} if node.value.id == "self" else set()
    return set()
