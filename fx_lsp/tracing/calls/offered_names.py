"""Find names with values in a project: argument parsers, dictionaries, settings classes, configuration files.

Reads syntax only; the tracer reads YAML, JSON and TOML.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fx_lsp.configurations import UNKNOWN, Reads, Values, fitting, open_names
from fx_lsp.model import Configuration
from fx_lsp.syntax import DEFINITIONS, FUNCTIONS
from fx_lsp.tracing.calls.config_classes import fields_of
from fx_lsp.tracing.calls.project_files import ProjectFile, configuration_files, parsed_file, source_files, text_of
from fx_lsp.tracing.source.parsing import module_name, walk

MAX_CONFIGURATIONS = 6
"""The most configurations in a request for one parameter."""
_DEFAULTS = re.compile(r"^defaults:", re.MULTILINE)
"""The first key of a configuration file that is composed of others."""


@dataclass(frozen=True)
class _Offered:
    """Hold names with values at a line of a file; `name` is that of their class, if any."""

    line: int
    values: Values
    kind: str
    name: str = ""


def configurations_for(
    reads: Reads, file: str, roots: Sequence[str], overlays: Mapping[str, str]
) -> tuple[Configuration, ...]:
    """Return the configurations of the project that have all read names, the most complete first, then the nearest."""
    required = frozenset(reads.required())
    fitting_parts: list[tuple[int, int, Configuration]] = []
    for distance, path in enumerate([file, *source_files(roots, file)]):
        text = text_of(path, overlays)
        if text is None or not _mentions_all(text, required):
            continue
        parsed = parsed_file(path, text)
        for offered in _offered(parsed) if parsed is not None else ():
            part = fitting(offered.values, reads)
            if part is None or (offered.kind == "class" and (path == file or part is not offered.values)):
                continue
            module = module_name(path)[0] if offered.kind == "class" else ""
            shown, is_arguments = _shown(path, roots), offered.kind == "arguments"
            place = Configuration(path, offered.line, shown, _literal(part), module, offered.name, is_arguments)
            fitting_parts.append((open_names(part, reads), distance, place))
    documents = ((path, text_of(path, {}) or "") for path in configuration_files(roots, file))
    paths = [path for path, text in documents if _DEFAULTS.search(text) or _mentions_all(text, required)]
    read = [(0, 0, Configuration(path, 0, _shown(path, roots))) for path in paths]
    ordered = sorted([*fitting_parts, *read], key=lambda item: item[:2])
    return tuple(configuration for _, _, configuration in ordered[:MAX_CONFIGURATIONS])


def _literal(values: Values) -> str:
    """Return the values as a Python literal, with `...` for unwritten ones."""
    return repr(values).replace("Ellipsis", "...")


def _mentions_all(text: str, names: Collection[str]) -> bool:
    return all(name in text or name.replace("_", "-") in text for name in names)


def _shown(path: str, roots: Sequence[str]) -> str:
    """Return a file's path for people: relative to the outermost root that contains it."""
    above = [root for root in roots if path.startswith(root + os.sep)]
    return os.path.relpath(path, min(above, key=len)) if above else Path(path).name


def _offered(file: ProjectFile) -> Iterator[_Offered]:
    constants = _constants(file.tree)
    scopes: list[ast.Module | ast.FunctionDef | ast.AsyncFunctionDef]
    scopes = [file.tree, *(node for node in walk(file.tree) if isinstance(node, FUNCTIONS))]
    arguments: dict[str, Any] = {}
    line = 0
    for scope in scopes:
        statements = list(_statements(scope.body))
        own = _arguments(statements, constants)
        if own:
            arguments |= own
            line = line or statements[0].lineno
            yield _Offered(statements[0].lineno, own, "arguments")
        yield from _settings(statements, constants)
    if arguments:
        yield _Offered(line, arguments | _added(file.tree, arguments, constants), "arguments")
    for node in file.graph.index.classes.values():
        if not _is_module(node):
            yield _Offered(node.lineno, dict.fromkeys(fields_of(node), UNKNOWN), "class", node.name)


