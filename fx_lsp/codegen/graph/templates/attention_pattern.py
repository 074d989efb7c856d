"""Find attention written as plain operations, so that kernels need never hold all of its scores at once.

Backward is recognised in the joint graph. Between its matrix products any element-wise operations may lie: scales,
masks, biases, casts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from fx_lsp.codegen.graph.query import backward_nodes, is_reduction, is_scan, reduced_dimensions, shape_of, stays_call
from fx_lsp.codegen.ir.index import ONE, Index, count
from fx_lsp.codegen.ir.lowerings import lowering_of, operation
from fx_lsp.codegen.ir.template import Attention, ScoreLayout, ScoreProduct, ScoreSum

ScorePlaces: TypeAlias = "Callable[[ScoreLayout, fx.Node, bool, Iterable[fx.Node]], bool]"
"""A function that returns True if a node depends, element by element, on the scores at the same place. The lowering
answers that (`lower/attention.py`).
"""

MAX_HEAD_SIZE = 256
"""The widest operand rows of which a program holds a tile."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes whose products are summed in float32."""

MIN_SCORES = 32
"""The least number of rows and columns of scores for an attention kernel."""


def find_attention(graph: fx.Graph, row_max: fx.Node, keeps_places: ScorePlaces) -> Attention | None:
    """Return the attention whose softmax subtracts the maxima `row_max`, or None."""
    shifted: Any = row_max.args[0]
    first = _score_product(shifted) if reduced_dimensions(row_max) == (len(shape_of(shifted)) - 1,) else None
    if first is None or first.meta["val"].dtype not in DTYPES:
        return None
    scores, gradients = _computed_from_scores(graph, first, count(shape_of(first)))
    after, layout = backward_nodes(graph), _layout_of(first)
    score_uses = _ScoreUses(layout, scores, keeps_places)
    reductions = [n for n in graph.nodes if is_reduction(n) and n.args[0] in scores]
    sums = _score_sums(score_uses, reductions, after)
    rows = [n for n in reductions if n not in sums]
    softmax = _softmax(rows, row_max)
    if softmax is None or len(gradients) > 1:
        return None
    row_sum, weights = softmax
    dots = [n for n in rows if n not in (row_max, row_sum)]
    uses = _uses_of_scores(graph, score_uses, reductions, after)
    if uses is None:
        return None
    products, whole_scores = uses
    before, behind = _parted(products, after)
    if not _is_one_result(before) or not len(dots) == len(gradients) == bool(behind):
        return None
    attention = Attention(
        layout,
        first,
        shifted,
        row_max,
        row_sum,
        weights,
        before[0],
        next(iter(gradients), None),
        next(iter(dots), None),
        tuple(behind),
        tuple({**sums, **whole_scores}.values()),
    )
    return attention if _has_fitting_sizes(attention, products) and _are_dots_right(attention, scores) else None


def _score_sums(
    score_uses: _ScoreUses, reductions: Iterable[fx.Node], after: Collection[fx.Node]
) -> dict[fx.Node, ScoreSum]:
    """Return the reductions of backward that sum scores over batches, such as the gradient of a bias."""
    sums = {n: score_uses.sum(n) for n in reductions if n in after}
    return {n: score_sum for n, score_sum in sums.items() if score_sum is not None}


def _parted(
    products: Iterable[ScoreProduct], after: Collection[fx.Node]
) -> tuple[list[ScoreProduct], list[ScoreProduct]]:
    """Return the products of forward and those of backward."""
    before: list[ScoreProduct] = []
    behind: list[ScoreProduct] = []
    for product in products:
        (behind if product.node in after else before).append(product)
    return before, behind


def _is_one_result(products: Sequence[ScoreProduct]) -> bool:
    """Return True if forward has exactly one product, and it sums over n."""
    return len(products) == 1 and products[0].over == "n" and not products[0].transposed


def _are_dots_right(attention: Attention, scores: Collection[fx.Node]) -> bool:
    """Return True if the result is the weights times factors, and `row_dot` is the dot product that backward needs."""
    factors = _factors(attention.result.scores, attention.weights, scores)
    if factors is None or attention.row_dot is None or attention.gradient is None:
        return factors is not None
    return _is_dot(attention.row_dot, attention.weights, attention.gradient, factors, scores)


