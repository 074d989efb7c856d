"""Name variables in a file of kernels: after the user's variables if there are any, else after their role."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fx_lsp.codegen.graph.query import layout_step, symbolic_shape, view_chain
from fx_lsp.codegen.graph.saved import SavedValues
from fx_lsp.codegen.ir.kernel import Naming
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.text import ascii_identifier
from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.kernels.subject import results_of
from fx_lsp.tracer.source.names import Namer, identifier

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

MAX_SOURCE = 80
"""The most characters of the user's source that a comment quotes."""


def naming_of(
    traced: TracedCall, captured: Captured, saved: SavedValues | None, names: Names, reserved: Sequence[str]
) -> Naming:
    """Return the names of nodes in a file: those of the trace, different from `reserved` ones."""
    forward = captured.computing
    assert forward is not None
    labels = _gradient_labels(saved, names) | _result_labels(captured, forward.graph, names)
    variables = _Variables(names, labels)
    for word in reserved:
        variables.namer.unique(word)
    lines = traced.request.source.splitlines()

    def source(node: fx.Node) -> str:
        chain = names.chain(node)
        if not chain:
            return ""
        file, line = chain[0].file, chain[0].line
        is_buffer = file == traced.request.file and line <= len(lines)
        return _quoted(file, line, lines[line - 1] if is_buffer else linecache.getline(file, line))

    return Naming(variables.name, variables.user_variable, source)


@dataclass
class _Variables:
    """Assign the variables of a file, by the trace's names of nodes; `labels` name results and gradients, by node."""

    names: Names
    labels: Mapping[str, str]
    namer: Namer = field(default_factory=Namer)
    by_identifier: dict[str, str] = field(default_factory=dict[str, str])

    def name(self, node: fx.Node) -> str:
        """Return the variable of a node."""
        own = identifier(self.names[node])
        if own not in self.by_identifier:
            label = self.labels.get(node.name) or (None if self._has_name(node) else self._description(node))
            self.by_identifier[own] = self.namer.unique(ascii_identifier(identifier(label or own)))
        return self.by_identifier[own]

    def user_variable(self, node: fx.Node) -> str | None:
        """Return the variable of an operation whose result has a name in the user's code, else None."""
        return self.name(node) if node.op == "call_function" and self._has_name(node) else None

    def _has_name(self, node: fx.Node) -> bool:
        return self.names[node] != node.name

    def _description(self, node: fx.Node) -> str | None:
        """Name a node by its role in the graph, by a result that is a view of it, or by its base."""
        role = facts_of(node).role
        of = next((v for n in role.of if (v := self.names.variable(n))), None) if role is not None else None
        if of is not None:
            return f"grad_{of}"
        view = next((n for n in _views_behind(node) if n.name in self.labels or self._has_name(n)), None)
        if view is not None:
            return self.labels.get(view.name) or self.names[view]
        return role.title if role is not None else _part(node) or _base_name(node, self.names)


def _quoted(file: str, line: int, text: str) -> str:
    """Return a line of source after its place, `model.py:12 y = x * w`, cut if it is long."""
    shown = f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}  {text.strip()}"
    return shown if len(shown) <= MAX_SOURCE else f"{shown[: MAX_SOURCE - 1]}…"


def _result_labels(captured: Captured, graph: fx.Graph, names: Names) -> dict[str, str]:
    """Return names for the nodes of results that are in none of the user's variables."""
    results = results_of(captured, graph)
    output: Any = next(n for n in reversed(graph.nodes) if n.op == "output").args[0]
    labels = list(zip(results.positions, names.output_labels(captured.outputs), strict=True))
    labels += [(p, f"new_{identifier(captured.inputs[i].name)}") for p, i in enumerate(results.changed)]
    by_node: dict[str, str] = {}
    for position, label in labels:
        node = output[position]
        for whole in _whole_views(node) if isinstance(node, fx.Node) else ():
            if whole.op == "call_function" and names[whole] == whole.name:
                by_node.setdefault(whole.name, label)
    return by_node


def _gradient_labels(saved: SavedValues | None, names: Names) -> dict[str, str]:
    """Return `grad_y` for each node that is the gradient of `y`, and has no name."""
    pairs = gradients(saved).items() if saved is not None else ()
    return {n.name: f"grad_{identifier(_base_name(of, names))}" for n, of in pairs if names[n] == n.name}


def _part(node: fx.Node) -> str | None:
    """Return the name of one of several results, if that of the operation contains it: `mean` for one of `var_mean`."""
    whole = node.args[0] if node.target is operator.getitem else None
    if not isinstance(whole, fx.Node) or not isinstance(whole.target, torch._ops.OpOverload):
        return None
    parts = whole.target.overloadpacket.__name__.split("_")
    number: Any = node.args[1]
    return parts[number] if len(parts) == len(whole.target._schema.returns) > 1 else None


def _whole_views(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a node, and the nodes that it is a view of all elements of."""
    return takewhile(lambda n: n is node or n.meta["val"].numel() == node.meta["val"].numel(), view_chain(node))


def _views_behind(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the complete views of a node that nothing else needs, apart from results."""
    while len(node.users) == 1:
        node = next(iter(node.users))
        if layout_step(node) is None or any(u.op == "output" for u in node.users):
            return
        yield node


def _base_name(node: fx.Node, names: Names) -> str:
    """Return the name of the tensor that a node is a complete view of, which may be the node's own."""
    *_, base = _whole_views(node)
    return names[base]


def gradients(saved: SavedValues) -> dict[fx.Node, fx.Node]:
    """Return, for each node of backward that is the whole gradient of a value of forward, that value.

    The value that the backward of an operation reads from the backward of a later one is the gradient of its result:
    autograd numbers operations in order, and the backward of each has its number. A part of a gradient is read by an
    addition.
    """
    forward_values = set(saved.copies.values())
    values: dict[int, fx.Node] = {}
    for node in saved.forward.nodes:
        number = _number(node)
        if number is not None and not _is_backward(node):
            values[number] = node
    gradient_of: dict[fx.Node, fx.Node] = {}
    for node in saved.backward.nodes:
        if node.op != "call_function" or node in forward_values or not _is_backward(node):
            continue
        own_number = _number(node)
        earlier = [n for n in _readers(node) if own_number is not None and n < own_number]
        value = values.get(max(earlier)) if earlier else None
        if value is not None and _is_alike(node, value):
            gradient_of[node] = value
    return gradient_of


def _readers(node: fx.Node) -> Iterator[int]:
    """Yield the numbers of the operations whose backward reads a node; none if an addition does."""
    for user in node.users:
        number = _number(user)
        if number is None or not _is_backward(user):
            continue
        if user.target is torch.ops.aten.add.Tensor:
            return
        yield number


def _number(node: fx.Node) -> int | None:
    number = node.meta.get("seq_nr")
    return number if isinstance(number, int) else None


def _is_backward(node: fx.Node) -> bool:
    return node.meta.get("partitioner_tag") == "is_backward"


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    first, second = one.meta.get("val"), other.meta.get("val")
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    return symbolic_shape(first) == symbolic_shape(second)  # to compare sizes would add conditions to the file
