"""Views in a graph: as few as there need be, and results that are views of an input or of another result."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import fx

from fx_lsp.codegen.graph.query import views
from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.ops import operation


def join_views(graph: fx.Graph) -> None:
    """Make one view of a view of a view, and none of one that shows its tensor as it is.

    A tensor that is a result in place of such a view has its name.
    """
    for node in list(graph.nodes):
        if operation(node) not in ("aten.permute.default", "aten.view.default"):
            continue
        inner: Any = node.args[0]
        if operation(inner) == operation(node):
            outer: Any = node.args[1]
            way = [inner.args[1][d] for d in outer] if operation(node) == "aten.permute.default" else outer
            node.args = (inner.args[0], way)
        base: Any = node.args[0]
        is_result = any(u.op == "output" for u in node.users)
        if not _is_same(node, base) or (is_result and base.op != "call_function"):
            continue
        if is_result and not any(u.op == "output" for u in base.users):
            name, node.name = node.name, f"{node.name}_before"
            base.name = name
        node.replace_all_uses_with(base)
    graph.eliminate_dead_code()


def _is_same(node: fx.Node, base: fx.Node) -> bool:
    """Whether a node has the elements of another in the same places."""
    one, other = node.meta["val"], base.meta["val"]
    if one.dtype != other.dtype or one.dim() != other.dim():
        return False
    pairs = zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=True)
    return all(expression(a) == expression(b) for a, b in pairs)


def set_aside(
    graph: fx.Graph, outputs: int, tangents: Collection[int] | None, differentiable: bool
) -> dict[int, fx.Node]:
    """Take those of the first `outputs` results out of a forward graph that are views of inputs or of other results.

    They are made outside of the operator and of the autograd function, so that autograd knows them for views: no
    gradient is passed to backward for them. `tangents` are the results that have one, None for all. Returns the nodes
    that were taken out by their position; they remain in the graph, where nothing uses them.
    """
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    given = output.args[0]
    results = list(given) if isinstance(given, (tuple, list)) else [given]
    nodes = {k: r for k, r in enumerate(results[:outputs]) if isinstance(r, fx.Node)}
    own = set(nodes) if differentiable and tangents is None else set(tangents or ()) if differentiable else set[int]()
    known = {nodes[k] for k in own & nodes.keys()}
    found: dict[int, fx.Node] = {}
    for position, node in nodes.items():
        chain = list(views(node))
        if chain[-1].op == "placeholder" or (position not in own and any(n in known for n in chain)):
            found[position] = node
        else:
            known.add(node)
    if found:
        output.args = ([None if k in found else r for k, r in enumerate(results)],)
    return found
