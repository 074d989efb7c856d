"""Represent an attention in a graph, with its operands and scores, and the rewrites before kernels replace it.

Scores are a matrix product, `[batch, m, n]`, and element-wise results of it. Their rows are reduced by a softmax;
further products sum them over n (the result, the gradient of the queries) or over m (those of keys and values).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import insert_call, insert_cast, take_name
from fx_lsp.codegen.graph.query import is_reduction, layout_step, shape_of
from fx_lsp.codegen.graph.sizes import size_nodes
from fx_lsp.codegen.ir.index import Index
from fx_lsp.codegen.ir.lowerings import lowering_of, operation
from fx_lsp.codegen.ir.node_facts import NodeRole, add_facts, facts_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Attention:
    """Hold one attention of a graph. `score_product` computes the scores, `row_max` and `row_sum` are the maximum and
    the sum of each row of `shifted`, `weights` its softmax; `gradient` is the product that computes the gradient of
    the weights, `row_dot` the sum of each of its rows. `backward` are the products of backward, `sums` its other
    results: gradients of biases.
    """

    score_product: fx.Node
    shifted: fx.Node
    row_max: fx.Node
    row_sum: fx.Node
    weights: fx.Node
    result: ScoreProduct
    gradient: fx.Node | None
    row_dot: fx.Node | None
    backward: tuple[ScoreProduct, ...]
    sums: tuple[ScoreSum, ...]


def name_roles(attention: Attention) -> None:
    """Record the roles of the tensors that kernels of an attention compute."""
    queries, keys = attention.score_product.args[:2]
    _give_role(attention.result.node, NodeRole("attended"))
    _give_role(attention.row_max, NodeRole("row_max"))
    _give_role(attention.row_sum, NodeRole("row_sum"))
    if attention.gradient is None or attention.row_dot is None:
        return
    _give_role(attention.row_dot, NodeRole("delta"))
    grad_out = _operand_base(attention.gradient.args[0])
    _give_role(grad_out, NodeRole("grad_attended", _operand_names(attention.result.node)))
    for product in attention.backward:
        of_values = product.over == "m" and _operand_base(product.other) is grad_out
        operand = attention.result.other if of_values else queries if product.over == "n" else keys
        title = "grad_values" if of_values else "grad_queries" if product.over == "n" else "grad_keys"
        _give_role(product.node, NodeRole(title, _operand_names(operand)))


def _give_role(node: fx.Node, role: NodeRole) -> None:
    """Record the role of a node, unless it is known."""
    add_facts(node, role=facts_of(node).role or role)


def _operand_base(node: Any) -> fx.Node:
    """Return the tensor that an operand derives from."""
    *_, base = through_moves(node)
    return base


def _operand_names(node: Any) -> tuple[str, ...]:
    """Return the names of a node and of the nodes that it derives from."""
    return tuple(n.name for n in through_moves(node))


def is_exponential(power: Any) -> bool:
    """Return True if a node is e to the power of a difference."""
    return operation(power) == "aten.exp.default" and operation(power.args[0]) == "aten.sub.Tensor"


def replace_dot(graph: fx.Graph, attention: Attention) -> None:
    """Replace a sum of weights and their gradient over n by a sum of the result and its gradient over the last
    dimension.
    """
    assert attention.row_dot is not None and attention.gradient is not None
    dot, result, node_of = attention.row_dot, attention.result.node, size_nodes(graph)
    gradient: Any = attention.gradient.args[0]
    with graph.inserting_before(dot):
        float_operands = [insert_cast(graph, dot, n, torch.float32) for n in (result, gradient)]
        product = insert_call(dot, aten.mul.Tensor, tuple(float_operands))
        total = insert_call(dot, aten.sum.dim_IntList, (product, [-1], True))
        reshaped = insert_call(dot, aten.reshape.default, (total, [node_of(s) for s in shape_of(dot)]))
    dot.replace_all_uses_with(reshaped)
    take_name(reshaped, dot)


def match_layout(products: Iterable[ScoreProduct]) -> None:
    """Give results that are computed transposed the memory layout in which they are computed."""
    for product in products:
        value = product.node.meta["val"]
        if product.transposed:
            with value.fake_mode:
                product.node.meta["val"] = value.mT.contiguous().mT


def tensors_read(attention: Attention, products: Collection[ScoreProduct], *scores: fx.Node) -> list[fx.Node]:
    """Return the tensors in memory that a kernel reads for products: their operands, and those combined with scores.

    The maxima and sums of rows are read in backward, and computed in forward.
    """
    inside = {attention.score_product, attention.gradient}
    outputs = {attention.row_max, attention.row_sum} if attention.result in products else set[fx.Node]()
    stack = [(p.other, True) for p in products] + [(p.scores, False) for p in products]
    stack += [(n, False) for n in (*scores, *([attention.shifted] if outputs else []))]
    reads: dict[fx.Node, None] = {}
    seen: set[fx.Node] = set()
    while stack:
        node, operand = stack.pop()
        if node in seen or node in outputs:
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
    """Return True if a node only moves elements of another, or converts their dtype."""
    name = operation(node).split(".")
    return len(name) > 1 and name[1] in (
        *("view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "clone", "alias", "detach"),
        *("unsqueeze", "squeeze", "select", "slice", "convert_element_type", "_to_copy"),
    )


def through_moves(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a node, then the node that it only moves, converts or scales, and so on."""
    yield node
    while node.op == "call_function" and (only_moves(node) or only_scales(node)):
        node = node.all_input_nodes[0]
        yield node


