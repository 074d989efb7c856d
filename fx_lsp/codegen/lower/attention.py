"""Answer, for the pattern of attention, where the elements of a tensor computed from scores come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.query import shape_of
from fx_lsp.codegen.graph.templates.attention_pattern import is_element_wise
from fx_lsp.codegen.ir.index import Space, contiguous_strides, linear
from fx_lsp.codegen.ir.lowerings import NotFusible
from fx_lsp.codegen.ir.ops import op
from fx_lsp.codegen.ir.template import ScoreLayout
from fx_lsp.codegen.ir.values import Value
from fx_lsp.codegen.lower.builder import Builder, Domain


def keeps_score_places(layout: ScoreLayout, node: fx.Node, swapped: bool, products: Iterable[fx.Node]) -> bool:
    """Return True if each element of a node depends on the scores `products` at its own place only.

    The order of the elements is that of the scores, or `swapped`: with the columns before the rows.
    """
    space = Space()
    b, m, n = layout.axes(space)
    rows, sizes = ((n, m), (layout.n, layout.m)) if swapped else ((m, n), (layout.m, layout.n))
    coords = space.coordinates(linear((b, *rows), contiguous_strides((layout.batch, *sizes))), shape_of(node))
    bound = {p: (layout.at((b, m, n)), Value(torch.float32, p, frozenset((m, n)))) for p in products}
    try:
        _UniformBuilder(space, Domain((), ()), {}, True, bound).lower(node, coords)
    except NotFusible:
        return False
    return True


class _UniformBuilder(Builder):
    """Lower every tensor that is no score as a number that is the same everywhere."""

    def _lower(self, node: fx.Node, coords: Any, guard: Any, part: int) -> Value:
        if node not in self.bound and (not is_element_wise(node)):
            return self.compute(op("x"), (), torch.float32, node)
        return super()._lower(node, coords, guard, part)
