"""Find the names that statements read and bind, in execution order."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from fx_lsp.syntax import FUNCTIONS, blocks_of

SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Flow:
    """Follow statements in order: `read` are names that are read while possibly unbound, `bound` are all bound names.
    With `local`, only those names count.
    """

    def __init__(self, local: frozenset[str] | None) -> None:
        self._local = local
        self.read: dict[str, None] = {}
        self.bound: dict[str, None] = {}

    def run(self, statements: Sequence[ast.stmt], bound: frozenset[str]) -> frozenset[str]:
        """Return the names that are definitely bound after `statements`, if `bound` are before them."""
        for statement in statements:
            bound = self._statement(statement, bound)
        return bound

    def _statement(self, node: ast.stmt, bound: frozenset[str]) -> frozenset[str]:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return self._bind([node.name], self._reads(free_names(node), bound))
        if isinstance(node, ast.If):
            bound = self.visit(node.test, bound)
            return self.run(node.body, bound) & self.run(node.orelse, bound)
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            bound = self.visit(node.test if isinstance(node, ast.While) else node.iter, bound)
            self.run(node.body, bound if isinstance(node, ast.While) else self.visit(node.target, bound))
            self.run(node.orelse, bound)
            return bound
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                bound = self.visit(item.context_expr, bound)
                bound = bound if item.optional_vars is None else self.visit(item.optional_vars, bound)
            return self.run(node.body, bound)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            return self._assignment(node, bound)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return self._bind([(a.asname or a.name).partition(".")[0] for a in node.names], bound)
        blocks = blocks_of(node)
        if blocks:  # `try` and `match`: it is unknown which of the blocks runs
            for name in _pattern_names(node):
                self._bind([name], bound)
            for child in _conditions(node):
                bound = self.visit(child, bound)
            for block in blocks:
                self.run(block, bound)
            return bound
        return self.visit(node, bound)

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, bound: frozenset[str]) -> frozenset[str]:
        if node.value is None:
            return bound
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._reads({node.target.id}, bound)
        bound = self.visit(node.value, bound)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            bound = self.visit(target, bound)
        return bound

    def visit(self, node: ast.AST, bound: frozenset[str]) -> frozenset[str]:
        """Return the names that are definitely bound after an expression."""
        if isinstance(node, ast.Name):
            return self._reads({node.id}, bound) if isinstance(node.ctx, ast.Load) else self._bind([node.id], bound)
        if isinstance(node, ast.Lambda):
            return self._reads(free_names(node), bound)
        if isinstance(node, ast.NamedExpr):
            return self.visit(node.target, self.visit(node.value, bound))
        if isinstance(node, _COMPREHENSIONS):
            return self._comprehension(node, bound)
        if isinstance(node, (ast.BoolOp, ast.IfExp)):  # names bound inside may remain unbound
            for child in ast.iter_child_nodes(node):
                self.visit(child, bound)
            return bound
        for child in ast.iter_child_nodes(node):
            bound = self.visit(child, bound)
        return bound

    def _comprehension(self, node: ast.expr, bound: frozenset[str]) -> frozenset[str]:
        inner = Flow(None)
        own: frozenset[str] = frozenset()
        for generator in getattr(node, "generators", []):
            inner.visit(generator.iter, own)
            own |= {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
            for condition in generator.ifs:
                inner.visit(condition, own)
        for name in ("elt", "key", "value"):
            if (part := getattr(node, name, None)) is not None:
                inner.visit(part, own)
        self._bind(inner.bound, bound)
        return self._reads(set(inner.read), bound)

    def _reads(self, names: set[str], bound: frozenset[str]) -> frozenset[str]:
        for name in sorted(names):
            if name not in bound and (self._local is None or name in self._local):
                self.read[name] = None
        return bound

    def _bind(self, names: Iterable[str], bound: frozenset[str]) -> frozenset[str]:
        for name in names:
            self.bound[name] = None
        return bound | frozenset(names)


def _conditions(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions that `try` and `match` evaluate to choose a block."""
    yield from (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    yield from (handler.type for handler in getattr(node, "handlers", []) if handler.type is not None)
    for case in getattr(node, "cases", []):
        yield from (part.value for part in ast.walk(case.pattern) if isinstance(part, ast.MatchValue))
        yield from () if case.guard is None else (case.guard,)


def _pattern_names(node: ast.stmt) -> Iterator[str]:
    for handler in getattr(node, "handlers", []):
        if handler.name:
            yield handler.name
    for case in getattr(node, "cases", []):
        for part in ast.walk(case.pattern):
            name = getattr(part, "name", None) or getattr(part, "rest", None)
            if isinstance(name, str):
                yield name


def parameters(arguments: ast.arguments) -> list[str]:
    """Return the names of parameters, in order."""
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [a.arg for a in (*plain, *(v for v in (arguments.vararg, arguments.kwarg) if v is not None))]


def free_names(scope: ast.AST) -> set[str]:
    """Return the names that a function, a lambda or a class reads from its enclosing scope."""
    if isinstance(scope, ast.Lambda):
        flow = Flow(None)
        flow.visit(scope.body, frozenset(parameters(scope.args)))
        return set(flow.read)
    own = Flow(None)
    body: list[ast.stmt] = getattr(scope, "body", [])
    own.run(body, frozenset())
    inside = set(own.bound) | set(parameters(scope.args) if isinstance(scope, FUNCTIONS) else ())
    loaded = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return loaded - inside
