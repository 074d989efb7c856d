"""Find functions that only calculate (`return a + (b - a) * t`) and receive tensors in their file. Reads
syntax only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fx_lsp.syntax import FUNCTIONS, FunctionNode
from fx_lsp.tracing.source.outline import Function, Outline, body_of
from fx_lsp.tracing.source.parsing import push_children, walk
from fx_lsp.tracing.source.tensor_code import (
    TENSOR_METHODS,
    USES,
    derived_from,
    dotted,
    is_arithmetic,
    is_array_use,
    is_number,
    is_tensor_function,
    is_tensor_use,
    mentions_any,
    mentions_tensor,
    parameters,
)


def handed_tensors(outline: Outline, tree: ast.Module, candidates: Collection[str]) -> set[str]:
    """Return the functions among `candidates` that only calculate and take tensors.

    A function takes tensors if a call passes it an evident tensor, or if the name of a parameter (of more than three
    letters) means a tensor elsewhere in the file, or in PyTorch code in general, and nothing else in the file.
    """
    if not outline.uses_torch:
        return set()
    states = {name: _state(handed.node) for name, handed in outline.classes.items()}
    calculating = {
        name
        for name in candidates
        if _only_calculates(function := outline.functions[name], states.get(function.owner or "", frozenset()))
    }
    if not calculating:
        return set()
    calls = _Calls(outline)
    size = -1
    while len(calls.tensors) > size:  # a function that receives a tensor may pass it on
        size = len(calls.tensors)
        calls.follow(tree)
    named = _names_of_tensors(outline)
    handed = calculating & {name for name, _ in calls.tensors}
    for name in calculating - handed - calls.numbers:
        function = outline.functions[name]
        likely = {p.arg for p in function.params if p.annotation is None} & named
        if any(is_arithmetic(node, likely) for node in walk(*function.node.body)):
            handed.add(name)
    return handed


# fmt: off
_CALCULATING = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.If, ast.Expr, ast.expr_context, ast.operator, ast.unaryop,
    ast.cmpop, ast.boolop, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Tuple, ast.IfExp,
    ast.BoolOp, ast.Call, ast.Attribute, ast.Subscript, ast.Slice, ast.keyword,
)
# fmt: on


def _state(node: ast.ClassDef) -> frozenset[str]:
    """Return the attributes of `self` that methods other than the constructor assign."""
    methods = [method for method in node.body if isinstance(method, FUNCTIONS) and method.name != "__init__"]
    return frozenset(
        part.attr
        for part in walk(*methods)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and dotted(part.value, {}) == "self"
    )


def _only_calculates(function: Function, state: Collection[str]) -> bool:
    """Return True if a function does nothing but arithmetic on its parameters, and does not return a plain number.

    A method that reads attributes in `state`, which other methods assign, does more.
    """
    node, body = function.node, body_of(function.node)
    nodes = list(walk(*body))
    names = {param.arg for param in function.params if not is_number(param.annotation)}
    derived = derived_from(nodes, names)
    return (
        not is_number(node.returns)
        and all(isinstance(part, _CALCULATING) for part in nodes)
        and not any(isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)) for part in nodes)
        and not any(isinstance(part, ast.Attribute) and part.attr in state for part in nodes)
        and all(_is_harmless(call, derived) for call in nodes if isinstance(call, ast.Call))
        and any(is_arithmetic(part, derived) or _is_negated(part, derived) for part in nodes)
    )


def _is_harmless(call: ast.Call, derived: Collection[str]) -> bool:
    """Return True for `abs(x)` and calls of the file's functions, which accept tensors, and for other calls without a
    parameter.
    """
    plain = isinstance(call.func, ast.Name) and call.func.id not in _CONVERSIONS
    return plain or not mentions_any([call], derived)


_CONVERSIONS = frozenset({"int", "float", "bool", "str", "len", "round", "divmod", "min", "max", "range", "sum"})


def _is_negated(node: ast.AST, derived: Collection[str]) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Name) and node.operand.id in derived


_USUAL = {"x", "input", "inputs", "tensor", "hidden_states", "logits", "pred", "preds", "prediction", "predictions"}
"""Usual names of tensors."""


def _names_of_tensors(outline: Outline) -> set[str]:
    """Return parameter names that mean tensors wherever the file shows their type: usual ones, and those of more than
    three letters that are a tensor somewhere.
    """
    tensors: set[str] = set()
    others: set[str] = set()
    for function in [*outline.functions.values(), *outline.forwards().values()]:
        nodes = [n for n in walk(*function.node.body) if isinstance(n, USES)]
        for param in function.params:
            if mentions_tensor(param.annotation) or any(
                is_tensor_use(n, {param.arg}) or is_array_use(n, {param.arg}) for n in nodes
            ):
                tensors.add(param.arg)
            elif param.annotation is not None:
                others.add(param.arg)
    return ({name for name in tensors if len(name) > 3} | _USUAL) - others


@dataclass
class _Calls:
    """Collect the arguments of a file's calls to its functions.

    `tensors` are pairs of a function and a parameter that receives a tensor; `numbers` are functions that receive only
    literals.
    """

    outline: Outline
    tensors: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    numbers: set[str] = field(default_factory=set[str])

    def follow(self, tree: ast.Module) -> None:
        """Process every call once, with the current results."""
        functions = {id(f.node): (name, f) for name, f in self.outline.functions.items()}
        functions |= {id(f.node): (name, f) for name, f in self.outline.forwards().items()}
        self._scope(tree.body, _TensorVariables(self.outline.imports), "", functions)

    def _scope(
        self, body: list[ast.stmt], scope: _TensorVariables, name: str, functions: Mapping[int, tuple[str, Function]]
    ) -> None:
        own, inner = _own_nodes(body)
        scope.learn(own)
        for call in own:
            if isinstance(call, ast.Call):
                self._call(call, scope, name)
        for node in inner:
            if isinstance(node, ast.ClassDef):
                self._scope(node.body, scope, name, functions)
                continue
            called, function = functions.get(id(node), (name, None))
            params = function.params if function is not None else parameters(node, skip_first=False)
            layers = self.outline.layers_of(function) if function is not None else scope.layers
            tensors = {p for f, p in self.tensors if f == called and function is not None}
            self._scope(node.body, scope.inside(node, params, layers, tensors), called, functions)

    def _call(self, call: ast.Call, scope: _TensorVariables, around: str) -> None:
        callee = self._called(call.func, around)
        if callee is None:
            return
        names = [p.arg for p in self.outline.functions[callee].params]
        arguments = [*zip(names, call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
        for name, argument in arguments:
            if scope.is_tensor(argument):
                self.tensors.add((callee, name))
        if arguments and all(isinstance(argument, ast.Constant) for _, argument in arguments):
            self.numbers.add(callee)

    def _called(self, called: ast.expr, around: str) -> str | None:
        """Return the function of the file that a call inside the function `around` enters, or None."""
        if isinstance(called, ast.Name):
            while around:
                if f"{around}.{called.id}" in self.outline.functions:
                    return f"{around}.{called.id}"
                around = around.rpartition(".")[0]
            return called.id if called.id in self.outline.functions else None
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
            method = f"{around.partition('.')[0]}.{called.attr}"
            return method if method in self.outline.functions else None
        return None


@dataclass
class _TensorVariables:
    """Hold the variables of a function that evidently hold tensors; `layers` are modules of `self`."""

    imports: Mapping[str, str]
    layers: Collection[str] = ()
    tensors: set[str] = field(default_factory=set[str])

    def inside(
        self, node: FunctionNode, params: Iterable[ast.arg], layers: Collection[str], handed: Collection[str]
    ) -> _TensorVariables:
        """Return the scope of a function in this one; `handed` are parameters that are known to receive tensors."""
        nodes = [n for n in walk(*node.body) if isinstance(n, USES)]
        names = {p.arg: p for p in params}
        tensors = self.tensors - names.keys()
        for name, param in names.items():
            used = any(is_tensor_use(node, {name}) or is_array_use(node, {name}) for node in nodes)
            if name in handed or mentions_tensor(param.annotation) or used:
                tensors.add(name)
        for call in nodes:
            if isinstance(call, ast.Call) and call.args and self._takes_tensors(call.func, layers):
                first = call.args[0].elts if isinstance(call.args[0], (ast.List, ast.Tuple)) else call.args[:1]
                tensors |= {argument.id for argument in first if isinstance(argument, ast.Name)} & names.keys()
        return _TensorVariables(self.imports, layers, tensors)

    def _takes_tensors(self, called: ast.expr, layers: Collection[str]) -> bool:
        name = dotted(called, self.imports) or ""
        return _is_layer(called, layers) or (is_tensor_function(name) and not _MAKES.search(name))

    def learn(self, nodes: list[ast.AST]) -> None:
        """Process the assignments among the nodes of this scope."""
        assigned = sorted((n for n in nodes if isinstance(n, (ast.Assign, ast.AnnAssign))), key=lambda n: n.lineno)
        for node in assigned:
            if node.value is not None and self.is_tensor(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = (n for n in walk(*targets) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
                self.tensors.update(n.id for n in names)

    def is_tensor(self, node: ast.expr) -> bool:
        """Return True if an expression is evidently a tensor (or several)."""
        if isinstance(node, ast.Name):
            return node.id in self.tensors
        if isinstance(node, ast.BinOp):
            return self.is_tensor(node.left) or self.is_tensor(node.right)
        if isinstance(node, ast.UnaryOp):
            return not isinstance(node.op, ast.Not) and self.is_tensor(node.operand)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.is_tensor(node.value)
        if isinstance(node, ast.IfExp):
            return self.is_tensor(node.body) or self.is_tensor(node.orelse)
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT", "data", "grad") and self.is_tensor(node.value)
        if not isinstance(node, ast.Call):
            return False
        if _is_layer(node.func, self.layers):
            return True
        if isinstance(node.func, ast.Attribute) and self.is_tensor(node.func.value):
            return node.func.attr in _GIVE_TENSORS or node.func.attr.endswith("_")
        return is_tensor_function(dotted(node.func, self.imports) or "")


_MAKES = re.compile(r"\.(zeros|ones|empty|full|rand\w*|arange|linspace|logspace|eye|tensor|as_tensor)$")
_GIVE_TENSORS = (TENSOR_METHODS - {"size", "dim", "numel", "is_floating_point"}) | {
    "to",
    "cuda",
    "cpu",
    "long",
    "double",
}


def _is_layer(called: ast.expr, layers: Collection[str]) -> bool:
    return (
        isinstance(called, ast.Attribute)
        and isinstance(called.value, ast.Name)
        and called.value.id == "self"
        and called.attr in layers
    )


def _own_nodes(body: list[ast.stmt]) -> tuple[list[ast.AST], list[FunctionNode | ast.ClassDef]]:
    """Return the nodes of a scope, and the definitions in it that have their own scope."""
    own: list[ast.AST] = []
    inner: list[FunctionNode | ast.ClassDef] = []
    stack: list[ast.AST] = [*body]
    while stack:
        node = stack.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            inner.append(node)
        else:
            own.append(node)
            push_children(node, stack)
    return own, inner
