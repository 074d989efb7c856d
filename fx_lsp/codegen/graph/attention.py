"""An attention in a graph, its operands and scores, and the rewrites before kernels stand for it.

Scores are what a product of matrices gives, `[batch, m, n]`, and what is computed of them element by element. Their
rows are reduced by a softmax; further products sum them over n (the result, the gradient of the queries) or over m
(those of keys and values).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import converted, inserted
from fx_lsp.codegen.graph.query import is_reduction, shape_of, step_of
from fx_lsp.codegen.graph.sizes import size_nodes
from fx_lsp.codegen.graph.template_kernel import Role, give_role
from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.ops import lowering_of, operation

aten = torch.ops.aten


@dataclass(frozen=True)
class Attention:
    """One attention of a graph. `first` makes the scores, `most` and `total` are the maximum and the sum of each row of
    `shifted`, `weights` its softmax; `gradient` is the product that makes the gradient of the weights, `dot` the sum of
    each of its rows. `backward` are the products of backward, `sums` what else it makes: gradients of biases."""

    first: fx.Node
    shifted: fx.Node
    most: fx.Node
    total: fx.Node
    weights: fx.Node
    result: Product
    gradient: fx.Node | None
    dot: fx.Node | None
    backward: tuple[Product, ...]
    sums: tuple[Sum, ...]


def say_roles(found: Attention) -> None:
    """Say what the tensors are that kernels of an attention make."""
    queries, keys = found.first.args[:2]
    give_role(found.result.node, Role("attended"))
    give_role(found.most, Role("row_max"))
    give_role(found.total, Role("row_sum"))
    if found.gradient is None or found.dot is None:
        return
    give_role(found.dot, Role("delta"))
    grad_out = _base(found.gradient.args[0])
    give_role(grad_out, Role("grad_attended", _names(found.result.node)))
    for product in found.backward:
        of_values = product.over == "m" and _base(product.other) is grad_out
        operand = found.result.other if of_values else queries if product.over == "n" else keys
        title = "grad_values" if of_values else "grad_queries" if product.over == "n" else "grad_keys"
        give_role(product.node, Role(title, _names(operand)))


def _base(node: Any) -> fx.Node:
    """The tensor that an operand is made of."""
    *_, base = moved(node)
    return base


def _names(node: Any) -> tuple[str, ...]:
    """The names of a node and of what it is made of."""
    return tuple(n.name for n in moved(node))


def is_exponential(power: Any) -> bool:
    """Whether a node is e to the power of a difference."""
    return operation(power) == "aten.exp.default" and operation(power.args[0]) == "aten.sub.Tensor"


def use_result(graph: fx.Graph, found: Attention) -> None:
    """Sum, in place of weights and their gradient over n, the result and its gradient over its last dimension."""
    assert found.dot is not None and found.gradient is not None
    dot, result, node_of = found.dot, found.result.node, size_nodes(graph)
    gradient: Any = found.gradient.args[0]
    with graph.inserting_before(dot):
        wide = [converted(graph, dot, n, torch.float32) for n in (result, gradient)]
        product = inserted(graph, dot, aten.mul.Tensor, tuple(wide))
        total = inserted(graph, dot, aten.sum.dim_IntList, (product, [-1], True))
        moved = inserted(graph, dot, aten.reshape.default, (total, [node_of(s) for s in shape_of(dot)]))
    dot.replace_all_uses_with(moved)
    name, dot.name = dot.name, f"{dot.name}_before"
    moved.name = name


def lay_out(products: Iterable[Product]) -> None:
    """Have results that are made transposed lie in memory in the order in which they are made."""
    for product in products:
        value = product.node.meta["val"]
        if product.transposed:
            with value.fake_mode:
                product.node.meta["val"] = value.mT.contiguous().mT


def reads_of(found: Attention, products: Collection[Product], *scores: fx.Node) -> list[fx.Node]:
    """The tensors in memory that a kernel reads for products: their operands, and what is put together with scores.

    The maxima and sums of rows are read in backward, and made in forward.
    """
    inside = {found.first, found.gradient}
    made = {found.most, found.total} if found.result in products else set[fx.Node]()
    stack = [(p.other, True) for p in products] + [(p.scores, False) for p in products]
    stack += [(n, False) for n in (*scores, *([found.shifted] if made else []))]
    reads: dict[fx.Node, None] = {}
    seen: set[fx.Node] = set()
    while stack:
        node, operand = stack.pop()
        if node in seen or node in made:
            continue
        seen.add(node)
        if node in inside:
            stack.extend((n, True) for n in node.all_input_nodes)
        elif node.op == "call_function" and (
            (only_moves(node) or only_scales(node)) if operand else is_element_wise(node)
        ):
            stack.extend((n, operand) for n in node.all_input_nodes)
        elif isinstance(node.meta.get("val"), torch.Tensor):
            reads[node] = None
    return list(reads)


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


@dataclass(frozen=True)
class Product:
    """A product of scores with rows of another tensor, summed over `over` ("m" or "n").

    The scores are argument `side`; `transposed` where the result has the summed-out order `[batch, depth, rows]`.
    """

    node: fx.Node
    scores: fx.Node
    other: fx.Node
    over: str
    side: int
    transposed: bool


@dataclass(frozen=True)
class Sum:
    """A tensor with an element for each row and column: a sum of `scores` over `summed` batches (1: of none), or the
    scores themselves. `inner` where batches that follow on each other are summed, else those as far apart as can be."""

    node: fx.Node
    scores: fx.Node
    summed: Index
    inner: bool


def is_product(node: fx.Node) -> bool:
    """Whether a node is a product of matrices, batched or not."""
    return operation(node) in ("aten.bmm.default", "aten.mm.default")


def is_element_wise(node: fx.Node) -> bool:
    return node.op == "call_function" and lowering_of(node) is not None and not is_reduction(node)