def only_scales(node: fx.Node) -> bool:
    """Return True if a node multiplies a tensor by a number, as `q * scale` does."""
    if operation(node).rpartition(".")[0] not in ("aten.mul", "aten.div") or len(node.args) != 2 or node.kwargs:
        return False
    source, number = node.args
    same = isinstance(source, fx.Node) and source.meta["val"].dtype == node.meta["val"].dtype
    return same and isinstance(number, (int, float))


def scale_scores(graph: fx.Graph, first: fx.Node, products: Sequence[ScoreProduct]) -> tuple[ScoreProduct, ...]:
    """Scale the scores instead of an operand of the product that computes them. Return the products; those that take
    that operand have scaled scores. The operand itself stays for its other uses.
    """
    scaled_products = list(products)
    for operand in first.args[:2]:
        scaled = next((n for n in through_moves(operand) if only_scales(n)), None)  # pyright: ignore[reportArgumentType]
        if scaled is None or all(scaled in through_moves(side) for side in first.args[:2]):  # pyright: ignore[reportArgumentType]
            continue
        takers = [i for i, p in enumerate(scaled_products) if scaled in through_moves(p.other)]
        if not _consumers(scaled) <= {first, *(scaled_products[i].node for i in takers)}:
            continue
        function: Any = scaled.target
        source, number = scaled.args
        assert isinstance(source, fx.Node)
        scaled.replace_all_uses_with(source)
        with graph.inserting_after(first):
            scores = insert_call(first, function, (first, number))
        first.replace_all_uses_with(scores, delete_user_cb=lambda user, new=scores: user is not new)
        for i in takers:
            scaled_products[i] = _scale_product(graph, scaled_products[i], function, number)
    return tuple(scaled_products)


def _consumers(node: fx.Node) -> set[fx.Node]:
    """Return the users of a node, with those of nodes that only move it."""
    return {end for user in node.users for end in (_consumers(user) if only_moves(user) else {user})}


def _scale_product(graph: fx.Graph, product: ScoreProduct, function: Any, number: Any) -> ScoreProduct:
    """Return a product with scaled scores."""
    with graph.inserting_before(product.node):
        scores = insert_call(product.scores, function, (product.scores, number))
    product.node.replace_input_with(product.scores, scores)
    return replace(product, scores=scores)


def absorb_scale(graph: fx.Graph, product: ScoreProduct) -> ScoreProduct:
    """Return a product with the scale of its result moved to its scores."""
    result = product.node
    while len(result.users) == 1:
        user = next(iter(result.users))
        if layout_step(user) is not None:
            result = user
            continue
        if not only_scales(user):
            break
        scaled_product = _scale_product(graph, product, user.target, user.args[1])
        user.replace_all_uses_with(result)
        if result is product.node:
            take_name(result, user)
        graph.erase_node(user)
        return scaled_product
    return product


@dataclass(frozen=True)
class ScoreProduct:
    """Describe a product of scores with rows of another tensor, summed over `over` ("m" or "n").

    The scores are argument `side`; `transposed` is True if the result has the order `[batch, depth, rows]`.
    """

    node: fx.Node
    scores: fx.Node
    other: fx.Node
    over: str
    side: int
    transposed: bool


@dataclass(frozen=True)
class ScoreSum:
    """Describe a tensor with an element for each row and column: a sum of `scores` over `summed` batches (1: of none),
    or the scores themselves. `inner` is True if consecutive batches are summed, else those as far apart as possible.
    """

    node: fx.Node
    scores: fx.Node
    summed: Index
    inner: bool


def is_product(node: fx.Node) -> bool:
    """Return True if a node is a matrix product, batched or not."""
    return operation(node) in ("aten.bmm.default", "aten.mm.default")


def is_element_wise(node: fx.Node) -> bool:
    return node.op == "call_function" and lowering_of(node) is not None and not is_reduction(node)
