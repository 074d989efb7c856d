"""Lower the kernel of a matmul: the prologue that computes its operands, and the epilogue on its result.

The axes of a matmul are its rows, its columns and the summed dimension. If a view merges two dimensions, their axis is
split, so that the address of every element is again a sum of axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy
import torch
from torch import fx

from fx_lsp.codegen.graph.query import dimension, matmul_operands, shape_of
from fx_lsp.codegen.ir.index import ONE, Coords, Index, Space, contiguous_strides, linear
from fx_lsp.codegen.ir.lowerings import NotFusible, args_of, operation
from fx_lsp.codegen.ir.ops import ADD, MUL
from fx_lsp.codegen.ir.values import Buffer, Constant, Reduction, Scan, Store, Value, Variable, values_of
from fx_lsp.codegen.ir.write_target import WriteTarget
from fx_lsp.codegen.lower.algebra import simplify
from fx_lsp.codegen.lower.builder import Builder, Domain


@dataclass(frozen=True)
class MatmulValues:
    """The values of a matmul kernel: the tiles of its operands, and its stores.

    `groups` are its axes: batches, rows, columns, and the summed dimension.
    """

    node: fx.Node
    left: Value
    right: Value
    stores: tuple[Store, ...]
    builder: Builder
    groups: tuple[tuple[sympy.Symbol, ...], ...]


def matmul_values(
    node: fx.Node, memory: Mapping[fx.Node, Buffer], targets: Mapping[fx.Node, WriteTarget]
) -> MatmulValues:
    """Return the values of a kernel that stores `targets`; all nodes are of a subgraph. Raises NotFusible if it has
    none.
    """
    axes = _MatmulAxes(node, memory)
    left, right = matmul_operands(node)
    bound: dict[fx.Node, tuple[Coords, Value]] = {}
    sizes = axes.space.sizes
    builder = Builder(axes.space, Domain(tuple(sizes), tuple(sizes.values())), memory, True, bound)
    tiles = builder.lower(left, axes.coordinates(axes.left)), builder.lower(right, axes.coordinates(axes.right))
    coords = axes.coordinates(axes.layouts[node])
    result_axes = frozenset(axis for group in axes.groups[:3] for axis in group)
    bound[node] = coords, _with_addend(builder, node, coords, Variable(torch.float32, node, result_axes, "acc"))
    stores: list[Store] = []
    for result, target in targets.items():
        where = axes.coordinates(axes.layouts[result])
        value = builder.lower(result, where)
        stores.append(Store(target.buffer, sympy.expand(target.index(axes.space, where)), value, result))
    for value in values_of([*tiles, *(s.value for s in stores)]):
        if isinstance(value, (Reduction, Scan)):
            raise NotFusible(value.node or node, "needs elements of other programs")
    if any(isinstance(t, Constant) for t in tiles):
        raise NotFusible(node, "multiplies by one number")
    return MatmulValues(node, *tiles, tuple(stores), builder, axes.groups)


class _MatmulAxes:
    """The axes of a matmul kernel, split as the views of its operands and results require.

    `layouts` are those of the matmul and of the nodes computed from it, `left` and `right` those of its operands.
    """

    def __init__(self, node: fx.Node, memory: Mapping[fx.Node, Buffer]) -> None:
        self.splitting = splitting = AxisSplitting()
        left, right = matmul_operands(node)
        *batches, rows, columns = shape_of(node)
        batch = [splitting.axis(s) for s in batches]
        m, n, k = (splitting.axis(s) for s in (rows, columns, shape_of(left)[-1]))
        self.layouts: dict[fx.Node, AxisLayout] = {node: (*batch, m, n)}
        _lay_out_results(splitting, self.layouts, node)
        self.left: AxisLayout = (*batch, m, k)
        self.right: AxisLayout = (*batch, k, n)
        sources = [pair for of, layout in self.layouts.items() for pair in splitting.behind(of, layout).items()]
        operands = [(left, self.left), (right, self.right), *_addend(node, self.layouts[node])]
        for source, layout in [*operands, *sources]:
            if source not in self.layouts:
                _refine_axes(splitting, source, layout, memory)
        self.space, self.symbols = Space(), dict[int, sympy.Symbol]()
        groups = [splitting.leaves(axes) for axes in ([a for dim in batch for a in dim], m, n, k)]
        for group, name in zip(groups, ("b", "i", "j", "l"), strict=True):
            for place, leaf in enumerate(group):
                self.symbols[leaf] = self.space.axis(f"{name}{place}", splitting.sizes[leaf])
        self.groups = tuple(tuple(self.symbols[a] for a in group) for group in groups)

    def coordinates(self, layout: AxisLayout) -> Coords:
        """Return the coordinates of an element in a tensor of a layout."""
        dims = [self.splitting.leaves(dim) for dim in layout]
        sizes = self.splitting.sizes
        return tuple(linear([self.symbols[a] for a in d], contiguous_strides([sizes[a] for a in d])) for d in dims)


def _lay_out_results(splitting: AxisSplitting, layouts: dict[fx.Node, AxisLayout], node: fx.Node) -> None:
    """Find the layout of every node computed from a matmul."""
    for other in node.graph.nodes:
        if other not in layouts and any(i in layouts for i in other.all_input_nodes):
            layout = splitting.ahead(other, layouts)
            if layout is None:
                raise NotFusible(other, "has different elements than the matmul")
            layouts[other] = layout


def _refine_axes(splitting: AxisSplitting, node: fx.Node, layout: AxisLayout, memory: Mapping[fx.Node, Buffer]) -> None:
    """Split axes as the views between memory and a node require."""
    pending, seen = [(node, layout)], {node}
    while pending:
        current, at = pending.pop()
        if current in memory:
            continue
        for source, behind in splitting.behind(current, at).items():
            if source not in seen:
                seen.add(source)
                pending.append((source, behind))


def _addend(node: fx.Node, layout: AxisLayout) -> list[tuple[fx.Node, AxisLayout]]:
    """Return the tensor added to a product and its layout, in a list; the list is empty if there is none."""
    if "add" not in operation(node):
        return []
    source: Any = args_of(node)[0]
    addend_layout = broadcast_layout(layout, shape_of(node), shape_of(source))
    return [] if addend_layout is None else [(source, addend_layout)]


def _with_addend(b: Builder, node: fx.Node, coords: Coords, product: Value) -> Value:
    """Return the result of a matmul, with the addend of `addmm` and `baddbmm`."""
    if "add" not in operation(node):
        return product
    alpha, beta = (node.kwargs.get(word, 1) for word in ("alpha", "beta"))
    if not all(isinstance(factor, (int, float)) for factor in (alpha, beta)):
        raise NotFusible(node, "has a factor that is unknown until it runs")
    numbers = [b.constant(float(f), torch.float32) for f in (alpha, beta)]  # pyright: ignore[reportArgumentType]
    value = simplify(b, MUL, (product, numbers[0]), torch.float32, node)
    if beta == 0:
        return value
    addend = b.operand(args_of(node)[0], coords, (), torch.float32)
    return b.compute(ADD, (value, simplify(b, MUL, (addend, numbers[1]), torch.float32, node)), torch.float32, node)


AxisLayout: TypeAlias = tuple[tuple[int, ...], ...]
"""The numbers of the axes of each dimension of a tensor, outermost first. Dimensions of size 1 have none."""

_SAME_ORDER = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand")


class AxisSplitting:
    """Axes that are split as views require."""

    def __init__(self) -> None:
        self.sizes: list[Index] = []
        self._parts: dict[int, tuple[int, int]] = {}

    def axis(self, size: Index) -> tuple[int, ...]:
        """Return a new dimension of its own axis. It has no axis if its size is 1."""
        if size == 1:
            return ()
        self.sizes.append(size)
        return (len(self.sizes) - 1,)

    def leaves(self, axes: Iterable[int]) -> tuple[int, ...]:
        """Return the axes that some axes have been split into."""
        parts: list[int] = []
        for axis in axes:
            parts.extend(self.leaves(self._parts[axis]) if axis in self._parts else (axis,))
        return tuple(parts)

    def reshaped(self, layout: AxisLayout, shape: Coords) -> AxisLayout | None:
        """Return the layout of the same elements in order under another shape, or None if no axes fit the shape."""
        rest = list(self.leaves(axis for dim in layout for axis in dim))
        dims: list[tuple[int, ...]] = []
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
            dims.append(tuple(dim))
        return None if rest else tuple(reversed(dims))

    def ahead(self, node: fx.Node, layouts: Mapping[fx.Node, AxisLayout]) -> AxisLayout | None:
        """Return the layout of a node from the `layouts` of its inputs."""
        source = next(i for i in node.all_input_nodes if i in layouts)
        layout, shape, order = layouts[source], shape_of(node), permuted_dimensions(node)
        if order is not None:
            return tuple(layout[d] for d in order)
        if _name(node) in _SAME_ORDER or _without_ones(shape) == _without_ones(shape_of(source)):
            return self.reshaped(layout, shape)
        return None

    def behind(self, node: fx.Node, layout: AxisLayout) -> dict[fx.Node, AxisLayout]:
        """Return the layouts of the inputs of a node, without those that are unknown."""
        layouts: dict[fx.Node, AxisLayout] = {}
        order = permuted_dimensions(node)
        for source in node.all_input_nodes:
            shape = shape_of(source) if hasattr(source.meta.get("val"), "stride") else None
            if shape is None:
                continue
            source_layout: AxisLayout | None
            if order is not None:
                source_layout = tuple(layout[order.index(d)] for d in range(len(order)))
            elif _name(node) in _SAME_ORDER[:-1]:
                source_layout = self.reshaped(layout, shape)
            else:
                source_layout = broadcast_layout(layout, shape_of(node), shape)
            if source_layout is not None:
                layouts[source] = source_layout
        return layouts


def broadcast_layout(layout: AxisLayout, shape: Coords, source: Coords) -> AxisLayout | None:
    """Return the layout of a tensor that is broadcast to `shape`, or None if it cannot be."""
    if len(source) > len(shape):
        return None
    start = len(shape) - len(source)
    if any(s != 1 and s != t for s, t in zip(source, shape[start:], strict=True)):
        return None
    return tuple(() if s == 1 else dim for s, dim in zip(source, layout[start:], strict=True))


def permuted_dimensions(node: fx.Node) -> list[int] | None:
    """Return the dimensions of its argument in the order of a permuting node, or None for any other node."""
    if _name(node) != "permute":
        return None
    order: Any = args_of(node)[1]
    return [dimension(d, len(order)) for d in order]


def _name(node: fx.Node) -> str:
    parts = operation(node).split(".")
    return parts[1] if len(parts) > 1 else ""


def _without_ones(shape: Sequence[Index]) -> list[Index]:
    return [s for s in shape if s != 1]


def _quotient(size: Index, divisor: Index) -> Index | None:
    """Return a size divided by another, or None if the quotient is not an integer."""
    quotient = sympy.cancel(size / divisor)
    return quotient if sympy.fraction(quotient)[1] == 1 else None
