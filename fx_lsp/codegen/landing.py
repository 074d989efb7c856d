"""Results that are copied into another order as a whole: the kernel that makes them writes them in that order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.edits import inserted
from fx_lsp.codegen.own import land, outputs_of, tidied, writer_of
from fx_lsp.codegen.places import Permute, Reshape, Step, step_of
from fx_lsp.codegen.pull import shape_of
from fx_lsp.codegen.registry import operation
from fx_lsp.codegen.schedule import is_view, stays
from fx_lsp.codegen.sizes import size_nodes

aten = torch.ops.aten


def land_results(graph: fx.Graph) -> None:
    """Have results of kernels of ours be what a copy of them would be; whatever else reads them reads that."""
    own = [n for n in graph.nodes if writer_of(n) is not None]
    if own:
        _renew_views(graph)
    for node in own:
        for number, result in outputs_of(node).items():
            way = _way_to_copy(result) if all(_sees_through(u) for u in result.users) else None
            if way is not None and _has_sizes(graph, way):
                _land(graph, number, result, way)


def _sees_through(user: fx.Node) -> bool:
    """Whether a node can read a result in another order."""
    return user.op == "call_function" and writer_of(user) is None and not stays(user)


def _has_sizes(graph: fx.Graph, way: Sequence[fx.Node]) -> bool:
    """Whether the shapes on a way are known where it is gone back."""
    node_of = size_nodes(graph)
    return all(node_of(s) is not None for n in way for i in n.all_input_nodes[:1] for s in shape_of(i))


def _way_to_copy(node: fx.Node) -> list[fx.Node] | None:
    """The moves from a node to the first copy of it, that too."""
    for user in node.users:
        if step_of(user) is None or user.args[0] is not node:
            continue
        if not is_view(user):
            return [user]
        further = _way_to_copy(user)
        if further is not None:
            return [user, *further]
    return None


def _land(graph: fx.Graph, number: int, result: fx.Node, way: list[fx.Node]) -> None:
    steps = tuple(s for s in map(step_of, way) if s is not None)
    landed = land(graph, number, result, way[-1], steps)
    way[-1].replace_all_uses_with(landed)
    if len(result.users) > 1 or any(len(n.users) > 1 for n in way[:-1]):
        result.replace_all_uses_with(_back(graph, landed, result, steps))
    tidied(graph)
    _renew_views(graph)


def _back(graph: fx.Graph, landed: fx.Node, result: fx.Node, steps: Sequence[Step]) -> fx.Node:
    """What has the elements of a result as it had them, made of those in the order in which they are in memory."""
    node_of, current = size_nodes(graph), landed
    for step in reversed(steps):
        with graph.inserting_after(current):
            if isinstance(step, Permute):
                order = [step.order.index(d) for d in range(len(step.order))]
                current = inserted(graph, current, aten.permute.default, (current, order))
            elif isinstance(step, Reshape):
                sizes = [node_of(s) for s in step.before]
                current = inserted(graph, current, aten.reshape.default, (current, sizes))
    current.meta = {**result.meta, "val": current.meta["val"]}
    return current


def _renew_views(graph: fx.Graph) -> None:
    """Work out again how views lie in memory, and make copies of those that cannot be views any more."""
    for node in graph.nodes:
        if not is_view(node) or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        args: Any = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        with node.meta["val"].fake_mode:
            try:
                value = node.target(*args[0], **args[1])  # pyright: ignore[reportCallIssue]
            except (RuntimeError, ValueError):
                if operation(node) != "aten.view.default":
                    raise
                node.target = aten.reshape.default
                value = aten.reshape.default(*args[0], **args[1])
        node.meta["val"] = value
