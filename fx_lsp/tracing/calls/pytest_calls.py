"""Build calls of test functions as pytest would: with the first set of parameters, and fixtures of the same file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.scopes import loads_of

_RAISES = re.compile(r"raises|assertRaises\w*|deprecated_call")
_MAX_DEPTH = 5
_SETUPS = ("setUp", "setup_method", "setup")


@dataclass(frozen=True)
class Case:
    """Hold one call of a test, as an expression in its module.

    `names` are the names that it reads there; `fixtures` are to be defined without their decorators.
    """

    text: str
    names: frozenset[str] = frozenset()
    fixtures: frozenset[ast.FunctionDef] = frozenset()


def test_case(path: Sequence[ast.stmt], index: ModuleIndex) -> Case | None:
    """Return a call of the function at the start of `path`, or of the method of a test class.

    The text is empty without one. None if a parameter is not a fixture of the module.
    """
    fixtures = fixtures_of(index)
    match path[0], path[1] if len(path) > 1 else None:
        case ast.FunctionDef() as function, _:
            return _call(function, required(function), fixtures, _MAX_DEPTH)
        case ast.ClassDef() as owner, ast.FunctionDef() as method:
            call = _call(method, required(method)[1:], fixtures, _MAX_DEPTH)
            return None if call is None else replace(call, text=_on_instance(owner, method.name, call.text))
        case _:
            return Case("")


def fixtures_of(index: ModuleIndex) -> dict[str, ast.FunctionDef]:
    """Return the fixtures of a module by the names that tests use."""
    return {
        _fixture_name(node): node
        for node in index.functions.values()
        if isinstance(node, ast.FunctionDef) and any(_last_name(d) == "fixture" for d in node.decorator_list)
    }


def is_test_class(node: ast.ClassDef) -> bool:
    """Return True if pytest or unittest collects tests of a class."""
    return node.name.startswith("Test") or _is_unittest(node)


def is_setup(node: ast.stmt) -> bool:
    """Return True if a statement of a test class defines the set-up of each test."""
    return isinstance(node, ast.FunctionDef) and node.name in _SETUPS


def expects_error(node: ast.AST) -> bool:
    """Return True for `pytest.raises(…)` or the like: the code inside is meant to fail."""
    return isinstance(node, ast.Call) and _RAISES.fullmatch(_last_name(node)) is not None


def required(function: ast.FunctionDef) -> list[str]:
    """Return the parameters without defaults."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [
        *(a.arg for a in positional[: len(positional) - len(arguments.defaults)]),
        *(a.arg for a, default in keywords if default is None),
    ]


def _is_unittest(node: ast.ClassDef) -> bool:
    return any(_last_name(base).endswith("TestCase") for base in node.bases)


def _on_instance(owner: ast.ClassDef, name: str, call: str) -> str:
    """Return a call of a test method, after the set-up of its instance."""
    steps = [
        f"t.{node.name}({', '.join('None' for _ in required(node)[1:])})"
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and is_setup(node)
    ]
    instance = f"{owner.name}({name!r})" if _is_unittest(owner) else f"{owner.name}()"
    return f"(lambda t: ({', '.join([*steps, f't.{call}'])}))({instance})"


def _call(
    function: ast.FunctionDef, parameters: list[str], fixtures: dict[str, ast.FunctionDef], depth: int
) -> Case | None:
    values = {name: text for names, text in _parametrized(function) for name, text in _each(names, text)}
    names = (
        {n.id for d in function.decorator_list for n in walk(d) if isinstance(n, ast.Name)} if values else set[str]()
    )
    used: set[ast.FunctionDef] = set()
    for name in parameters:
        if name in values:
            continue
        fixture = fixtures.get(name)
        value = _call(fixture, required(fixture), fixtures, depth - 1) if fixture is not None and depth else None
        if fixture is None or value is None:
            return None
        yields = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(*fixture.body))
        values[name] = f"next({value.text})" if yields else value.text
        used |= {fixture, *value.fixtures}
        names |= {*value.names, *(loaded for statement in fixture.body for loaded in loads_of(statement))}
    arguments = ", ".join(f"{name}={text}" for name, text in values.items())
    return Case(f"{function.name}({arguments})", frozenset(names), frozenset(used))


def _parametrized(function: ast.FunctionDef) -> Iterator[tuple[list[str], str]]:
    """Yield for each `parametrize` its names and the first set of values, a tuple if there are several names."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or _last_name(decorator) != "parametrize" or len(decorator.args) < 2:
            continue
        names = list(_names(decorator.args[0]))
        values = decorator.args[1]
        if isinstance(values, (ast.List, ast.Tuple)) and values.elts:
            yield names, _set(values.elts[0], len(names))
        else:
            yield names, f"next(iter({ast.unparse(values)}))"


def _set(node: ast.expr, count: int) -> str:
    if isinstance(node, ast.Call) and _last_name(node) == "param":
        values: Sequence[ast.expr] = node.args
        return ast.unparse(values[0]) if count == 1 and values else ast.unparse(ast.Tuple(list(values), ast.Load()))
    return ast.unparse(node)


def _names(node: ast.expr) -> Iterable[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [name.strip() for name in node.value.split(",") if name.strip()]
    elements = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    return [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]


def _each(names: list[str], text: str) -> Iterator[tuple[str, str]]:
    if len(names) == 1:
        yield names[0], text
    else:
        yield from ((name, f"({text})[{number}]") for number, name in enumerate(names))


def _fixture_name(node: ast.FunctionDef) -> str:
    for decorator in node.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    return node.name


def _last_name(node: ast.expr) -> str:
    """Return `raises` for `pytest.raises(ValueError)`."""
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