def _is_module(node: ast.ClassDef) -> bool:
    """Return True for a class that computes: it has a `forward`, or a base called `Module`."""
    bases = {part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in node.bases}
    return "Module" in bases or any(getattr(member, "name", "") == "forward" for member in node.body)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a scope in order, including those in blocks."""
    for node in body:
        if isinstance(node, DEFINITIONS):
            continue
        yield node
        for block in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, block, []))


def _arguments(statements: Sequence[ast.stmt], constants: Values) -> dict[str, Any]:
    """Return the attributes that the argument parser of a scope produces, with their default values."""
    arguments: dict[str, Any] = {}
    for node in statements:
        call = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        keywords = {k.arg: k.value for k in call.keywords if k.arg is not None}
        if call.func.attr == "set_defaults":
            arguments |= {name: _value(value, constants) for name, value in keywords.items()}
        elif call.func.attr == "add_argument":
            names = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            name = _destination(names, keywords.get("dest"))
            if name:
                arguments[name] = _default(names, keywords, constants)
    return arguments


def _destination(names: Sequence[str], destination: ast.expr | None) -> str:
    if isinstance(destination, ast.Constant) and isinstance(destination.value, str):
        return destination.value
    long = [name for name in names if name.startswith("--")] or list(names)
    return long[0].lstrip("-").replace("-", "_") if long else ""


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str}


def _default(names: Sequence[str], keywords: Mapping[str, ast.expr], constants: Values) -> Any:
    """Return the value of an argument that is missing on the command line."""
    if "default" in keywords:
        default, kind = _value(keywords["default"], constants), keywords.get("type")
        convert = _CONVERSIONS.get(kind.id) if isinstance(kind, ast.Name) and isinstance(default, str) else None
        try:
            return convert(default) if convert is not None else default
        except ValueError:
            return UNKNOWN
    action = keywords.get("action")
    if isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
        return action.value == "store_false"
    required = keywords.get("required")
    positional = bool(names) and not names[0].startswith("-")
    if positional or (isinstance(required, ast.Constant) and required.value):
        choices = _value(keywords["choices"], constants) if "choices" in keywords else UNKNOWN
        return next(iter(cast("list[Any]", choices)), UNKNOWN) if isinstance(choices, (list, tuple)) else UNKNOWN
    return None


def _added(tree: ast.Module, arguments: Values, constants: Values) -> dict[str, Any]:
    """Return the attributes that a program adds to its arguments: `args.vocab_size = len(words)`."""
    attributes = [n for n in walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    holders = {cast("ast.Name", n.value).id for n in attributes if isinstance(n.ctx, ast.Load) and n.attr in arguments}
    added: dict[str, Any] = {}
    for node in walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and _root(target) in holders and target.attr not in arguments:
                added[target.attr] = _value(node.value, constants) if isinstance(node, ast.Assign) else UNKNOWN
    return added


def _settings(statements: Sequence[ast.stmt], constants: Values) -> Iterator[_Offered]:
    """Yield the dictionaries and objects that a scope fills: `config = {…}`, `config = Config(dim=64)`, `config.dim =
    64`.
    """
    settings: dict[str, dict[str, Any]] = {}
    lines: dict[str, int] = {}
    for node in statements:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        for target in targets if value is not None else ():
            assert value is not None
            filled = _value(value, constants)
            if isinstance(target, ast.Name):
                settings.pop(target.id, None)
                empty = filled is UNKNOWN and isinstance(value, ast.Call) and not value.args and not value.keywords
                if isinstance(filled, dict) or empty:
                    settings[target.id] = cast("dict[str, Any]", filled) if isinstance(filled, dict) else {}
                    lines[target.id] = node.lineno
            elif (path := _path(target)) and path[0] in settings:
                _put(settings[path[0]], path[1:], {} if filled is UNKNOWN and _is_empty_call(value) else filled)
    yield from (_Offered(lines[name], values, "settings") for name, values in settings.items() if values)


def _is_empty_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and not node.args and not node.keywords


def _path(node: ast.AST) -> list[str]:
    """Return `["cfg", "model", "dim"]` for `cfg.model.dim` and `cfg["model"]["dim"]`; empty for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    inner = _path(node.value) if isinstance(node, (ast.Attribute, ast.Subscript)) else []
    if not inner:
        return []
    if isinstance(node, ast.Attribute):
        return [*inner, node.attr]
    key = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else None
    return [*inner, key] if isinstance(key, str) else []


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        inner = values.get(name)
        if not isinstance(inner, dict):
            inner = values[name] = dict[str, Any]()
        values = cast("dict[str, Any]", inner)
    values[path[-1]] = value


def _root(node: ast.Attribute) -> str:
    return node.value.id if isinstance(node.value, ast.Name) else ""


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the numbers and texts that a module binds at its top level."""
    constants: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _value(node.value, constants)
            if isinstance(value, (bool, int, float, str, tuple)):
                constants[node.targets[0].id] = value
    return constants


_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Div: lambda left, right: left / right,
}


def _value(node: ast.expr, constants: Values) -> Any:
    """Return the value of a literal expression; UNKNOWN for any other."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, (bool, int, float, str, type(None))) else UNKNOWN
    if isinstance(node, ast.Name):
        return constants.get(node.id, UNKNOWN)
    if isinstance(node, (ast.List, ast.Tuple)):
        items = [_value(item, constants) for item in node.elts]
        return UNKNOWN if UNKNOWN in items else items if isinstance(node, ast.List) else tuple(items)
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        return {k: _value(v, constants) for k, v in zip(keys, node.values, strict=True) if isinstance(k, str)}
    if isinstance(node, (ast.UnaryOp, ast.BinOp)):
        return _computed(node, constants)
    return _value_of_call(node, constants) if isinstance(node, ast.Call) else UNKNOWN


def _computed(node: ast.UnaryOp | ast.BinOp, constants: Values) -> Any:
    """Return the result of simple arithmetic on numbers: `4 * 48`, `-1`; UNKNOWN for any other."""
    operands = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
    numbers = [_value(operand, constants) for operand in operands]
    if not all(isinstance(number, (int, float)) for number in numbers):
        return UNKNOWN
    if isinstance(node, ast.UnaryOp):
        return -numbers[0] if isinstance(node.op, ast.USub) else UNKNOWN
    compute = _ARITHMETIC.get(type(node.op))
    try:
        return compute(*numbers) if compute is not None else UNKNOWN
    except ZeroDivisionError:
        return UNKNOWN


_CALLED = re.compile(r"dict$|[A-Z]")


def _value_of_call(node: ast.Call, constants: Values) -> Any:
    """Return the keyword arguments of a call that creates settings: `dict(dim=64)`, `Config(dim=64)`."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if not _CALLED.match(name) or len(node.args) > 1 or any(k.arg is None for k in node.keywords):
        return UNKNOWN
    first: Any = _value(node.args[0], constants) if node.args else {}
    if not isinstance(first, dict) or not (first or node.keywords):
        return UNKNOWN
    return {**cast("dict[str, Any]", first), **{k.arg: _value(k.value, constants) for k in node.keywords}}
