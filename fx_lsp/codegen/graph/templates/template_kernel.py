"""Represent template kernels: one node in the graph for each, with its results selected from it.

Results that are copied completely into another order are written in that order by their kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import insert_call, sort_graph, take_name
from fx_lsp.codegen.graph.query import is_view, layout_step, shape_of, stays_call
from fx_lsp.codegen.graph.sizes import size_nodes
from fx_lsp.codegen.ir.index import Coords
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import add_facts, facts_of
from fx_lsp.codegen.ir.template import Subgraph, Template
from fx_lsp.codegen.ir.write_target import LayoutStep, Permute, Reshape


def template_kernel(*tensors: Any, makes: str) -> Any:
    """Represent a template kernel in a graph; it never runs.

    `makes` distinguishes nodes with the same inputs: the partitioner merges calls with equal arguments.
    """
    raise TypeError(f"{makes} is made by a kernel, and its graph is not run")


def outputs_of(node: fx.Node) -> dict[int, fx.Node]:
    """Return the nodes that select the results of a node, by number."""
    outputs: dict[int, fx.Node] = {}
    for user in node.users:
        number: Any = user.args[1]
        if user.target is operator.getitem:
            outputs[number] = user
    return outputs


def replace_with_kernel(
    graph: fx.Graph, results: Sequence[fx.Node], reads: Sequence[fx.Node], template: Template
) -> fx.Node:
    """Replace the nodes that compute `results`, which keep their names, by one node that reads the nodes `reads`.

    Unused nodes stay in the graph, which has to be sorted afterwards (`sort_graph`).
    """
    last = max(reads, key=list(graph.nodes).index)
    with graph.inserting_after(last):
        node = graph.call_function(template_kernel, tuple(reads), {"makes": results[0].name})
    node.meta = {k: v for k, v in results[0].meta.items() if k != "val"}
    node.meta["val"] = tuple(r.meta["val"] for r in results)
    add_facts(node, template=template)
    after = node
    for number, result in enumerate(results):
        with graph.inserting_after(after):
            after = graph.call_function(operator.getitem, (node, number))
        after.meta = dict(result.meta)
        result.replace_all_uses_with(after)
        take_name(after, result)
    return node


def misread_kernels(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield nodes of template kernels without a template, and those that are used as a whole."""
    for node in graph.nodes:
        if node.target is template_kernel:
            picked = all(user.target is operator.getitem for user in node.users)
            if facts_of(node).template is None or not picked:
                yield node


def set_output_layout(
    graph: fx.Graph, number: int, result: fx.Node, copy: fx.Node, steps: tuple[LayoutStep, ...]
) -> fx.Node:
    """Make a node compute a copy of a result, some layout steps away, in its place; return the node that selects it."""
    node: Any = result.args[0]
    copied_value: Any = copy.meta["val"]
    with graph.inserting_after(result):
        landed = graph.call_function(operator.getitem, (node, number))
    landed.meta = {**result.meta, "val": copied_value}
    add_facts(landed, output_layout=(shape_of(result), steps))
    node.meta["val"] = tuple(copied_value if i == number else v for i, v in enumerate(node.meta["val"]))
    take_name(landed, result)
    return landed


def output_layout(result: fx.Node) -> tuple[Coords, tuple[LayoutStep, ...]]:
    """Return the shape in which a result is computed, and the steps from there to its memory layout."""
    return facts_of(result).output_layout or (shape_of(result), ())


def subgraph_of(reads: Sequence[fx.Node], nodes: Iterable[fx.Node]) -> Subgraph:
    """Return a copy of the part of a graph that computes `nodes` from `reads`, independent of later changes."""
    graph = fx.Graph()
    of: dict[fx.Node, fx.Node] = {}
    for read in reads:
        of[read] = graph.placeholder(read.name)
        of[read].meta = dict(read.meta)
        of[read].name = read.name
    stack = list(nodes)
    while stack:
        node = stack[-1]
        missing = [i for i in node.all_input_nodes if i not in of]
        if node in of or not missing:
            stack.pop()
            if node not in of:
                of[node] = graph.node_copy(node, lambda n: of[n])
        else:
            stack.extend(missing)
    return Subgraph(tuple(of[r] for r in reads), of)


aten = torch.ops.aten


def write_in_copied_layout(graph: fx.Graph) -> None:
    """Make template kernels write their results in the layout of a copy; other users read that."""
    own = [n for n in graph.nodes if facts_of(n).template is not None]
    if own:
        _renew_views(graph)
    for node in own:
        for number, result in outputs_of(node).items():
            way = _path_to_copy(result) if all(_sees_through(u) for u in result.users) else None
            if way is not None and _has_sizes(graph, way):
                _write_as_copied(graph, number, result, way)


def _sees_through(user: fx.Node) -> bool:
    """Return True if a node can read a result in another order."""
    return user.op == "call_function" and facts_of(user).template is None and not stays_call(user)


def _has_sizes(graph: fx.Graph, way: Sequence[fx.Node]) -> bool:
    """Return True if the shapes along a path are known at the place where it is reversed."""
    node_of = size_nodes(graph)
    return all(node_of(s) is not None for n in way for i in n.all_input_nodes[:1] for s in shape_of(i))


def _path_to_copy(node: fx.Node) -> list[fx.Node] | None:
    """Return the moves from a node to the first copy of it, including the copy; None without one."""
    for user in node.users:
        if layout_step(user) is None or user.args[0] is not node:
            continue
        if not is_view(user):
            return [user]
        further = _path_to_copy(user)
        if further is not None:
            return [user, *further]
    return None


def _write_as_copied(graph: fx.Graph, number: int, result: fx.Node, way: list[fx.Node]) -> None:
    steps = tuple(s for s in map(layout_step, way) if s is not None)
    landed = set_output_layout(graph, number, result, way[-1], steps)
    way[-1].replace_all_uses_with(landed)
    if len(result.users) > 1 or any(len(n.users) > 1 for n in way[:-1]):
        result.replace_all_uses_with(_undo_steps(graph, landed, result, steps))
    sort_graph(graph)
    _renew_views(graph)


def _undo_steps(graph: fx.Graph, landed: fx.Node, result: fx.Node, steps: Sequence[LayoutStep]) -> fx.Node:
    """Insert nodes that restore the original order of a result from its memory order."""
    node_of, current = size_nodes(graph), landed
    for step in reversed(steps):
        with graph.inserting_after(current):
            if isinstance(step, Permute):
                order = [step.order.index(d) for d in range(len(step.order))]
                current = insert_call(current, aten.permute.default, (current, order))
            elif isinstance(step, Reshape):
                sizes = [node_of(s) for s in step.before]
                current = insert_call(current, aten.reshape.default, (current, sizes))
    current.meta = {**result.meta, "val": current.meta["val"]}
    return current


def _renew_views(graph: fx.Graph) -> None:
    """Recompute the memory layout of views, and copy those that cannot be views any more."""
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
