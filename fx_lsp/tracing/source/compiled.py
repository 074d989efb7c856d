"""Find functions and modules that a file passes to `torch.compile`: by a decorator, in a call, or with
`module.compile()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from fx_lsp.model import Compiled
from fx_lsp.syntax import FUNCTIONS, unparse
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.tensor_code import dotted

_COMPILE = "torch.compile"
_CALLS = frozenset({"forward", "__call__"})
"""Methods that are equivalent to calling the module."""
_SAME = frozenset(
    {"to", "cuda", "cpu", "xpu", "type", "float", "double", "half", "bfloat16", "to_empty"}
    | {"train", "eval", "requires_grad_", "apply"}
)
"""Methods of a module that return it."""


def compiled_targets(index: ModuleIndex) -> Mapping[str, Compiled]:
    """Return the functions, modules and methods of the file that it compiles, by their qualified names."""
    if not any(name.partition(".")[0] == "torch" for name in index.all_imports.values()):
        return {}
    held = _held(index)
    compiled = dict(_decorated(index))
    for node in walk(index.tree):
        if not isinstance(node, ast.Call):
            continue
        if dotted(node.func, index.all_imports) == _COMPILE and node.args:
            name = _target(node.args[0], index, held)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "compile" and not node.args:
            name = _target(node.func.value, index, held)
            name = name if name in index.classes and not _has_compile(index.classes[name]) else ""
        else:
            continue
        if name:
            compiled[name] = "whole" if "whole" in (compiled.get(name), _how(node)) else "parts"
    return compiled


def _has_compile(definition: ast.ClassDef) -> bool:
    """Return True if a class defines a method `compile`."""
    return any(isinstance(node, FUNCTIONS) and node.name == "compile" for node in definition.body)


def _decorated(index: ModuleIndex) -> Iterator[tuple[str, Compiled]]:
    """Yield the functions and methods that a decorator compiles."""
    for definition in index.body:
        owner = definition if isinstance(definition, ast.ClassDef) else None
        for function in owner.body if owner is not None else [definition]:
            for decorator in function.decorator_list if isinstance(function, FUNCTIONS) else ():
                if isinstance(function, FUNCTIONS) and _compiles(decorator, index.all_imports):
                    yield function.name if owner is None else _method(owner.name, function.name), _how(decorator)


def _compiles(decorator: ast.expr, imports: Mapping[str, str]) -> bool:
    """Return True if a decorator is `torch.compile`, a call of it, or a `partial` of it."""
    if not isinstance(decorator, ast.Call):
        return dotted(decorator, imports) == _COMPILE
    called = dotted(decorator.func, imports)
    wrapped = dotted(decorator.args[0], imports) if decorator.args else None
    return called == _COMPILE or (called == "functools.partial" and wrapped == _COMPILE)


def _how(node: ast.expr) -> Compiled:
    keywords = node.keywords if isinstance(node, ast.Call) else ()
    is_whole = any(k.arg == "fullgraph" and isinstance(k.value, ast.Constant) and k.value.value for k in keywords)
    return "whole" if is_whole else "parts"


def _held(index: ModuleIndex) -> Mapping[str, str]:
    """Return the classes of the file whose instances variables and attributes hold; variables of several classes are
    left out.
    """
    held: dict[str, set[str]] = {}
    for node in walk(index.tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        name = _target(node.value, index, {})
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if name in index.classes:
                held.setdefault(unparse(target), set()).add(name)
    return {text: next(iter(names)) for text, names in held.items() if len(names) == 1}


def _target(node: ast.expr, index: ModuleIndex, held: Mapping[str, str]) -> str:
    """Return the target that an expression evaluates to: `f`, `Net(8).cuda()`, `model` or `model.loss`; "" for any
    other.
    """
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        node = node.func.value
    if (text := unparse(node)) in held:
        return held[text]
    if isinstance(node, ast.Call):
        return node.func.id if isinstance(node.func, ast.Name) and node.func.id in index.classes else ""
    if isinstance(node, ast.Name):
        return node.id if node.id in index.functions else ""
    if isinstance(node, ast.Attribute) and (owner_class := held.get(unparse(node.value))):
        return _method(owner_class, node.attr)
    return ""


def _method(owner: str, name: str) -> str:
    return owner if name in _CALLS else f"{owner}.{name}"
