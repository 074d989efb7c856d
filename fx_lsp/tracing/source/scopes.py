"""Find the module-level names that a top-level statement reads, binds and changes, by Python's scoping rules."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from fx_lsp.syntax import parse_expression
from fx_lsp.tracing.source.parsing import push_children, walk


def loads_of(statement: ast.stmt) -> frozenset[str]:
    """Return the module-level names that the statement, or any function in it, may read."""
    return frozenset(name for scope in _scopes(statement) for name in scope.loads if scope.is_global(name))


def binds_of(statement: ast.stmt) -> frozenset[str]:
    """Return the module-level names that the statement binds when it runs."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset({statement.name})
    return frozenset(_scopes(statement)[0].bound)


def changes_of(statement: ast.stmt) -> frozenset[str]:
    """Return the names whose object the statement changes without binding it: `NAME.attr = …`, `NAME[k] = …`,
    `@NAME.register`.
    """
    return frozenset(_changed(statement))


def effects_of(statement: ast.stmt, imported: Collection[str]) -> frozenset[str]:
    """Return the names whose objects a statement may change with a call that it makes for its effect.

    For example `NAME.eval()`, `nn.init.zeros_(NAME.weight)`. Functions called by a plain name count if they are
    `imported`.
    """
    names: set[str] = set()
    for node in _own_statements(statement):
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and (isinstance(call.func, ast.Attribute) or _root_name(call.func) in imported):
            parts = [call.func, *call.args, *(keyword.value for keyword in call.keywords)]
            names.update(name for part in parts if (name := _root_name(part)))
    return frozenset(names)


def alterations_of(definition: ast.stmt) -> frozenset[str]:
    """Return the module-level names whose object a call of the function changes: `def register(key, f): LAYERS[key] =
    f`.
    """
    altered: set[str] = set()
    for node in walk(definition) if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)) else ():
        if isinstance(node, ast.Global):
            altered.update(node.names)
        elif isinstance(node, ast.stmt) and node is not definition:
            altered.update(_changed(node), _called(node))
    return frozenset(altered & loads_of(definition))


def calls_of(statement: ast.stmt) -> frozenset[str]:
    """Return the names that the statement calls for their effect: `NAME(…)` on its own, `@NAME`, `@NAME(…)`."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        called = [node.func if isinstance(node, ast.Call) else node for node in statement.decorator_list]
    else:
        own = (node.value for node in _own_statements(statement) if isinstance(node, ast.Expr))
        called = [node.func for node in own if isinstance(node, ast.Call)]
    return frozenset(node.id for node in called if isinstance(node, ast.Name))


# fmt: off
_MUTATING_METHODS = frozenset({
    "add", "append", "appendleft", "clear", "define", "discard", "eliminate_dead_code", "erase_node", "extend",
    "extendleft", "impl", "insert", "output", "pop", "popitem", "recompile", "register", "remove", "reverse",
    "setdefault", "sort", "update",
})
# fmt: on


def alters(method: str) -> bool:
    """Return True if a method of this name may alter a container."""
    return method in _MUTATING_METHODS or method.startswith(("add_", "register_", "set_"))


@dataclass
class _Scope:
    parent: _Scope | None
    is_class: bool = False
    is_comprehension: bool = False
    bound: set[str] = field(default_factory=set[str])
    loads: set[str] = field(default_factory=set[str])
    declared_global: set[str] = field(default_factory=set[str])

    def bind(self, name: str) -> None:
        if name in self.declared_global:
            self.loads.add(name)
        else:
            self.bound.add(name)

    def is_global(self, name: str) -> bool:
        if name in self.declared_global or self.parent is None:
            return True
        if name in self.bound:
            return False
        scope = self.parent
        while scope.parent is not None:
            if name in scope.bound and not scope.is_class:
                return False
            scope = scope.parent
        return True


def _scopes(statement: ast.stmt) -> list[_Scope]:
    """Return all scopes of a statement, the module's first."""
    module = _Scope(None)
    scopes = [module]
    stack: list[tuple[ast.AST, _Scope]] = [(statement, module)]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                scope.bind(node.id)
            else:
                scope.loads.add(node.id)
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            _enter(node, scope, scopes, stack)
            continue
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            inner = _Scope(scope, is_comprehension=True)
            scopes.append(inner)
            first, *others = node.generators
            stack.append((first.iter, scope))
            elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            stack.extend((part, inner) for part in (first.target, *first.ifs, *others, *elements))
            continue
        if isinstance(node, ast.NamedExpr):
            outer = scope
            while outer.is_comprehension and outer.parent is not None:
                outer = outer.parent
            outer.bind(node.target.id)
            stack.append((node.value, scope))
            continue
        _note_binding(node, scope)
        if isinstance(node, ast.AnnAssign):
            stack.extend((name, scope) for name in _quoted(node.annotation))
        children: list[ast.AST] = []
        push_children(node, children)
        stack.extend((child, scope) for child in children)
    return scopes


