"""What the kernel of a matmul computes: of its operands before it, and of its result behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from fx_lsp.codegen.index import Coords, Space, contiguous_strides, linear
from fx_lsp.codegen.lowerings.pointwise import simplified
from fx_lsp.codegen.matmul_axes import Layout, Splitting, broadcast
from fx_lsp.codegen.own import Piece, piece_of
from fx_lsp.codegen.places import Place
from fx_lsp.codegen.pull import Builder, Cut, Domain, shape_of
from fx_lsp.codegen.registry import args_of, operation
from fx_lsp.codegen.values import Buffer, Constant, Given, Reduction, Scan, Store, Value, values_of


@dataclass(frozen=True)
class Matmul:
    """`node`, a matmul, and the `results` that are computed of it, itself perhaps; `reads` are tensors in memory."""

    node: fx.Node
    results: tuple[fx.Node, ...]
    reads: tuple[fx.Node, ...]

    def piece(self) -> Piece:
        """The part of the graph that computes the results."""
        return piece_of(self.reads, (self.node, *self.results))


@dataclass(frozen=True)
class Computed:
    """What a kernel computes: tiles of its operands, and what it stores. `groups` are its axes: those of batches, of
    rows, of columns, and what is summed."""

    node: fx.Node
    left: Value
    right: Value
    stores: tuple[Store, ...]
    builder: Builder
    groups: tuple[tuple[sympy.Symbol, ...], ...]


def operands(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The two tensors that a matmul multiplies."""
    left, right = args_of(node)[1:3] if "add" in operation(node) else args_of(node)[:2]
    return left, right


def computed(node: fx.Node, memory: Mapping[fx.Node, Buffer], targets: Mapping[fx.Node, Place]) -> Computed:
    """The values of a kernel that stores `targets`; all are nodes of a piece. Raises Cut where it cannot have one."""
    splitting = Splitting()
    left, right = operands(node)
    *batches, rows, columns = shape_of(node)
    batch = [splitting.axis(s) for s in batches]
    m, n, k = (splitting.axis(s) for s in (rows, columns, shape_of(left)[-1]))
    layouts: dict[fx.Node, Layout] = {node: (*batch, m, n)}
    _lay_out(splitting, layouts, node)
    lefts, rights = (*batch, m, k), (*batch, k, n)
    backwards = [(s, at) for member, layout in layouts.items() for s, at in splitting.behind(member, layout).items()]
    for source, layout in [(left, lefts), (right, rights), *_addend(node, layouts[node]), *backwards]:
        if source not in layouts:
            _refine(splitting, source, layout, memory)
    space, symbols = Space(), dict[int, sympy.Symbol]()
    groups = tuple(splitting.leaves(axes) for axes in ([a for dim in batch for a in dim], m, n, k))
    for group, name in zip(groups, ("b", "i", "j", "l"), strict=True):
        symbols |= {leaf: space.axis(f"{name}{p}", splitting.sizes[leaf]) for p, leaf in enumerate(group)}

    def at(layout: Layout) -> Coords:
        split = [splitting.leaves(dim) for dim in layout]
        return tuple(
            linear([symbols[a] for a in d], contiguous_strides([splitting.sizes[a] for a in d])) for d in split
        )

    bound: dict[fx.Node, tuple[Coords, Value]] = {}
    builder = Builder(space, Domain(tuple(space.sizes), tuple(space.sizes.values())), memory, True, bound)
    tiles = builder.pull(left, at(lefts)), builder.pull(right, at(rights))
    coords = at(layouts[node])
    axes = frozenset(symbols[a] for group in groups[:3] for a in group)
    bound[node] = coords, _with_addend(builder, node, coords, Given(torch.float32, node, axes, "acc"))
    stores: list[Store] = []
    for result, place in targets.items():
        where = at(layouts[result])
        value = builder.pull(result, where)
        stores.append(Store(place.buffer, sympy.expand(place.index(space, where)), value, result))
    for value in values_of([*tiles, *(s.value for s in stores)]):
        if isinstance(value, (Reduction, Scan)):
            raise Cut(value.node or node, "needs elements that other programs have")
    if any(isinstance(t, Constant) for t in tiles):
        raise Cut(node, "multiplies by one number")
    return Computed(node, *tiles, tuple(stores), builder, tuple(tuple(symbols[a] for a in g) for g in groups))


def _lay_out(splitting: Splitting, layouts: dict[fx.Node, Layout], node: fx.Node) -> None:
    """How everything lies that is computed of a matmul."""
    for other in node.graph.nodes:
        if other not in layouts and any(i in layouts for i in other.all_input_nodes):
            layout = splitting.ahead(other, layouts)
            if layout is None:
                raise Cut(other, "has other elements than the matmul")
            layouts[other] = layout


def _refine(splitting: Splitting, node: fx.Node, layout: Layout, memory: Mapping[fx.Node, Buffer]) -> None:
    """Split axes as the views between memory and a node need it."""
    pending, seen = [(node, layout)], {node}
    while pending:
        current, at = pending.pop()
        if current in memory:
            continue
        for source, behind in splitting.behind(current, at).items():
            if source not in seen:
                seen.add(source)
                pending.append((source, behind))


def _addend(node: fx.Node, layout: Layout) -> list[tuple[fx.Node, Layout]]:
    """What is added to a product, and how it lies."""
    if "add" not in operation(node):
        return []
    source: Any = args_of(node)[0]
    found = broadcast(layout, shape_of(node), shape_of(source))
    return [] if found is None else [(source, found)]


def _with_addend(b: Builder, node: fx.Node, coords: Coords, product: Value) -> Value:
    """The result of a matmul, with what `addmm` and `baddbmm` add to the product."""
    if "add" not in operation(node):
        return product
    alpha, beta = (node.kwargs.get(word, 1) for word in ("alpha", "beta"))
    if not all(isinstance(factor, (int, float)) for factor in (alpha, beta)):
        raise Cut(node, "has a factor that is known only when it runs")
    numbers = [b.constant(float(f), torch.float32) for f in (alpha, beta)]  # pyright: ignore[reportArgumentType]
    value = simplified(b, "a * b", (product, numbers[0]), torch.float32, node)
    if beta == 0:
        return value
    addend = b.operand(args_of(node)[0], coords, (), torch.float32)
    return b.compute(
        "a + b", (value, simplified(b, "a * b", (addend, numbers[1]), torch.float32, node)), torch.float32, node
    )
