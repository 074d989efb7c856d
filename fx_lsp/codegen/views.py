"""Views in a graph: as few as there need be, and none saved for backward where what they show is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from fx_lsp.codegen.index import Index, count, expression
from fx_lsp.codegen.registry import operation
from fx_lsp.codegen.schedule import is_view


def views(node: fx.Node) -> Iterator[fx.Node]:
    """A node, what it is a view of, and so on."""
    yield node
    while node.op == "call_function" and is_view(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
        yield node


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


def save_bases(forward: fx.Graph, backward: fx.Graph) -> None:
    """Have forward save what a view shows in its place, and backward make the view.

    Forward returns what backward takes under the same names.
    """
    output = next(n for n in reversed(forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] = list(output.meta.get("desc", ()))
    known = {n.name: n for n in backward.nodes}
    for view in [r for r in results if isinstance(r, fx.Node) and r.name in known]:
        base, *chain = _chain(view)
        place = known[view.name]
        if not chain or place.op != "placeholder" or known.get(base.name, place).op != "placeholder":
            continue
        at = max(k for k, r in enumerate(results) if r is view)
        if base.name in known:
            del results[at], described[at : at + 1]
        else:
            results[at] = base
            with backward.inserting_before(place):
                known[base.name] = _as(backward.placeholder(base.name), base)
        made, first = known[base.name], next(n for n in backward.nodes if n.op != "placeholder")
        with backward.inserting_before(first):
            for each in chain:
                made = backward.node_copy(each, lambda _, source=made: source)
        place.replace_all_uses_with(made)
        backward.erase_node(place)
        known[view.name] = _as(made, view)
    output.args = (tuple(results),)
    if described:
        output.meta["desc"] = described


def _chain(view: fx.Node) -> list[fx.Node]:
    """What a node is a view of that takes no more memory, the views on the way to it, and the node."""
    found, kept = [view], 1
    while len(found[-1].all_input_nodes) == 1 and (
        is_view(found[-1]) or operation(found[-1]) == "aten.reshape.default"
    ):
        base = found[-1].all_input_nodes[0]
        found.append(base)
        if base.op == "placeholder" or (_takes(view) - _takes(base)).is_nonnegative:
            kept = len(found)
    return found[:kept][::-1]


def _as(node: fx.Node, other: fx.Node) -> fx.Node:
    """A node with the name and the properties of one of another graph."""
    node.meta, node.name = dict(other.meta), other.name
    return node


def _takes(node: fx.Node) -> Index:
    """How many elements a node has."""
    return count([expression(s) for s in node.meta["val"].shape])


def _is_same(node: fx.Node, base: fx.Node) -> bool:
    """Whether a node has the elements of another in the same places."""
    one, other = node.meta["val"], base.meta["val"]
    if one.dtype != other.dtype or one.dim() != other.dim():
        return False
    pairs = zip((*one.shape, *one.stride()), (*other.shape, *other.stride()), strict=True)
    return all(expression(a) == expression(b) for a, b in pairs)
