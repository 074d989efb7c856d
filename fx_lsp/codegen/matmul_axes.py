"""Of which axes the dimensions of tensors are made that are computed from each other element by element.

The axes of a matmul are its rows, columns and what is summed; where a view makes two dimensions of one, its axis is
split, so that the place of every element is a sum of axes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
from torch import fx

from fx_lsp.codegen.index import ONE, Coords, Index
from fx_lsp.codegen.lowerings.views import dimension
from fx_lsp.codegen.pull import shape_of
from fx_lsp.codegen.registry import args_of, operation

Layout: TypeAlias = tuple[tuple[int, ...], ...]
"""For each dimension of a tensor the numbers of its axes, outermost first; none where its size is 1."""

_SAME_ORDER = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand")


class Splitting:
    """Axes, which are split as views need it."""

    def __init__(self) -> None:
        self.sizes: list[Index] = []
        self._parts: dict[int, tuple[int, int]] = {}

    def axis(self, size: Index) -> tuple[int, ...]:
        """A dimension of its own."""
        if size == 1:
            return ()
        self.sizes.append(size)
        return (len(self.sizes) - 1,)

    def leaves(self, axes: Iterable[int]) -> tuple[int, ...]:
        """What axes have been split into."""
        found: list[int] = []
        for axis in axes:
            found.extend(self.leaves(self._parts[axis]) if axis in self._parts else (axis,))
        return tuple(found)

    def reshaped(self, layout: Layout, shape: Coords) -> Layout | None:
        """The same elements in the same order under another shape; None where no axes fit it."""
        rest = list(self.leaves(axis for dim in layout for axis in dim))
        found: list[tuple[int, ...]] = []
        for size in reversed(shape):
            dim: list[int] = []
            while size != 1:
                if not rest:
                    return None
                last = rest.pop()
                more = _quotient(size, self.sizes[last])
                if more is None:
                    outer = _quotient(self.sizes[last], size)
                    if outer is None:
                        return None
                    rest.append(len(self.sizes))
                    self._parts[last] = (len(self.sizes), len(self.sizes) + 1)
                    self.sizes += [outer, size]
                    last, more = len(self.sizes) - 1, ONE
                dim.insert(0, last)
                size = more
            found.append(tuple(dim))
        return None if rest else tuple(reversed(found))

    def ahead(self, node: fx.Node, known: Mapping[fx.Node, Layout]) -> Layout | None:
        """How a node lies that is computed from others, of which some are `known`."""
        source = next(i for i in node.all_input_nodes if i in known)
        layout, shape, order = known[source], shape_of(node), permutation(node)
        if order is not None:
            return tuple(layout[d] for d in order)
        if _name(node) in _SAME_ORDER or _long(shape) == _long(shape_of(source)):
            return self.reshaped(layout, shape)
        return None

    def behind(self, node: fx.Node, layout: Layout) -> dict[fx.Node, Layout]:
        """How the tensors lie that a node is computed from, as far as that is known."""
        found: dict[fx.Node, Layout] = {}
        order = permutation(node)
        for source in node.all_input_nodes:
            shape = shape_of(source) if hasattr(source.meta.get("val"), "stride") else None
            if shape is None:
                continue
            made: Layout | None
            if order is not None:
                made = tuple(layout[order.index(d)] for d in range(len(order)))
            elif _name(node) in _SAME_ORDER[:-1]:
                made = self.reshaped(layout, shape)
            else:
                made = broadcast(layout, shape_of(node), shape)
            if made is not None:
                found[source] = made
        return found


def broadcast(layout: Layout, shape: Coords, source: Coords) -> Layout | None:
    """How a tensor lies that is broadcast to one of `shape`; None where it is not."""
    if len(source) > len(shape):
        return None
    start = len(shape) - len(source)
    if any(s != 1 and s != t for s, t in zip(source, shape[start:], strict=True)):
        return None
    return tuple(() if s == 1 else dim for s, dim in zip(source, layout[start:], strict=True))


def permutation(node: fx.Node) -> list[int] | None:
    """Which dimension of its argument each dimension of a node is, if it puts them into another order."""
    if _name(node) != "permute":
        return None
    order: Any = args_of(node)[1]
    return [dimension(d, len(order)) for d in order]


def _name(node: fx.Node) -> str:
    parts = operation(node).split(".")
    return parts[1] if len(parts) > 1 else ""


def _long(shape: Sequence[Index]) -> list[Index]:
    return [s for s in shape if s != 1]


def _quotient(size: Index, divisor: Index) -> Index | None:
    """A size divided by another, where that is a whole number."""
    found = sympy.cancel(size / divisor)
    return found if sympy.fraction(found)[1] == 1 else None
