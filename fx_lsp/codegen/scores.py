"""Scores of an attention: where the elements of tensors lie among them, and what sums them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.index import ONE, Coords, Index, Space, contiguous_strides, count, expression, linear
from fx_lsp.codegen.lowerings.reductions import is_reduction, reduced_dimensions
from fx_lsp.codegen.pull import Builder, Cut, Domain, shape_of
from fx_lsp.codegen.registry import lowering_of, operation
from fx_lsp.codegen.values import Value


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
