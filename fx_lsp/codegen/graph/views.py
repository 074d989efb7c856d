"""Simplify views in a graph, and remove results that are views of an input or of another result."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from torch import fx

from fx_lsp.codegen.graph.edit import take_name
from fx_lsp.codegen.graph.query import graph_results, view_chain
from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.lowerings import operation


def merge_views(graph: fx.Graph) -> None:
    """Merge views of views, and remove views that keep their tensor's layout, and writes of all of a tensor.

    A tensor that becomes a result in place of such a view takes its name.
    """
    for node in list(graph.nodes):
        if operation(node) not in _SOURCES:
            continue
        inner: Any = node.args[0]
        if operation(node) in _MERGED and operation(inner) == operation(node):
            outer: Any = node.args[1]
            way = [inner.args[1][d] for d in outer] if operation(node) == "aten.permute.default" else outer
            node.args = (inner.args[0], way)
        base: Any = node.args[_SOURCES[operation(node)]]
        is_result = any(u.op == "output" for u in node.users)
        if not _has_same_layout(node, base) or (is_result and base.op != "call_function"):
            continue
        if is_result and not any(u.op == "output" for u in base.users):
            take_name(base, node)
        node.replace_all_uses_with(base)
    graph.eliminate_dead_code()


_MERGED = ("aten.permute.default", "aten.view.default")
_SOURCES = {**dict.fromkeys(_MERGED, 0), "aten.slice.Tensor": 0, "aten.slice_scatter.default": 1}
"""The argument that has all elements of the result, if both have the same layout: `x[:]` of an open size stays a slice
in a graph.
"""


def nested_views(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield views of views and permutations of permutations."""
    return (n for n in graph.nodes if operation(n) in _MERGED and operation(n.args[0]) == operation(n))


def _has_same_layout(node: fx.Node, base: fx.Node) -> bool:
    """Return True if a node has the elements of another in the same places."""
    one, other = node.meta["val"], base.meta["val"]
    if one.dtype != other.dtype or one.dim() != other.dim():
        return False
    pairs = zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=True)
    return all(expression(a) == expression(b) for a, b in pairs)


def detach_view_results(
    graph: fx.Graph, outputs: int, tangents: Collection[int] | None, backward: fx.Graph | None
) -> dict[int, fx.Node]:
    """Remove those of the first `outputs` results from a forward graph that are views of inputs or of other results.

    They are created outside of the operator. `tangents` are the results whose gradients `backward` takes, None for all;
    others are created outside of the autograd function, too, so that autograd knows them as views. Returns the removed
    nodes by position; they remain in the graph, unused.
    """
    differentiable = backward is not None
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    returned = output.args[0]
    results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    nodes = {k: r for k, r in enumerate(results[:outputs]) if isinstance(r, fx.Node)}
    with_gradient = (
        set(nodes) if differentiable and tangents is None else set(tangents or ()) if differentiable else set[int]()
    )
    kept_nodes = {nodes[k] for k in with_gradient & nodes.keys()}
    detached: dict[int, fx.Node] = {}
    for position, node in nodes.items():
        chain = list(view_chain(node))
        if chain[-1].op == "placeholder" or (position not in with_gradient and any(n in kept_nodes for n in chain)):
            detached[position] = node
        else:
            kept_nodes.add(node)
    if detached:
        output.args = ([None if k in detached else r for k, r in enumerate(results)],)
    return detached


def results_in_inputs(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield results that are views of inputs."""
    results = [r for r in graph_results(graph) if isinstance(r, fx.Node)]
    for result in results:
        *between, base = view_chain(result)
        if between and base.op == "placeholder":
            yield result
