"""Replace attention by template kernels: forward, gradients of operands, and gradients of biases.

Scores are a matrix product, `[batch, m, n]`, and element-wise results of it. Their rows are reduced by a softmax;
further products sum them over n (the result, the gradient of the queries) or over m (those of keys and values).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.graph.edit import insert_call, insert_cast, sort_graph, take_name
from fx_lsp.codegen.graph.query import layout_step, shape_of
from fx_lsp.codegen.graph.sizes import size_nodes
from fx_lsp.codegen.graph.templates.attention_pattern import (
    ScorePlaces,
    find_attention,
    is_element_wise,
    only_moves,
    only_scales,
    through_moves,
)
from fx_lsp.codegen.graph.templates.template_kernel import outputs_of, replace_with_kernel, subgraph_of
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import NodeRole, add_facts, facts_of
from fx_lsp.codegen.ir.template import (
    Attention,
    AttentionForward,
    AttentionGradients,
    AttentionScoreSum,
    ScoreProduct,
    ScoreSum,
)

aten = torch.ops.aten


def fuse_attention(graph: fx.Graph, keeps_places: ScorePlaces) -> None:
    """Replace every attention of a joint or inference graph by template kernels."""
    for node in list(graph.nodes):
        attention = find_attention(graph, node, keeps_places) if operation(node) == "aten.amax.default" else None
        if attention is None:
            continue
        _name_roles(attention)
        unrounded = _replace_dot(graph, attention) if attention.row_dot is not None else None
        attention = replace(attention, sums=tuple(_sum_in_float32(graph, each) for each in attention.sums))
        products = _scale_scores(graph, attention.score_product, attention.backward)
        attention = replace(attention, backward=tuple(_absorb_scale(graph, p) for p in products))
        groups = _products_by_kernel(attention)
        reads_of_groups = [_tensors_read(attention, products) for products in groups]
        reads_of_sums = [_tensors_read(attention, (), each.scores) for each in attention.sums]
        renamed = _replace_forward(graph, attention, unrounded if attention.sums else None)
        replacements: list[tuple[list[fx.Node], list[fx.Node], AttentionGradients | AttentionScoreSum]] = []
        for products, old in zip(groups, reads_of_groups, strict=True):
            _match_layout(products)
            reads = [renamed.get(n, n) for n in old]
            replacements.append(([p.node for p in products], reads, _gradients(attention, products, reads)))
        for each, old in zip(attention.sums, reads_of_sums, strict=True):
            reads = [renamed.get(n, n) for n in old]
            replacements.append(([each.node], reads, _score_sum(attention, each, reads)))
        for results, reads, template in replacements:
            replace_with_kernel(graph, results, reads, template)
        sort_graph(graph)


def _products_by_kernel(attention: Attention) -> list[tuple[ScoreProduct, ...]]:
    """Return the products of backward that one kernel computes each: those that sum over m, and those over n."""
    groups = (tuple(p for p in attention.backward if p.over == over) for over in ("m", "n"))
    return [group for group in groups if group]


def _replace_forward(graph: fx.Graph, attention: Attention, unrounded: fx.Node | None) -> dict[fx.Node, fx.Node]:
    """Replace the result, the maxima and the sums of rows by a kernel. Return the nodes that take their places.

    `unrounded` is the result in float32, None if it is not computed. Half precision is too inexact for gradients of
    biases: the sum of a row of them is the difference between two dot products, `row_dot` and that of the weights.
    """
    if unrounded is not None:
        add_facts(unrounded, role=NodeRole("attended_float32"))
    reads = _tensors_read(attention, [attention.result])
    computed = (attention.score_product, attention.shifted, attention.weights)
    subgraph = subgraph_of(reads, [*computed, attention.result.scores, attention.result.other])
    results = [
        attention.result.node,
        attention.row_max,
        attention.row_sum,
        *([unrounded] if unrounded is not None else []),
    ]
    kernel = replace_with_kernel(graph, results, reads, AttentionForward(attention, subgraph))
    kernel.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    outputs = outputs_of(kernel)
    return {result: outputs[number] for number, result in enumerate(results)}


def _gradients(attention: Attention, products: tuple[ScoreProduct, ...], reads: list[fx.Node]) -> AttentionGradients:
    """Return the template of gradients that sum over the same dimension."""
    assert attention.gradient is not None
    computed = [attention.score_product, attention.gradient, *(n for p in products for n in (p.scores, p.other))]
    return AttentionGradients(attention, subgraph_of(reads, computed), products)


def _score_sum(attention: Attention, summed: ScoreSum, reads: list[fx.Node]) -> AttentionScoreSum:
    """Return the template of a sum of scores over batches."""
    assert attention.gradient is not None
    computed = [attention.score_product, attention.gradient, summed.scores]
    return AttentionScoreSum(attention, subgraph_of(reads, computed), summed)


def _name_roles(attention: Attention) -> None:
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


def _replace_dot(graph: fx.Graph, attention: Attention) -> fx.Node | None:
    """Replace a sum of weights and their gradient over n by a sum of the result and its gradient over the last
    dimension. Return the result in float32 if it has another dtype.
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
    return float_operands[0] if float_operands[0] is not result else None


def _sum_in_float32(graph: fx.Graph, summed: ScoreSum) -> ScoreSum:
    """Return a sum of scores in float32, which is rounded after it, unless the sum is a result of the graph."""
    node = summed.node
    value = node.meta["val"]
    if summed.summed == 1 or value.dtype is torch.float32 or all(user.op == "output" for user in _consumers(node)):
        return summed
    with graph.inserting_before(node):
        total = insert_call(node, node.target, node.args, {**node.kwargs, "dtype": torch.float32})
        rounded = insert_cast(graph, node, total, value.dtype)
    node.replace_all_uses_with(rounded)
    take_name(total, node)
    return replace(summed, node=total)


def _match_layout(products: Iterable[ScoreProduct]) -> None:
    """Give results that are computed transposed the memory layout in which they are computed."""
    for product in products:
        value = product.node.meta["val"]
        if product.transposed:
            with value.fake_mode:
                product.node.meta["val"] = value.mT.contiguous().mT


def _tensors_read(attention: Attention, products: Collection[ScoreProduct], *scores: fx.Node) -> list[fx.Node]:
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


def _scale_scores(graph: fx.Graph, first: fx.Node, products: Sequence[ScoreProduct]) -> tuple[ScoreProduct, ...]:
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


def _absorb_scale(graph: fx.Graph, product: ScoreProduct) -> ScoreProduct:
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
