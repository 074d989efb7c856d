"""Build calls of the functions of a file that need no arguments, and of tests as pytest would: with the first set of
parameters, and fixtures of the same file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fx_lsp.syntax import FUNCTIONS, parse_expression
from fx_lsp.tracing.calls.mentions import mentioned
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import split_lines, walk

_MAX_DEPTH = 5
_SETUPS = ("setUp", "setup_method", "setup")


@dataclass(frozen=True)
class Entry:
    """Hold a call of one function or test of a file, as an expression in its module, and the names in it."""

    call: str
    names: frozenset[str]
    is_test: bool


def entries_of(index: ModuleIndex) -> Iterator[Entry]:
    """Yield the calls that run each function of a file which needs no more than fixtures, and each test of a class."""
    fixtures = fixtures_of(index)
    for name, function in index.functions.items():
        if isinstance(function, ast.FunctionDef) and name not in {node.name for node in fixtures.values()}:
            call = _call(function, required(function), fixtures, _MAX_DEPTH)
            if call is not None:
                yield _entry(call, name.startswith("test"))
    for owner in filter(is_test_class, index.classes.values()):
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name.startswith("test"):
                call = _call(method, required(method)[1:], fixtures, _MAX_DEPTH)
                if call is not None:
                    yield _entry(_on_instance(owner, method.name, call), True)


def _entry(call: str, is_test: bool) -> Entry:
    return Entry(call, mentioned([parse_expression(call)]), is_test)


def undecorated(text: str, index: ModuleIndex) -> str:
    """Return the text of a file in which the decorators that only pytest understands are left empty."""
    lines = split_lines(text)
    for node in walk(index.tree):
        for decorator in node.decorator_list if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else ():
            if _is_of_pytest(decorator):
                first, last = decorator.lineno - 1, (decorator.end_lineno or decorator.lineno) - 1
                lines[first : last + 1] = [""] * (last + 1 - first)
    return "\n".join(lines)


def _is_of_pytest(decorator: ast.expr) -> bool:
    """Return True for `@pytest.fixture`, `@fixture(…)`, `@pytest.mark.parametrize(…)`."""
    return _last_name(decorator) == "fixture" or any(
        isinstance(part, ast.Name) and part.id == "pytest" for part in walk(decorator)
    )


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
) -> str | None:
    """Return a call of a function; None if a parameter is not a fixture of the module."""
    values = {name: text for names, text in _parametrized(function) for name, text in _each(names, text)}
    for name in parameters:
        if name in values:
            continue
        fixture = fixtures.get(name)
        value = _call(fixture, required(fixture), fixtures, depth - 1) if fixture is not None and depth else None
        if fixture is None or value is None:
            return None
        yields = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in walk(*fixture.body))
        values[name] = f"next({value})" if yields else value
    return f"{function.name}({', '.join(f'{name}={text}' for name, text in values.items())})"


def _parametrized(function: ast.FunctionDef) -> Iterator[tuple[list[str], str]]:
    """Yield for each `parametrize` its names and the first set of values, a tuple if there are several names."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call) or _last_name(decorator) != "parametrize" or len(decorator.args) < 2:
            continue
        names = list(_names(decorator.args[0]))
        values = decorator.args[1]
        if isinstance(values, (ast.List, ast.Tuple)) and values.elts and not isinstance(values.elts[0], ast.Starred):
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
