"""Edit graphs: insert operations, in the place and under the name of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode

aten = torch.ops.aten


def insert_call(
    like: fx.Node,
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> fx.Node:
    """Return a new call with the origin of `like`, at the insertion point of its graph."""
    node = like.graph.create_node("call_function", function, args, dict(kwargs or {}), name)
    values: Any = fx.map_arg((args, kwargs or {}), lambda n: n.meta["val"])
    with detect_fake_mode((like.meta["val"], values)) or nullcontext():
        node.meta = {**like.meta, "val": function(*values[0], **values[1])}
    return node


def insert_call_of_value(like: fx.Node, function: Any, args: tuple[Any, ...], value: torch.Tensor) -> fx.Node:
    """Return a new call like `insert_call`, whose result PyTorch cannot infer."""
    node = like.graph.call_function(function, args)
    node.meta = {**like.meta, "val": value}
    return node


def insert_cast(graph: fx.Graph, like: fx.Node, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    """Return a node in another dtype, or itself."""
    if node.meta["val"].dtype == dtype:
        return node
    return insert_call(like, torch.ops.prims.convert_element_type.default, (node, dtype))


def insert_sum(graph: fx.Graph, like: fx.Node, nodes: Iterable[fx.Node], dtype: torch.dtype) -> fx.Node:
    """Return the sum of at least one node, in a dtype or, for half precision, in float32."""
    wide = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else dtype
    first, *others = (insert_cast(graph, like, node, wide) for node in nodes)
    for other in others:
        first = insert_call(like, aten.add.Tensor, (first, other), name="total")
    return first


def replace_node(graph: fx.Graph, node: fx.Node, by: fx.Node) -> None:
    """Replace one node by another, which takes its name."""
    node.replace_all_uses_with(by)
    graph.erase_node(node)
    by.name = node.name


def take_name(node: fx.Node, other: fx.Node) -> None:
    """Give a node the name of the one that it replaces: remarks on the user's code refer to names."""
    node.name, other.name = other.name, f"{other.name}_before"


def sort_graph(graph: fx.Graph) -> None:
    """Sort a graph topologically, otherwise keeping the order, and remove unused nodes.

    Partitioners also use the order to find the nodes of forward.
    """
    live: set[fx.Node] = set()
    pending = [n for n in graph.nodes if n.is_impure()]
    while pending:
        node = pending.pop()
        if node not in live:
            live.add(node)
            pending.extend(node.all_input_nodes)
    order: dict[fx.Node, None] = {}
    for start in [n for n in graph.nodes if n in live]:
        stack = [start]
        while stack:
            missing = [i for i in stack[-1].all_input_nodes if i not in order]
            if missing:
                stack.extend(reversed(missing))
            else:
                order[stack.pop()] = None
    previous: fx.Node | None = None
    for node in order:
        if previous is not None:
            previous.append(node)
        previous = node
    for node in reversed(list(graph.nodes)):
        if node not in order:
            graph.erase_node(node)
    graph.lint()
