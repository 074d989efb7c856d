"""Attention that is written out: where its scores are, so that kernels need never have all of them at once.

Backward is recognised in the joint graph, whatever lies between its products element by element: scales, masks, biases,
casts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.attention import (
    Attention,
    Product,
    Sum,
    is_element_wise,
    is_exponential,
    is_product,
    only_moves,
)
from fx_lsp.codegen.graph.query import dependents, is_reduction, reduced_dimensions, shape_of
from fx_lsp.codegen.ir.index import ONE, Coords, Index, Space, contiguous_strides, count, expression, linear
from fx_lsp.codegen.ir.ops import operation
from fx_lsp.codegen.ir.values import Value
from fx_lsp.codegen.lower.builder import Builder, Cut, Domain

MOST_DEPTH = 256
"""The widest rows of operands of which a program holds a tile."""

LEAST = 32
"""The fewest rows and columns of scores for which it is worth it."""


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


class Shapes:
    """Where elements of tensors that are computed from scores are among the scores."""

    def __init__(self, first: fx.Node) -> None:
        shape = shape_of(first)
        self.first = first
        self.batched = len(shape) == 3
        self.batch = shape[0] if self.batched else expression(1)
        self.m, self.n = shape[-2:]

    def axes(self, space: Space) -> Coords:
        """Coordinates of a score, each an axis; that of a batch of one is 0."""
        batch = space.axis("batch", self.batch) if self.batch != 1 else expression(0)
        return batch, space.axis("m", self.m), space.axis("n", self.n)

    def at(self, coords: Coords) -> Coords:
        """Coordinates as `first` has them."""
        return coords if self.batched else coords[1:]

    def product(self, node: fx.Node, scores: set[fx.Node]) -> Product | None:
        """A product of scores with something that is none, or None for anything else."""
        if not is_product(node):
            return None
        left, right = node.args
        assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
        if (left in scores) == (right in scores):
            return None
        side = 0 if left in scores else 1
        held, other = (left, right) if side == 0 else (right, left)
        for swapped in (False, True):
            if self._fits(held, swapped, scores):
                # [b, i, j] @ [b, j, e] sums j; [b, e, i] @ [b, i, j] sums i
                summed = ("m" if swapped else "n") if side == 0 else ("n" if swapped else "m")
                return Product(node, held, other, summed, side, side == 1)
        return None

    def sum(self, node: fx.Node, scores: set[fx.Node]) -> Sum | None:
        """A sum of scores over leading dimensions of theirs, or None for anything else."""
        if operation(node) != "aten.sum.dim_IntList":
            return None
        source: Any = node.args[0]
        shape, dims = shape_of(source), reduced_dimensions(node)
        leading = len(shape) - 2
        if any(d >= leading for d in dims) or not self._fits(source, False, scores):
            return None
        summed = count(shape[d] for d in dims)
        if all(shape[d] == 1 for d in range(leading) if d not in dims and d < max(dims)):
            return Sum(node, source, summed, False)
        if all(shape[d] == 1 for d in range(leading) if d not in dims and d > min(dims)):
            return Sum(node, source, summed, True)
        return None

    def alone(self, node: fx.Node, scores: set[fx.Node]) -> Sum | None:
        """Scores that are needed as a whole, or None where they lie in another order."""
        return Sum(node, node, ONE, False) if self._fits(node, False, scores) else None

    def _fits(self, node: fx.Node, swapped: bool, scores: set[fx.Node]) -> bool:
        space = Space()
        b, m, n = self.axes(space)
        rows, sizes = ((n, m), (self.n, self.m)) if swapped else ((m, n), (self.m, self.n))
        if tuple(shape_of(node)[-2:]) != sizes:
            return False
        coords = space.coordinates(linear((b, *rows), contiguous_strides((self.batch, *sizes))), shape_of(node))
        marker = Value(torch.float32, self.first, frozenset((m, n)))
        bound = {s: (self.at((b, m, n)), marker) for s in scores if is_product(s)}
        try:
            _Everywhere(space, Domain((), ()), {}, True, bound).pull(node, coords)
        except Cut:
            return False
        return True


class _Everywhere(Builder):
    """Takes anything that is no score for a number that is the same everywhere."""

    def _pull(self, node: fx.Node, coords: Coords, guard: Any, part: int) -> Value:
        if node not in self.bound and (not is_element_wise(node)):
            return self.compute("x", (), torch.float32, node)
        return super()._pull(node, coords, guard, part)
