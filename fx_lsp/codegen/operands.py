"""Operands of attention: what a kernel makes of tensors in memory itself, and factors that it takes along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import fx

from fx_lsp.codegen.edits import inserted
from fx_lsp.codegen.places import step_of
from fx_lsp.codegen.registry import operation
from fx_lsp.codegen.scores import Product


def only_moves(node: fx.Node) -> bool:
    """Whether a node has elements of another in other places, or in another dtype."""
    name = operation(node).split(".")
    return len(name) > 1 and name[1] in (
        *("view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "clone", "alias", "detach"),
        *("unsqueeze", "squeeze", "select", "slice", "convert_element_type", "_to_copy"),
    )


def moved(node: fx.Node) -> Iterator[fx.Node]:
    """A node, what it has the elements of in other places or another dtype, or times a number, and so on."""
    yield node
    while node.op == "call_function" and (only_moves(node) or only_scales(node)):
        node = node.all_input_nodes[0]
        yield node


def only_scales(node: fx.Node) -> bool:
    """Whether a node multiplies a tensor with a number, as `q * scale` does."""
    if operation(node).rpartition(".")[0] not in ("aten.mul", "aten.div") or len(node.args) != 2 or node.kwargs:
        return False
    source, number = node.args
    same = isinstance(source, fx.Node) and source.meta["val"].dtype == node.meta["val"].dtype
    return same and isinstance(number, (int, float))


def scale_scores(graph: fx.Graph, first: fx.Node, products: Sequence[Product]) -> tuple[Product, ...]:
    """Multiply, in place of an operand of the product that makes the scores, those with a number; the products, whose
    scores are multiplied where they take that operand. What else needs the operand has it be left as it is."""
    found = list(products)
    for operand in first.args[:2]:
        scaled = next((n for n in moved(operand) if only_scales(n)), None)  # pyright: ignore[reportArgumentType]
        if scaled is None or all(scaled in moved(side) for side in first.args[:2]):  # pyright: ignore[reportArgumentType]
            continue
        takers = [i for i, p in enumerate(found) if scaled in moved(p.other)]
        if not _ends(scaled) <= {first, *(found[i].node for i in takers)}:
            continue
        function: Any = scaled.target
        source, number = scaled.args
        assert isinstance(source, fx.Node)
        scaled.replace_all_uses_with(source)
        with graph.inserting_after(first):
            scores = inserted(graph, first, function, (first, number))
        first.replace_all_uses_with(scores, delete_user_cb=lambda user, new=scores: user is not new)
        for i in takers:
            found[i] = _multiplied(graph, found[i], function, number)
    return tuple(found)


def _ends(node: fx.Node) -> set[fx.Node]:
    """What takes a node, or what only moves it."""
    return {end for user in node.users for end in (_ends(user) if only_moves(user) else {user})}


def _multiplied(graph: fx.Graph, product: Product, function: Any, number: Any) -> Product:
    """A product whose scores are multiplied with a number."""
    with graph.inserting_before(product.node):
        scores = inserted(graph, product.scores, function, (product.scores, number))
    product.node.replace_input_with(product.scores, scores)
    return replace(product, scores=scores)


def with_scale(graph: fx.Graph, product: Product) -> Product:
    """A product whose scores are multiplied with the number that its result would be multiplied with."""
    result = product.node
    while len(result.users) == 1:
        user = next(iter(result.users))
        if step_of(user) is not None:
            result = user
            continue
        if not only_scales(user):
            break
        found = _multiplied(graph, product, user.target, user.args[1])
        user.replace_all_uses_with(result)
        name, user.name = user.name, f"{user.name}_before"
        if result is product.node:
            result.name = name
        graph.erase_node(user)
        return found
    return product
