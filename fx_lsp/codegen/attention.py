"""Attention that is written out: where its scores are, so that kernels need never have all of them at once.

Scores are what a product of matrices gives, `[batch, m, n]`, and what is computed of them element by element. Their
rows are reduced by a softmax; further products sum them over n (the result, the gradient of the queries) or over m
(those of keys and values). Backward is recognised in the joint graph, whatever lies between those products element by
element: scales, masks, biases, casts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.choices import Precision
from fx_lsp.codegen.edits import converted, inserted
from fx_lsp.codegen.index import Index, count
from fx_lsp.codegen.landing import land_results
from fx_lsp.codegen.lowerings.reductions import is_reduction, reduced_dimensions
from fx_lsp.codegen.operands import moved, only_moves, only_scales, scale_scores, with_scale
from fx_lsp.codegen.own import Role, Writer, give_role, outputs_of, replace_with_kernel, tidied
from fx_lsp.codegen.pull import shape_of
from fx_lsp.codegen.registry import operation
from fx_lsp.codegen.scores import Product, Shapes, Sum, is_element_wise, is_product
from fx_lsp.codegen.sizes import size_nodes

aten = torch.ops.aten
MOST_DEPTH = 256
"""The widest rows of operands of which a program holds a tile."""

LEAST = 32
"""The fewest rows and columns of scores for which it is worth it."""


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


def fuse_attention(graph: fx.Graph, precision: Precision) -> None:
    """Have kernels of ours stand for every attention of a joint graph, or of one for inference; `precision` is how they
    multiply float32."""
    from fx_lsp.codegen.flash import backward_writer, backward_writers, forward_writer, sum_writer

    for node in list(graph.nodes):
        if operation(node) != "aten.amax.default":
            continue
        found = find_attention(graph, node)
        if found is None:
            continue
        _say_roles(found)
        if found.dot is not None:
            _use_result(graph, found)
        products = scale_scores(graph, found.first, found.backward)
        found = replace(found, backward=tuple(with_scale(graph, p) for p in products))
        groups = backward_writers(found)
        reads = _reads(found, [found.result])
        writer = forward_writer(found, reads, precision)
        needed = [(results, products, _reads(found, products)) for results, products in groups]
        apart = [(each, _reads(found, (), each.scores)) for each in found.sums]
        made = replace_with_kernel(graph, [found.result.node, found.most, found.total], reads, writer)
        made.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        now = outputs_of(made)
        renamed = {found.result.node: now[0], found.most: now[1], found.total: now[2]}
        kernels: list[tuple[list[fx.Node], list[fx.Node], Writer]] = []
        for results, products, old in needed:
            _lay_out(products)
            current = [renamed.get(n, n) for n in old]
            kernels.append((results, current, backward_writer(found, products, current, precision)))
        for each, old in apart:
            current = [renamed.get(n, n) for n in old]
            kernels.append(([each.node], current, sum_writer(found, each, current, precision)))
        for results, current, writer in kernels:
            replace_with_kernel(graph, results, current, writer)
        tidied(graph)
    land_results(graph)


def _say_roles(found: Attention) -> None:
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


def find_attention(graph: fx.Graph, most: fx.Node) -> Attention | None:
    """The attention whose softmax subtracts the maxima `most`, or None."""
    shifted: Any = most.args[0]
    shape = shape_of(shifted)
    if reduced_dimensions(most) != (len(shape) - 1,):
        return None
    first = _source(shifted)
    if first is None:
        return None
    size = count(shape_of(first))
    scores, gradients = _score_like(graph, first, size)
    after, known = dependents(graph), Shapes(first)
    reductions = [n for n in graph.nodes if is_reduction(n) and n.args[0] in scores]
    sums = {n: found for n in reductions if n in after and (found := known.sum(n, scores)) is not None}
    rows = [n for n in reductions if n not in sums]
    totals = [n for n in rows if operation(n) == "aten.sum.dim_IntList" and _sums_powers(n, most)]
    if len(totals) != 1 or len(gradients) > 1 or len(rows) > (3 if gradients else 2):
        return None
    dots = [n for n in rows if n not in (most, totals[0])]
    weights = [u for u in totals[0].users if operation(u) == "aten.div.Tensor" and u.args[1] is totals[0]]
    if len(weights) != 1:
        return None
    products: list[Product] = []
    for node in graph.nodes:
        taken = [i for i in node.all_input_nodes if i in scores]
        if node in scores or not taken or node in reductions:
            continue
        product = known.product(node, scores)
        if product is not None:
            products.append(product)
            continue
        for each in taken:  # the gradient of a bias with an element for each score
            whole = known.alone(each, scores) if each in after else None
            if whole is None:
                return None
            sums[each] = whole
    before = [p for p in products if p.node not in after]
    behind = [p for p in products if p.node in after]
    if len(before) != 1 or before[0].over != "n" or before[0].transposed or len(dots) != len(gradients):
        return None
    factors = _factors(before[0].scores, weights[0], scores)
    if bool(gradients) != bool(behind) or factors is None:
        return None
    if dots and not _is_dot(dots[0], weights[0], gradients[0], factors, scores):
        return None
    if any(size.is_Integer and size < LEAST for size in (known.m, known.n)):
        return None
    inner = [shape_of(p.other)[-2 if p.transposed else -1] for p in products] + [shape_of(first.all_input_nodes[0])[-1]]
    if any(not size.is_Integer or size > MOST_DEPTH for size in inner):
        return None
    return Attention(
        first,
        shifted,
        most,
        totals[0],
        weights[0],
        before[0],
        gradients[0] if gradients else None,
        dots[0] if dots else None,
        tuple(behind),
        tuple(sums.values()),
    )


def _source(node: fx.Node) -> fx.Node | None:
    """The one product of matrices that a tensor is computed from element by element."""
    size = count(shape_of(node))
    found: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if is_product(current):
            if count(shape_of(current)) == size:
                found.add(current)
        elif is_element_wise(current):
            stack.extend(current.all_input_nodes)
    return found.pop() if len(found) == 1 else None


def _score_like(graph: fx.Graph, first: fx.Node, size: Index) -> tuple[set[fx.Node], list[fx.Node]]:
    """What is computed of the scores element by element, and other products that are put together with it."""
    found = {first}
    gradients: list[fx.Node] = []
    candidates: dict[fx.Node, set[fx.Node]] = {}
    for node in graph.nodes:
        if node is first or not isinstance(node.meta.get("val"), torch.Tensor) or count(shape_of(node)) != size:
            continue
        if is_product(node) and not any(i in found for i in node.all_input_nodes):
            candidates[node] = {node}
        elif is_element_wise(node):
            roots = set().union(*(candidates.get(i, set()) for i in node.all_input_nodes))
            if any(i in found for i in node.all_input_nodes):
                found.add(node)
                for root in roots:
                    gradients += [root] if root not in gradients else []
                    found |= {n for n, of in candidates.items() if root in of}
            elif roots:
                candidates[node] = roots
    return found, gradients


def is_exponential(power: Any) -> bool:
    """Whether a node is e to the power of a difference."""
    return operation(power) == "aten.exp.default" and operation(power.args[0]) == "aten.sub.Tensor"


def _sums_powers(total: fx.Node, most: fx.Node) -> bool:
    """Whether a node sums the exponentials of what has the maxima `most`, less those."""
    power: Any = total.args[0]
    return is_exponential(power) and power.args[0].args == (most.args[0], most)


def _factors(node: Any, weights: fx.Node, scores: Collection[fx.Node]) -> list[Any] | None:
    """What the weights are multiplied with, element by element, to make a tensor (a mask of dropout and its scale), or
    None where it is something else than such a product, in another shape or dtype."""
    factors: list[Any] = []
    while node is not weights:
        if not isinstance(node, fx.Node):
            return None
        if operation(node) in ("aten.mul.Tensor", "aten.mul.Scalar"):
            left, right = node.args[:2]
            node, factor = (right, left) if isinstance(right, fx.Node) and right in scores else (left, right)
            if isinstance(factor, fx.Node) and factor in scores:
                return None
            factors += _multiplied(factor)
        elif only_moves(node):
            node = node.args[0]
        else:
            return None
    return sorted(factors, key=str)


def _multiplied(factor: Any) -> list[Any]:
    """The factors of a factor."""
    if not isinstance(factor, fx.Node):
        return [factor]
    if operation(factor) in ("aten.mul.Tensor", "aten.mul.Scalar"):
        return [f for side in factor.args[:2] for f in _multiplied(side)]
    if operation(factor) == "prims.convert_element_type.default":
        return _multiplied(factor.args[0])
    return [factor]


def _is_dot(dot: fx.Node, weights: fx.Node, gradient: fx.Node, factors: list[Any], scores: Collection[fx.Node]) -> bool:
    """Whether `dot` sums, over n, the weights times their gradient: then it is that of the result times its own.

    `factors` are what the weights are multiplied with before the result is made of them.
    """
    product: Any = dot.args[0]
    if operation(dot) != "aten.sum.dim_IntList" or operation(product) != "aten.mul.Tensor":
        return False
    left, right = product.args
    others = set(scores) - {gradient}
    return any(
        _factors(a, weights, scores) == [] and _factors(b, gradient, others) == factors
        for a, b in ((left, right), (right, left))
    )


def dependents(graph: fx.Graph) -> set[fx.Node]:
    """The nodes of a joint graph that depend on gradients."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if (node.op == "placeholder" and "tangent" in str(node.target)) or any(
            i in found for i in node.all_input_nodes
        ):
            found.add(node)
    return found


def _use_result(graph: fx.Graph, found: Attention) -> None:
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


def _lay_out(products: Iterable[Product]) -> None:
    """Have results that are made transposed lie in memory in the order in which they are made."""
    for product in products:
        value = product.node.meta["val"]
        if product.transposed:
            with value.fake_mode:
                product.node.meta["val"] = value.mT.contiguous().mT


def _reads(found: Attention, products: Collection[Product], *scores: fx.Node) -> list[fx.Node]:
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
