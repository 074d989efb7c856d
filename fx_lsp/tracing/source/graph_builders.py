"""Find hand-built graphs of torch.fx: functions without required parameters that build one, and names that hold one.

Reads syntax only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from fx_lsp.syntax import FunctionNode, assigned
from fx_lsp.tracing.source.outline import Outline, has_skipped_decorator
from fx_lsp.tracing.source.tensor_code import dotted

_MENTIONED = re.compile(r"\bfx\.|import fx\b|torch\.fx\b|\bmake_fx\b|\bexport\b")
_GRAPHS = re.compile(r"torch\.fx\.((graph|graph_module|proxy|node)\.)?(Graph|GraphModule|Proxy)$")
_MAKERS = re.compile(
    r"torch\.fx\.((graph|graph_module|_symbolic_trace)\.)?(Graph|GraphModule|symbolic_trace)$"
    r"|torch\.export\.(export|export_for_training)$|torch\.fx\.replace_pattern$"
)
_MAKE_FX = re.compile(r"torch\.fx\.experimental\.proxy_tensor\.make_fx$")
_TRACERS = re.compile(r"torch\.fx\.((_symbolic_trace|proxy)\.)?(Tracer|GraphAppendingTracer)$")
_PARTS = frozenset({"graph", "graph_module"})
_SAME = frozenset({"module", "run_decompositions"})


def find_builders(outline: Outline, tree: ast.Module, text: str) -> dict[str, ast.stmt]:
    """Return the functions that build a graph and have no required parameter, and the names that hold one, with their
    definitions. Empty if the text does not mention torch.fx or torch.export.
    """
    if not outline.uses_torch or not _MENTIONED.search(text):
        return {}
    makers: set[str] = set()
    look = _Look(outline, makers)
    functions = {name: f.node for name, f in outline.functions.items() if f.owner is None and f.outer is None}
    while more := {name for name, node in functions.items() if name not in makers and look.builds(node)}:
        makers |= more
    builders: dict[str, ast.stmt] = {
        name: functions[name]
        for name in makers
        if not _requires(functions[name]) and not has_skipped_decorator(functions[name])
    }
    held: dict[str, str] = {}
    for node in tree.body:
        for name, value in assigned(node):
            if look.is_graph(value, held):
                held[name] = name
                builders.setdefault(name, node)
    return builders


class _Look:
    """Classify expressions; `makers` are the functions of the file that are known to return graphs."""

    def __init__(self, outline: Outline, makers: Collection[str]) -> None:
        self._imports, self._makers = outline.imports, makers
        self._tracers = {
            name
            for name, class_ in outline.classes.items()
            if any(_TRACERS.match(base) or base.rpartition(".")[2].endswith("Tracer") for base in class_.bases)
        }

    def builds(self, node: FunctionNode) -> bool:
        """Return True if a function is annotated to return a graph, or returns one that it builds."""
        if isinstance(node, ast.AsyncFunctionDef):
            return False
        if node.returns is not None and _GRAPHS.match(self._annotation(node.returns)):
            return True
        held: dict[str, str] = {}
        inside = sorted(_statements(node.body), key=lambda n: n.lineno)
        for statement in inside:
            for name, value in assigned(statement):
                kind = self._kind(value, held)
                if kind:
                    held[name] = kind
                else:
                    held.pop(name, None)
        returned = [n.value for n in inside if isinstance(n, ast.Return) and n.value is not None]
        return any(self.is_graph(value, held) for value in returned)

    def is_graph(self, value: ast.expr, held: Mapping[str, str]) -> bool:
        """Return True if an expression is a graph, or holds one; `held` are the kinds of names."""
        return self._kind(value, held) not in ("", "tracer")

    def _kind(self, value: ast.expr, held: Mapping[str, str]) -> str:
        """Return "graph", "tracer", or "" for anything else."""
        if isinstance(value, ast.Name):
            return held.get(value.id, "")
        if isinstance(value, ast.IfExp):
            return self._kind(value.body, held) or self._kind(value.orelse, held)
        if isinstance(value, ast.Attribute):
            return "graph" if value.attr in _PARTS and self._kind(value.value, held) else ""
        if not isinstance(value, ast.Call):
            return ""
        name = dotted(value.func, self._imports) or ""
        if _MAKERS.match(name) or name in self._makers:
            return "graph"
        if _TRACERS.match(name) or name in self._tracers:
            return "tracer"
        if isinstance(value.func, ast.Call):
            return "graph" if _MAKE_FX.match(dotted(value.func.func, self._imports) or "") else ""
        return self._kind_of_method(value.func, held) if isinstance(value.func, ast.Attribute) else ""

    def _kind_of_method(self, method: ast.Attribute, held: Mapping[str, str]) -> str:
        """Return "graph" if a method of a tracer traces, or if one of a graph returns that graph; "" for others."""
        owner = self._kind(method.value, held)
        traced = owner == "tracer" and method.attr == "trace"
        return "graph" if traced or (owner == "graph" and method.attr in _SAME) else ""

    def _annotation(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return ""
        return dotted(node, self._imports) or ""


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a function, including those of its blocks, without those of nested definitions."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for block in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _requires(node: FunctionNode) -> bool:
    arguments = node.args
    if arguments.vararg or arguments.kwarg:
        return True  # it returns the result of another function
    positional = len(arguments.posonlyargs) + len(arguments.args)
    return positional > len(arguments.defaults) or any(default is None for default in arguments.kw_defaults)
