"""Find a target's parameters and its header by syntax alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from fx_lsp.features.source.expressions import FunctionNode, parse_definition
from fx_lsp.model import Span, Target
from fx_lsp.syntax import unparse

_PLAIN_DECORATORS = frozenset({"staticmethod", "classmethod", "torch", "functools"})


@dataclass(frozen=True)
class Parameter:
    """Describe one parameter; `annotation` and `default` are source text, "" if missing. `span` is that of its name."""

    name: str
    annotation: str = ""
    default: str = ""
    span: Span | None = None


@dataclass(frozen=True)
class Parameters:
    """Hold the visible parameters. Unless `complete`, there may be others: `**kwargs`, inheritance."""

    seen: tuple[Parameter, ...] = ()
    complete: bool = False

    def __contains__(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.seen)


@dataclass(frozen=True)
class TargetSignature:
    """Hold the parameters of a target's call, and of its constructor: None for functions."""

    call: Parameters
    init: Parameters | None
    headers: tuple[tuple[int, int], ...]
    """First and last line of each header: decorators, `def` or `class`; for a module also its `forward`."""


def signature_of(text: str, target: Target) -> TargetSignature | None:
    """Return the parameters in the text of a definition; None if it does not parse."""
    tree = parse_definition(text, target.span)
    if tree is None:
        return None
    offset = target.span.line - 1
    node = next((n for n in _definitions(tree) if n.lineno + offset == target.name_span.line), None)
    if isinstance(node, ast.ClassDef):
        own = {n.name: n for n in node.body if isinstance(n, FunctionNode)}
        forward, init = own.get("forward"), own.get("__init__")
        parts = [_header(n, offset) for n in (node, forward) if n is not None]
        return TargetSignature(
            _parameters(forward, target.file, offset, bound=True),
            _parameters(init, target.file, offset, bound=True),
            tuple(parts),
        )
    if node is None:
        return None
    bound = target.kind == "method" and "staticmethod" not in map(_root, node.decorator_list)
    call = _parameters(node, target.file, offset, bound)
    return TargetSignature(call, Parameters() if target.kind == "method" else None, (_header(node, offset),))


def parameter_at(text: str, target: Target, line: int, col: int) -> tuple[str, Span] | None:
    """Return the parameter whose name is at a position, in the notation of inputs (`x`, `init.dim`), and the name's
    span.
    """
    signature = signature_of(text, target)
    if signature is None:
        return None
    groups = (("", signature.call), ("init.", signature.init or Parameters()))
    for prefix, parameters in groups:
        for parameter in parameters.seen:
            span = parameter.span
            if span is not None and span.line == line and span.col <= col <= span.end_col:
                return prefix + parameter.name, span
    return None


def _definitions(tree: ast.AST) -> Iterator[FunctionNode | ast.ClassDef]:
    return (n for n in ast.walk(tree) if isinstance(n, (*_FUNCTIONS, ast.ClassDef)))


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _header(node: FunctionNode | ast.ClassDef, offset: int) -> tuple[int, int]:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    parts = [part for part in ast.iter_child_nodes(node) if part not in node.body]
    ends = [getattr(inner, "end_lineno", None) or 0 for part in parts for inner in ast.walk(part)]
    return first + offset, max([node.lineno, *ends]) + offset


def _parameters(node: FunctionNode | None, file: str, offset: int, bound: bool) -> Parameters:
    if node is None:
        return Parameters()
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    padded = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = list(zip(positional, padded, strict=True))[1 if bound else 0 :]
    if arguments.vararg is not None:
        pairs.append((arguments.vararg, None))
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    plain = all(_root(decorator) in _PLAIN_DECORATORS for decorator in node.decorator_list)
    seen = tuple(_parameter(arg, default, file, offset) for arg, default in pairs)
    return Parameters(seen, complete=plain and arguments.kwarg is None)


def _parameter(arg: ast.arg, default: ast.expr | None, file: str, offset: int) -> Parameter:
    line, end = arg.lineno + offset, arg.col_offset + len(arg.arg.encode())
    annotation = "" if arg.annotation is None else unparse(arg.annotation)
    shown = "" if default is None else unparse(default)
    return Parameter(arg.arg, annotation, shown, Span(file, line, arg.col_offset, line, end))


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Call, ast.Attribute)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