def _enter(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda,
    scope: _Scope,
    scopes: list[_Scope],
    stack: list[tuple[ast.AST, _Scope]],
) -> None:
    inner = _Scope(scope, is_class=isinstance(node, ast.ClassDef))
    scopes.append(inner)
    outside: list[ast.AST] = []
    inside: list[ast.AST] = [*getattr(node, "type_params", ())]
    if not isinstance(node, ast.Lambda):
        scope.bind(node.name)
        outside += node.decorator_list
        inner.declared_global.update(_global_names(node.body))
        inside += node.body
    else:
        inside.append(node.body)
    if isinstance(node, ast.ClassDef):
        outside += [*node.bases, *node.keywords]
    else:
        arguments = node.args
        outside += [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [arg for arg in (arguments.vararg, arguments.kwarg) if arg is not None]
        inner.bound.update(arg.arg for arg in every)
        annotations = [arg.annotation for arg in every] + [getattr(node, "returns", None)]
        for annotation in annotations:
            if annotation is not None:
                outside += [annotation, *_quoted(annotation)]
    stack.extend((part, scope) for part in outside)
    stack.extend((part, inner) for part in inside)


def _global_names(body: list[ast.stmt]) -> Iterator[str]:
    """Return the names declared `global` in a function itself, not in functions inside it."""
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Global):
            yield from node.names
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            push_children(node, stack)


def _note_binding(node: ast.AST, scope: _Scope) -> None:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            scope.bind(alias.asname or alias.name.partition(".")[0])
    elif isinstance(node, ast.Global):
        scope.loads.update(node.names)
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        if node.name:
            scope.bind(node.name)
    elif isinstance(node, ast.MatchMapping):
        if node.rest:
            scope.bind(node.rest)
    elif type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple"):
        scope.bind(getattr(node, "name", ""))


def _quoted(annotation: ast.expr) -> Iterator[ast.AST]:
    """Yield the expressions in the strings of an annotation, if they parse."""
    stack: list[ast.AST] = [annotation]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield parse_expression(node.value)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
        elif not (isinstance(node, ast.Subscript) and _root(node.value, "Literal")):
            push_children(node, stack)


def _root(node: ast.expr, last: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == last) or (isinstance(node, ast.Attribute) and node.attr == last)


def _changed(statement: ast.stmt) -> Iterator[str]:
    """Yield the roots of `NAME.attr = …` and `NAME[k] = …` at module level, and of decorators such as `@NAME.register`.

    Also yields the names in `torch.fx.wrap("NAME")`.
    """
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        for decorator in statement.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(called, ast.Attribute) and (name := _root_name(called)):
                yield name
        return
    for node in _own_statements(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and (name := _wrapped(node.value)):
            yield name
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        for target in walk(*targets):
            if isinstance(target, (ast.Attribute, ast.Subscript)) and isinstance(target.ctx, ast.Store):
                name = _root_name(target)
                if name:
                    yield name


def _wrapped(call: ast.Call) -> str:
    named = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    named = call.func.id if isinstance(call.func, ast.Name) else named
    first = call.args[0] if named == "wrap" and len(call.args) == 1 else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _called(statement: ast.stmt) -> Iterator[str]:
    for node in _own_statements(statement):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and alters(called.attr) and (name := _root_name(called)):
                yield name


def _own_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield a statement and those in its blocks, without the bodies of functions and classes."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            push_children(node, stack)


def _root_name(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
