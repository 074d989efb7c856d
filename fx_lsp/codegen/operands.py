"""Operands of attention: what a kernel makes of tensors in memory itself, and factors that it takes along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import fx

from fx_lsp.codegen.own import inserted
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
        function: Any = user.target
        with graph.inserting_before(product.node):
            scores = inserted(graph, product.scores, function, (product.scores, user.args[1]))
        product.node.replace_input_with(product.scores, scores)
        user.replace_all_uses_with(result)
        name, user.name = user.name, f"{user.name}_before"
        if result is product.node:
            result.name = name
        graph.erase_node(user)
        return replace(product, scores=scores)
    return product
