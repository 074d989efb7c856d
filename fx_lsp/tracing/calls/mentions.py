"""Collect the names that each function, method and class of a file mentions, and what the file imports. Reads syntax
only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fx_lsp.syntax import DEFINITIONS, FUNCTIONS, blocks_of, is_main_guard
from fx_lsp.tracing.source.parsing import walk

_WORDS = re.compile(r"[\w.:/-]{1,120}")
"""Texts that may be names: of a class in a configuration, of an attribute to get."""
_IMPORTING = frozenset({"import_module", "__import__", "spec_from_file_location", "SourceFileLoader", "locate"})
"""Functions of Python that import a module by a name or a path which may be computed."""


@dataclass(frozen=True)
class Import:
    """Describe `from module import name`, with `level` leading dots; `name` is "" for `import module`."""

    module: str
    name: str
    level: int


@dataclass(frozen=True)
class ClassMentions:
    """Hold the names in the header and the body of a class, those of its `bases`, and those in each of its methods."""

    header: frozenset[str]
    bases: frozenset[str]
    methods: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Mentions:
    """Hold the names that the parts of a file mention: its top level, its guard, each function and each class.

    Those in `called` are called at the top level. Definitions that are `decorated` may be called through a table that
    the decorator writes. `origins` are the packages that names of the file come from. `computed` are the modules that
    it imports by names which it computes, each as the beginning of its name that is certain: `models.` of
    `import_module("models." + name)`.
    """

    top: frozenset[str]
    called: frozenset[str]
    guard: frozenset[str]
    functions: Mapping[str, frozenset[str]]
    classes: Mapping[str, ClassMentions]
    decorated: frozenset[str]
    imports: tuple[Import, ...]
    origins: Mapping[str, str]
    computed: frozenset[str]

    @cached_property
    def names(self) -> frozenset[str]:
        """Return all names that the file mentions."""
        methods = (names for cls in self.classes.values() for names in (cls.header, *cls.methods.values()))
        return self.top.union(self.guard, *self.functions.values(), *methods)


def mentions_of(tree: ast.Module) -> Mentions:
    """Return the names that the parts of a file mention."""
    imports = [node for node in walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    renamed = {alias.asname: alias.name for node in imports for alias in node.names if alias.asname}
    top: list[ast.AST] = []
    guard: list[ast.AST] = []
    functions = dict[str, frozenset[str]]()
    classes = dict[str, ClassMentions]()
    decorated = set[str]()
    for node in _statements(tree.body):
        if isinstance(node, DEFINITIONS):
            top += node.decorator_list
            decorated |= {node.name} if node.decorator_list else set()
        if isinstance(node, FUNCTIONS):
            functions[node.name] = functions.get(node.name, frozenset()) | mentioned([node.args, *node.body], renamed)
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = _class_mentions(node, renamed)
        elif is_main_guard(node):
            guard.append(node)
        else:
            top.append(node)
    return Mentions(
        mentioned(top, renamed),
        mentioned([part.func for node in top for part in walk(node) if isinstance(part, ast.Call)], renamed),
        mentioned(guard, renamed),
        functions,
        classes,
        frozenset(decorated),
        tuple(_imports(imports)),
        {name: package for node in imports for name, package in _origins(node)},
        frozenset(_computed(tree)),
    )


def _statements(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a top level; of a compound statement with definitions those inside of it."""
    for node in block:
        is_compound = not isinstance(node, DEFINITIONS) and not is_main_guard(node)
        inner = [part for block in (blocks_of(node) if is_compound else []) for part in block]
        if any(isinstance(part, DEFINITIONS) for part in walk(*inner)):
            yield from _statements(inner)
        else:
            yield node


def _class_mentions(node: ast.ClassDef, renamed: Mapping[str, str]) -> ClassMentions:
    methods = [part for part in node.body if isinstance(part, FUNCTIONS)]
    rest = [part for part in node.body if part not in methods]
    decorators = [decorator for method in methods for decorator in method.decorator_list]
    parts = {method.name: mentioned([method.args, *method.body], renamed) for method in methods}
    bases = [*node.bases, *(keyword.value for keyword in node.keywords)]
    of_bases = frozenset(name for base in bases for name in _last_names(base))
    return ClassMentions(mentioned([*bases, *rest, *decorators], renamed), of_bases, parts)


def _last_names(node: ast.expr) -> Iterator[str]:
    """Yield the names of an expression that a class may have: `Module` of `nn.Module`."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield node.id if isinstance(node, ast.Name) else node.attr
    else:
        yield from (part.id for part in walk(node) if isinstance(part, ast.Name))


def mentioned(nodes: Iterable[ast.AST], renamed: Mapping[str, str] = {}) -> frozenset[str]:
    """Return the names, attributes and words of texts in some code, without imports, annotations and docstrings.

    `renamed` are the original names of imports by those that the file gives them.
    """
    names, waiting = set[str](), list(nodes)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Name(name):
                names |= {name, *renamed.get(name, "").split(".")}
            case ast.Attribute(_, name):
                names.add(name)
            case ast.Constant(str(text)) if _WORDS.fullmatch(text):
                names |= {*re.split(r"\W", text)}
            case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assign([ast.Name("__all__")]):
                continue
            case _:
                pass
        for field in node._fields:
            value: Any = getattr(node, field, None) if field not in ("annotation", "returns") else None
            waiting += [part for part in _list_of(value) if isinstance(part, ast.AST)]
    return frozenset(names - {""})


def _list_of(value: Any) -> list[Any]:
    return [*value] if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownArgumentType]


def _imports(nodes: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[Import]:
    for node in nodes:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                yield Import(node.module or "", alias.name, node.level)
            else:
                yield Import(alias.name, "", 0)


def _computed(tree: ast.Module) -> Iterator[str]:
    """Yield the beginnings of the names by which a file imports with functions."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in _IMPORTING:
            for argument in node.args[:1] or [ast.Constant("")]:
                yield from _beginnings(argument)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _beginnings(text: ast.expr) -> Iterator[str]:
    """Yield the beginnings of the texts that an expression may be, as far as they are certain."""
    match text:
        case ast.Constant(str(value)):
            yield value
        case ast.JoinedStr([ast.Constant(str(value)), *_]):
            yield value
        case ast.BinOp(left, ast.Add()):
            yield from _beginnings(left)
        case ast.BinOp(ast.Constant(str(value)), ast.Mod()):
            yield value.partition("%")[0]
        case ast.Call(ast.Attribute(ast.Constant(str(value)), "format")):
            yield value.partition("{")[0]
        case ast.IfExp(_, one, other):
            yield from (*_beginnings(one), *_beginnings(other))
        case _:
            yield ""


def _origins(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, each with the package that it comes from; "" for a relative import."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, "" if node.level else (node.module or "").partition(".")[0]
        else:
            package = alias.name.partition(".")[0]
            yield alias.asname or package, package
