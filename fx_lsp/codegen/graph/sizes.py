"""Compute sizes in a graph from those of inputs, so that no other tensor stays alive only for its shape."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.ir.index import Index, expression
from fx_lsp.codegen.ir.lowerings import operation


def derive_sizes_from_inputs(graph: fx.Graph) -> None:
    """Replace sizes of computed tensors by those of inputs, or by expressions of them, if possible."""
    node_of = size_nodes(graph)
    for node in list(graph.nodes):
        value: Any = node.meta.get("val")
        if operation(node) == "aten.sym_size.int" and node.args[0].op != "placeholder" and _is_size(value):
            size = node_of(expression(value))
            if isinstance(size, fx.Node):
                node.replace_all_uses_with(size)
                graph.erase_node(node)


def sizes_of_other_tensors(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield nodes that read an input's size from another tensor."""
    values = [n.meta.get("val") for n in graph.nodes if n.op == "placeholder"]
    sizes = {expression(s) for v in values for s in (v.shape if isinstance(v, torch.Tensor) else [v] * _is_size(v))}
    read = [n for n in graph.nodes if operation(n) == "aten.sym_size.int" and _is_size(n.meta.get("val"))]
    return (n for n in read if n.args[0].op != "placeholder" and expression(n.meta["val"]) in sizes)


def size_nodes(graph: fx.Graph) -> Callable[[Index], Any]:
    """Return a function that maps a size to its node, before all computations, or its number; None if inputs do not
    determine it.
    """
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    first = next(n for n in graph.nodes if n.op != "placeholder")
    nodes_by_size: dict[Index, fx.Node] = {expression(v): n for n in inputs if _is_size(v := n.meta.get("val"))}
    tensors = [n for n in reversed(inputs) if isinstance(n.meta.get("val"), torch.Tensor)]
    places = {expression(s): (n, d) for n in tensors for d, s in enumerate(n.meta["val"].shape)}

    def called(function: Any, *args: Any) -> fx.Node:
        with graph.inserting_before(first):
            node = graph.call_function(function, args)
        node.meta["val"] = function(*fx.map_arg(args, lambda n: n.meta["val"]))  # pyright: ignore
        return node

    def node_of(size: Index) -> Any:
        if size.is_Integer:
            return int(size)
        if size not in nodes_by_size:
            if size in places:
                nodes_by_size[size] = called(torch.ops.aten.sym_size.int, *places[size])
            elif isinstance(size, (sympy.Add, sympy.Mul)):
                parts = [node_of(part) for part in size.args]
                if None in parts:
                    return None
                function = operator.add if isinstance(size, sympy.Add) else operator.mul
                nodes_by_size[size] = reduce(lambda a, b: called(function, a, b), parts)
        return nodes_by_size.get(size)

    return node_of


def _is_size(value: Any) -> bool:
    return isinstance(value, torch.SymInt)