def _softmax(rows: Sequence[fx.Node], row_max: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Return (the sums of the rows, the weights) of the softmax that subtracts `row_max`, or None."""
    sums = [n for n in rows if operation(n) == "aten.sum.dim_IntList" and _sums_exponentials(n, row_max)]
    if len(sums) != 1:
        return None
    weights = [u for u in sums[0].users if operation(u) == "aten.div.Tensor" and u.args[1] is sums[0]]
    return (sums[0], weights[0]) if len(weights) == 1 else None


def _uses_of_scores(
    graph: fx.Graph, score_uses: _ScoreUses, reductions: Collection[fx.Node], after: Collection[fx.Node]
) -> tuple[list[ScoreProduct], dict[fx.Node, ScoreSum]] | None:
    """Return the products that take scores, and the scores of backward that are needed as a whole.

    The gradient of a bias with an element for each score needs them, for example. Returns None if any other node takes
    scores.
    """
    products: list[ScoreProduct] = []
    whole_scores: dict[fx.Node, ScoreSum] = {}
    for node in graph.nodes:
        score_inputs = [i for i in node.all_input_nodes if i in score_uses.scores]
        if node in score_uses.scores or not score_inputs or node in reductions:
            continue
        product = score_uses.product(node)
        if product is not None:
            products.append(product)
            continue
        for each in score_inputs:
            whole = score_uses.alone(each) if each in after else None
            if whole is None:
                return None
            whole_scores[each] = whole
    return products, whole_scores


def _has_fitting_sizes(attention: Attention, products: Iterable[ScoreProduct]) -> bool:
    """Return True if there are enough scores for a kernel and the operand rows fit into a tile."""
    depths = [shape_of(p.other)[-2 if p.transposed else -1] for p in products]
    depths.append(shape_of(attention.score_product.all_input_nodes[0])[-1])
    layout = attention.layout
    return not any(size.is_Integer and size < MIN_SCORES for size in (layout.m, layout.n)) and not any(
        not size.is_Integer or size > MAX_HEAD_SIZE for size in depths
    )


def _layout_of(product: fx.Node) -> ScoreLayout:
    """Return the layout of the scores that a product computes."""
    *batches, m, n = shape_of(product)
    return ScoreLayout(bool(batches), count(batches), m, n)


def _score_product(node: fx.Node) -> fx.Node | None:
    """Return the only matrix product that a tensor is computed from by element-wise operations, or None."""
    size = count(shape_of(node))
    products: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if is_product(current):
            if count(shape_of(current)) == size:
                products.add(current)
        elif is_element_wise(current):
            stack.extend(current.all_input_nodes)
    return products.pop() if len(products) == 1 else None


def _computed_from_scores(graph: fx.Graph, first: fx.Node, size: Index) -> tuple[set[fx.Node], list[fx.Node]]:
    """Return the nodes computed from the scores by element-wise operations, and other products combined with them."""
    score_nodes = {first}
    gradients: list[fx.Node] = []
    candidates: dict[fx.Node, set[fx.Node]] = {}
    for node in graph.nodes:
        if node is first or not isinstance(node.meta.get("val"), torch.Tensor) or count(shape_of(node)) != size:
            continue
        if is_product(node) and not any(i in score_nodes for i in node.all_input_nodes):
            candidates[node] = {node}
        elif is_element_wise(node):
            roots = set().union(*(candidates.get(i, set()) for i in node.all_input_nodes))
            if any(i in score_nodes for i in node.all_input_nodes):
                score_nodes.add(node)
                for root in roots:
                    gradients += [root] if root not in gradients else []
                    score_nodes |= {n for n, of in candidates.items() if root in of}
            elif roots:
                candidates[node] = roots
    return score_nodes, gradients


def _sums_exponentials(total: fx.Node, row_max: fx.Node) -> bool:
    """Return True if a node sums exp(x - row_max), where `row_max` are the maxima of x."""
    power: Any = total.args[0]
    return is_exponential(power) and power.args[0].args == (row_max.args[0], row_max)


def _factors(node: Any, weights: fx.Node, scores: Collection[fx.Node]) -> list[Any] | None:
    """Return the factors that turn the weights into a tensor, such as a dropout mask and its scale.

    Returns None if the tensor is no such product, or has another shape or dtype.
    """
    factors: list[Any] = []
    while node is not weights:
        if not isinstance(node, fx.Node):
            return None
        if operation(node) in ("aten.mul.Tensor", "aten.mul.Scalar"):
            left, right = node.args[:2]
            node, factor = (right, left) if isinstance(right, fx.Node) and right in scores else (left, right)
            if isinstance(factor, fx.Node) and factor in scores:
                return None
            factors += _factors_of(factor)
        elif only_moves(node):
            node = node.args[0]
        else:
            return None
    return sorted(factors, key=str)


def _factors_of(factor: Any) -> list[Any]:
    """Return the factors that a factor is a product of."""
    if not isinstance(factor, fx.Node):
        return [factor]
    if operation(factor) in ("aten.mul.Tensor", "aten.mul.Scalar"):
        return [f for side in factor.args[:2] for f in _factors_of(side)]
    if operation(factor) == "prims.convert_element_type.default":
        return _factors_of(factor.args[0])
    return [factor]


def _is_dot(dot: fx.Node, weights: fx.Node, gradient: fx.Node, factors: list[Any], scores: Collection[fx.Node]) -> bool:
    """Return True if `row_dot` sums, over n, the weights times their gradient.

    That equals the sum of the result times its gradient. `factors` multiply the weights in the result.
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


@dataclass(frozen=True)
class _ScoreUses:
    """Describe nodes that take scores. `scores` are the nodes computed from the scores, element by element."""

    layout: ScoreLayout
    scores: Collection[fx.Node]
    keeps_places: ScorePlaces

    def product(self, node: fx.Node) -> ScoreProduct | None:
        """Return a node as a product of scores with another tensor, or None for any other node."""
        if not is_product(node):
            return None
        left, right = node.args
        assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
        if (left in self.scores) == (right in self.scores):
            return None
        side = 0 if left in self.scores else 1
        scores_side, other = (left, right) if side == 0 else (right, left)
        for swapped in (False, True):
            if self._fits(scores_side, swapped):
                # [b, i, j] @ [b, j, e] sums j; [b, e, i] @ [b, i, j] sums i
                summed = ("m" if swapped else "n") if side == 0 else ("n" if swapped else "m")
                return ScoreProduct(node, scores_side, other, summed, side, side == 1)
        return None

    def sum(self, node: fx.Node) -> ScoreSum | None:
        """Return a node as a sum of scores over their leading dimensions, or None for any other node."""
        if operation(node) != "aten.sum.dim_IntList":
            return None
        source: Any = node.args[0]
        shape, dims = shape_of(source), reduced_dimensions(node)
        leading = len(shape) - 2
        if any(d >= leading for d in dims) or not self._fits(source, False):
            return None
        summed = count(shape[d] for d in dims)
        if all(shape[d] == 1 for d in range(leading) if d not in dims and d < max(dims)):
            return ScoreSum(node, source, summed, False)
        if all(shape[d] == 1 for d in range(leading) if d not in dims and d > min(dims)):
            return ScoreSum(node, source, summed, True)
        return None

    def alone(self, node: fx.Node) -> ScoreSum | None:
        """Return scores that are needed as a whole, or None if their order is different."""
        return ScoreSum(node, node, ONE, False) if self._fits(node, False) else None

    def _fits(self, node: fx.Node, swapped: bool) -> bool:
        """Return True if a node has an element for each score, at the place of the score, or `swapped`: m after n."""
        layout = self.layout
        sizes = (layout.n, layout.m) if swapped else (layout.m, layout.n)
        products = [n for n in self.scores if is_product(n)]
        return tuple(shape_of(node)[-2:]) == sizes and self.keeps_places(layout, node, swapped, products)


def is_product(node: fx.Node) -> bool:
    """Return True if a node is a matrix product, batched or not."""
    return operation(node) in ("aten.bmm.default", "aten.mm.default")


def is_element_wise(node: fx.Node) -> bool:
    """Return True if kernels compute each element of a node by itself, where they need it."""
    return lowering_of(node) is not None and not (is_reduction(node) or is_scan(node) or stays_call(node))


def is_exponential(power: Any) -> bool:
    """Return True if a node is e to the power of a difference."""
    return operation(power) == "aten.exp.default" and operation(power.args[0]) == "aten.sub.Tensor"


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
