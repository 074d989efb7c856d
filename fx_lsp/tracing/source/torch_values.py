"""Track values that come from torch: modules that a file builds, functions that a transformation returns.

Reads syntax only.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from fx_lsp.syntax import FUNCTIONS, FunctionNode
from fx_lsp.tracing.source.parsing import push_children, walk
from fx_lsp.tracing.source.tensor_code import derived_from, dotted, is_tensor_method, mentions_any

_OF_FUNCTIONS = ("torch.func", "torch.autograd", "torch.autograd.functional", "torch.utils.checkpoint")
"""The namespaces whose functions take functions and tensors: `jvp(f, (x,), (v,))`."""
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)


@dataclass(frozen=True)
class TorchValues:
    """Hold the names with values from torch in a scope of a file.

    `modules` are the module classes of the file, with the names of their methods and layers; `functions` are its
    functions, `bound` the names that the scope and its outer scopes bind, which hide an import of the same name.
    """

    imports: Mapping[str, str]
    modules: Mapping[str, Collection[str]]
    functions: Mapping[str, FunctionNode]
    names: frozenset[str] = frozenset()
    bound: frozenset[str] = frozenset()
    entered: frozenset[str] = field(default=frozenset())

    def inside(self, body: Iterable[ast.stmt], parameters: Collection[str] = ()) -> TorchValues:
        """Return the values in a nested scope with this body; `parameters` hide the outer names."""
        nodes = list(_own_nodes(body))
        bindings = sorted(((n.lineno, n) for n in nodes if isinstance(n, _BINDING)), key=lambda pair: pair[0])
        stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {*parameters}
        scope = replace(self, names=self.names - stored, bound=self.bound | stored)
        for _, node in bindings:
            for target, value in _bound_values(node):
                if scope.has(value):
                    names = {n.id for n in walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                    scope = replace(scope, names=scope.names | names)
        return scope

    def has(self, node: ast.expr) -> bool:
        """Return True if the value of an expression comes from torch."""
        if isinstance(node, ast.Name):
            return node.id in self.names or self._is_imported(node)
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.NamedExpr)):
            return self.has(node.value)
        if isinstance(node, ast.Call):
            partial = dotted(node.func, self.imports) == "functools.partial"
            return self.has(node.args[0] if partial and node.args else node.func) or self._builds(node.func)
        if isinstance(node, ast.IfExp):
            return self.has(node.body) or self.has(node.orelse)
        if isinstance(node, (ast.BoolOp, ast.List, ast.Tuple, ast.Set, ast.Dict)):
            return any(self.has(part) for part in _elements(node))
        return isinstance(node, _COMPREHENSIONS) and self.has(node.elt)

    def applied_in(self, function: FunctionNode, names: Collection[str]) -> bool:
        """Return True if a function passes a value derived from its parameters `names` to a value from torch, and uses
        the result.
        """
        parameters = {node.arg for node in walk(function.args) if isinstance(node, ast.arg)}
        scope = self.inside(function.body, parameters)
        nodes = list(walk(*function.body))
        ignored = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        derived = derived_from(nodes, {*names})
        return any(
            isinstance(node, ast.Call)
            and id(node) not in ignored
            and mentions_any([*node.args, *(keyword.value for keyword in node.keywords)], derived)
            and scope._may_compute(node.func)
            for node in nodes
        )

    def _may_compute(self, called: ast.expr) -> bool:
        """Return True if a call of `called` may compute with tensors: torch returned it, or it takes functions."""
        if self._is_imported(called):
            namespace, _, name = (dotted(called, self.imports) or "").rpartition(".")
            return namespace in _OF_FUNCTIONS and name[:1].islower()
        if isinstance(called, ast.Attribute):  # most methods of modules and optimizers compute nothing
            computes = is_tensor_method(called.attr) or any(called.attr in names for names in self.modules.values())
            return computes and self.has(called.value)
        return self.has(called)

    def _is_imported(self, node: ast.expr) -> bool:
        """Return True for `torch.func.grad` and other names that are imported from torch."""
        while isinstance(node, ast.Attribute):
            node = node.value
        imported = isinstance(node, ast.Name) and node.id not in self.bound and self.imports.get(node.id, "")
        return bool(imported) and str(imported).partition(".")[0] == "torch"

    def _builds(self, called: ast.expr) -> bool:
        """Return True if `called` is a module's class of the file, or a function that returns a value from torch."""
        if not isinstance(called, ast.Name) or called.id in self.bound - self.functions.keys():
            return False
        function = self.functions.get(called.id)
        if function is None or called.id in self.entered:
            return called.id in self.modules
        parameters = {node.arg for node in walk(function.args) if isinstance(node, ast.arg)}
        scope = replace(self, entered=self.entered | {called.id}).inside(function.body, parameters)
        returned = (node.value for node in _own_nodes(function.body) if isinstance(node, ast.Return))
        return any(value is not None and scope.has(value) for value in returned)


_BINDING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.With)


def _bound_values(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets that a node binds, each with its value, or with the value that it is a part of."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        yield from [(node.target, node.value)] if node.value is not None else []
    elif isinstance(node, ast.For):
        yield node.target, node.iter
    elif isinstance(node, ast.With):
        yield from ((item.optional_vars, item.context_expr) for item in node.items if item.optional_vars is not None)


def _pairs(target: ast.expr, value: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """Return the variables of `a, b = x, y` with the value of each, or the whole."""
    match target, value:
        case ast.Tuple(targets), ast.Tuple(values) if len(targets) == len(values):
            return zip(targets, values, strict=True)
        case _:
            return [(target, value)]


def _elements(node: ast.BoolOp | ast.List | ast.Tuple | ast.Set | ast.Dict) -> Iterable[ast.expr]:
    if isinstance(node, (ast.BoolOp, ast.Dict)):
        return node.values
    return node.elts


def _own_nodes(body: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, without those of the functions and classes in it."""
    stack: list[ast.AST] = [*body]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            push_children(node, stack)
