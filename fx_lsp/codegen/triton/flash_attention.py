"""Kernels for attention that see a tile of the scores at a time: forward with an online softmax, backward in two, and
the gradient of a bias, which sums scores over the batches that share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.choices import Precision
from fx_lsp.codegen.graph.attention import (
    Attention,
    Product,
    Sum,
    lay_out,
    reads_of,
    say_roles,
    scale_scores,
    use_result,
    with_scale,
)
from fx_lsp.codegen.graph.edit import tidied
from fx_lsp.codegen.graph.query import shape_of
from fx_lsp.codegen.graph.template_kernel import Piece, Writer, land_results, outputs_of, piece_of, replace_with_kernel
from fx_lsp.codegen.ir.index import ZERO, Coords, contiguous_strides, linear
from fx_lsp.codegen.ir.kernel import Kernel, Line, Naming
from fx_lsp.codegen.ir.ops import operation
from fx_lsp.codegen.ir.text import size_text, unparsed
from fx_lsp.codegen.ir.tile import Dim, Tile
from fx_lsp.codegen.ir.values import Buffer, Value
from fx_lsp.codegen.ir.write_target import Place
from fx_lsp.codegen.lower.algebra import unscaled
from fx_lsp.codegen.lower.attention import Shapes, find_attention
from fx_lsp.codegen.triton.attention import Attending, block_for, bounds, is_moderate, operand_text
from fx_lsp.codegen.triton.reductions import power, powers, reference

CONFIGS_FORWARD = ((128, 128, 8, 3), (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3))
CONFIGS_BACKWARD = ((64, 128, 8, 3), (64, 64, 4, 3), (128, 64, 8, 2), (32, 128, 4, 3), (64, 128, 4, 2))


def forward_writer(found: Attention, reads: Sequence[fx.Node], precision: Precision) -> Writer:
    """Writes the kernel that makes the result, and the maximum and the sum of each row for backward."""
    wanted = [found.first, found.shifted, found.weights, found.result.scores, found.result.other]
    piece = piece_of(reads, wanted)
    shapes = Shapes(found.first)

    def write(
        places: Mapping[int, Place], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        return [_Forward(title, found, piece, shapes, places, buffers, naming, precision).kernel()]

    return write


def backward_writers(found: Attention) -> list[tuple[list[fx.Node], list[Product]]]:
    """The results of backward, those that sum over m and those that sum over n apart: one kernel each."""
    groups = [[p for p in found.backward if p.over == over] for over in ("m", "n")]
    return [([p.node for p in group], group) for group in groups if group]


def backward_writer(
    found: Attention, products: Sequence[Product], reads: Sequence[fx.Node], precision: Precision
) -> Writer:
    """Writes the kernel that makes the gradients that sum over m (of keys and values), or over n (of queries)."""
    assert found.gradient is not None
    wanted = [found.first, found.gradient, *(n for p in products for n in (p.scores, p.other))]
    piece = piece_of(reads, wanted)
    shapes = Shapes(found.first)

    def write(
        places: Mapping[int, Place], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        return [
            _Backward(
                f"{title}_{'columns' if products[0].over == 'm' else 'rows'}",
                found,
                products,
                piece,
                shapes,
                places,
                buffers,
                naming,
                precision,
            ).kernel()
        ]

    return write


def sum_writer(found: Attention, summed: Sum, reads: Sequence[fx.Node], precision: Precision) -> Writer:
    """Writes the kernel that makes a sum of scores over batches, the gradient of a bias."""
    assert found.gradient is not None
    piece = piece_of(reads, [found.first, found.gradient, summed.scores])
    shapes = Shapes(found.first)

    def write(
        places: Mapping[int, Place], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        name = f"{title}_{naming.name(places[0].node)}"
        return [SummedScores(name, found, summed, piece, shapes, places, buffers, naming, precision).kernel()]

    return write


class _Forward(Attending):
    def __init__(
        self,
        title: str,
        found: Attention,
        piece: Piece,
        shapes: Shapes,
        places: Mapping[int, Place],
        buffers: Mapping[fx.Node, Buffer],
        naming: Naming,
        precision: Precision,
    ) -> None:
        super().__init__(title, "m", piece, shapes, places, buffers, naming, precision, CONFIGS_FORWARD)
        self.found = found

    def kernel(self) -> Kernel:
        found, first = self.found, self.found.first
        self.begin()
        dtype = first.meta["val"].dtype
        queries, keys = self.sides(first)
        wide = self.depth_axis(shape_of(found.result.other)[-1])
        values = self.operand(self.piece.of[found.result.other], self.n, wide, False)
        self.bind(first, "products")
        shifted = self.score(found.shifted)
        self.bind(found.weights, "weights")
        kept = self.score(found.result.scores)
        self.prepare([queries, keys, values, shifted, kept])
        q = operand_text(self, queries, dtype)
        shape = f"[ROWS, {block_for(int(self.space.sizes[wide]))}]"
        self.line('running_max = tl.full([ROWS], -float("inf"), tl.float32)')
        self.line("running_sum = tl.zeros([ROWS], tl.float32)")
        self.line(f"acc = tl.zeros({shape}, tl.float32)")
        low, high = bounds(shifted, self.m, self.n, "m", self.shapes)

        def body() -> None:
            k = operand_text(self, keys, dtype)
            self.line(f"products = {self.dot(q, f'{k}.T', dtype)}", first)
            scores = unparsed(self.ref(shifted))
            if not self.even(self.ndim):
                scores = f'tl.where(cols[None, :] < {size_text(self.shapes.n)}, {scores}, -float("inf"))'
            if not scores.isidentifier():
                self.line(f"scores = {scores}", found.most)
                scores = "scores"
            self.line(f"higher = tl.maximum(running_max, tl.max({scores}, axis=1))", found.most)
            self.line(f"base = {reference('higher')}")
            self.line(f"weights = {powers(scores, 'base', is_moderate(shifted))}", found.total)
            self.line(f"scale = {power('running_max', 'base')}")
            self.line("running_sum = running_sum * scale + tl.sum(weights, axis=1)", found.total)
            v = operand_text(self, values, dtype)
            held = self.rounded(unparsed(self.ref(kept)), dtype)
            self.line(f"acc = {self.dot(held, v, dtype, 'acc * scale[:, None]')}", found.result.node)
            self.line("running_max = higher")

        self.loop_over(low, high, body)
        writes: list[Buffer] = []
        targets = {
            0: ((self.b, self.m, wide), "acc / running_sum[:, None]"),
            1: ((self.b, self.m, ZERO), "running_max[:, None]"),
            2: ((self.b, self.m, ZERO), "running_sum[:, None]"),
        }
        for number, (coords, text) in targets.items():
            if number in self.places:
                place = self.places[number]
                writes.append(place.buffer)
                self.store(place, self._of(place.shape, coords), text)
        return self.finished(writes)

    def _of(self, shape: Coords, coords: Coords) -> Coords:
        """Coordinates of a result of some shape; the row statistics may have any with an element for each row."""
        if coords[2] is ZERO and len(shape) != (3 if self.batched else 2):
            return self.space.coordinates(self.b * self.shapes.m + self.m, shape)
        return coords if self.batched else coords[1:]


class _Backward(Attending):
    def __init__(
        self,
        title: str,
        found: Attention,
        products: Sequence[Product],
        piece: Piece,
        shapes: Shapes,
        places: Mapping[int, Place],
        buffers: Mapping[fx.Node, Buffer],
        naming: Naming,
        precision: Precision,
    ) -> None:
        over = products[0].over
        configs = CONFIGS_BACKWARD if over == "m" else tuple((c, r, w, s) for r, c, w, s in CONFIGS_BACKWARD)
        fixed = "n" if over == "m" else "m"
        super().__init__(title, fixed, piece, shapes, places, buffers, naming, precision, configs)
        self.found, self.products = found, products

    def kernel(self) -> Kernel:
        found = self.found
        assert found.gradient is not None
        self.begin()
        dtype = found.first.meta["val"].dtype
        operands = [self.sides(product) for product in (found.first, found.gradient)]
        self.bind(found.first, "products")
        self.bind(found.gradient, "grad_weights")
        self.bind_weights(found)
        chosen = [(i, p) for i, p in enumerate(self.products) if i in self.places]
        scores: list[Value] = []
        factors: list[float] = []
        others: list[Value] = []
        for _, product in chosen:
            row = self.m if product.over == "m" else self.n
            inner = shape_of(product.other)[-2 if product.transposed else -1]
            other = self.piece.of[product.other]
            others.append(self.operand(other, row, self.depth_axis(inner), product.transposed))
            score, factor = unscaled(self._oriented(product))
            scores.append(score)
            factors.append(factor)
        self.prepare([*(o for pair in operands for o in pair), *others, *scores])
        names: list[str] = []
        for (_, product), other in zip(chosen, others, strict=True):
            width = next(int(self.space.sizes[d]) for d in self.depths if d in other.axes)
            names.append(self.unique(f"{self.naming.name(self.places[self.products.index(product)].node)}_acc"))
            block = "COLS" if product.over == "m" else "ROWS"
            self.line(f"{names[-1]} = tl.zeros([{block}, {block_for(width)}], tl.float32)", product.node)
        low, high = bounds(scores[0], self.m, self.n, self.fixed, self.shapes)
        for value in (*(o for pair in operands for o in pair), *others):
            if not self.looped(value):
                operand_text(self, value, dtype)

        def body() -> None:
            for (left, right), title, node in zip(
                operands, ("products", "grad_weights"), (found.first, found.gradient), strict=True
            ):
                a, b = operand_text(self, left, dtype), operand_text(self, right, dtype)
                self.line(f"{title} = {self.dot(a, f'{b}.T', dtype)}", node)
            for (_, product), score, other, name in zip(chosen, scores, others, names, strict=True):
                held = unparsed(self.ref(score))
                outside = [
                    f"({v} < {size_text(s)})"
                    for v, s, d in (
                        ("rows[:, None]", self.shapes.m, self.mdim),
                        ("cols[None, :]", self.shapes.n, self.ndim),
                    )
                    if not self.even(d)
                ]
                if outside:
                    held = f"tl.where({' & '.join(outside)}, {held}, 0.0)"
                held = self.rounded(held, dtype)
                held = self.transposed(held) if product.over == "m" else held
                self.line(f"{name} = {self.dot(held, operand_text(self, other, dtype), dtype, name)}", product.node)

        self.loop_over(low, high, body)
        writes: list[Buffer] = []
        for (number, product), other, name, factor in zip(chosen, others, names, factors, strict=True):
            place = self.places[number]
            writes.append(place.buffer)
            depth = next(d for d in self.depths if d in other.axes)
            row = self.n if product.over == "m" else self.m
            at = (depth, row) if product.transposed else (row, depth)
            text = name if factor == 1 else f"{name} * {factor!r}"
            self.store(place, (self.b, *at) if self.batched else at, text)
        return self.finished(writes)

    def _oriented(self, product: Product) -> Value:
        """The scores of a product, whichever way its argument has them."""
        swapped = (product.over == "m") == (product.side == 0)
        return self.score(product.scores, swapped)


CONFIGS = ((128, 64, 8, 3), (64, 128, 8, 3), (64, 64, 4, 3), (128, 128, 8, 2), (64, 32, 4, 3))


class SummedScores(Attending):
    """A program keeps rows and columns, and goes through the batches that are summed. Two runs give the same bits."""

    def __init__(
        self,
        title: str,
        found: Attention,
        summed: Sum,
        piece: Piece,
        shapes: Shapes,
        places: Mapping[int, Place],
        buffers: Mapping[fx.Node, Buffer],
        naming: Naming,
        precision: Precision,
    ) -> None:
        super().__init__(title, "m", piece, shapes, places, buffers, naming, precision, CONFIGS)
        self.found, self.summed = found, summed
        self.taken.update(("share", "step"))
        self.ndim = replace(self.ndim, role="grid")
        number = sympy.cancel(shapes.batch / summed.summed)
        self.share = self.space.axis("share", number) if number != 1 else ZERO
        self.others_named = {self.share: "share"} if number != 1 else {}
        share = Dim((sympy.Symbol("share"),), (number,), "grid", 1, "share", "B", "")
        self.tile = Tile((self.mdim, self.ndim, *([share] if number != 1 else [])), {}, self.tile.configs)

    def looped(self, value: Value) -> bool:
        return self.summed.summed != 1 and self.b in value.axes

    def kernel(self) -> Kernel:
        """The kernel."""
        found, summed = self.found, self.summed
        assert found.gradient is not None
        for number, dim in enumerate((self.mdim, self.ndim)):
            start = f"tl.program_id({number}) * {dim.block_name}"
            self.line(f"{dim.variable} = {start} + tl.arange(0, {dim.block_name})")
        if self.share != 0:
            name = "share" if summed.summed != 1 else "batch"
            self.others_named = {self.share: name}
            self.line(f"{name} = tl.program_id(2)" + (".to(tl.int64)" if self.is_large() else ""))
        dtype = found.first.meta["val"].dtype
        operands = [self.sides(product) for product in (found.first, found.gradient)]
        self.bind(found.first, "products")
        self.bind(found.gradient, "grad_weights")
        self.bind_weights(found)
        score = self.score(summed.scores)
        self.prepare([*(o for pair in operands for o in pair), score])

        def body() -> str:
            for (left, right), title, node in zip(
                operands, ("products", "grad_weights"), (found.first, found.gradient), strict=True
            ):
                a, b = operand_text(self, left, dtype), operand_text(self, right, dtype)
                self.line(f"{title} = {self.dot(a, f'{b}.T', dtype)}", node)
            return unparsed(self.ref(score))

        place = self.places[0]
        node = place.node
        if summed.summed != 1:
            self.line("acc = tl.zeros([ROWS, COLS], tl.float32)", node)
            self.in_loop = True
            self.line(f"batch = {self._batch()}")
            self.line(f"acc += {body()}", node)
            self.in_loop = False
            self.outer.lines.append(Line(f"    for step in range({size_text(summed.summed)}):"))
            self.outer.lines.extend(self.inner.lines)
            result = "acc"
        else:
            result = body()
        axes, sizes = (self.share, self.m, self.n), (ZERO, self.shapes.m, self.shapes.n)
        coords = self.space.coordinates(linear(axes, contiguous_strides(sizes)), place.shape)
        self.store(place, coords, result)
        return self.finished([place.buffer])

    def _batch(self) -> str:
        """The batch of a step."""
        if self.share == 0:
            return "step"
        summed, number = (self._bracketed(s) for s in (self.summed.summed, self.space.sizes[self.share]))
        return f"share * {summed} + step" if self.summed.inner else f"step * {number} + share"

    def finished(self, writes: Sequence[Buffer]) -> Kernel:
        return replace(super().finished(writes), tile=self.tile)


def fuse_attention(graph: fx.Graph, precision: Precision) -> None:
    """Have kernels of ours stand for every attention of a joint graph, or of one for inference; `precision` is how they
    multiply float32."""
    for node in list(graph.nodes):
        if operation(node) != "aten.amax.default":
            continue
        found = find_attention(graph, node)
        if found is None:
            continue
        say_roles(found)
        if found.dot is not None:
            use_result(graph, found)
        products = scale_scores(graph, found.first, found.backward)
        found = replace(found, backward=tuple(with_scale(graph, p) for p in products))
        groups = backward_writers(found)
        reads = reads_of(found, [found.result])
        writer = forward_writer(found, reads, precision)
        needed = [(results, products, reads_of(found, products)) for results, products in groups]
        apart = [(each, reads_of(found, (), each.scores)) for each in found.sums]
        made = replace_with_kernel(graph, [found.result.node, found.most, found.total], reads, writer)
        made.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        now = outputs_of(made)
        renamed = {found.result.node: now[0], found.most: now[1], found.total: now[2]}
        kernels: list[tuple[list[fx.Node], list[fx.Node], Writer]] = []
        for results, products, old in needed:
            lay_out(products)
            current = [renamed.get(n, n) for n in old]
            kernels.append((results, current, backward_writer(found, products, current, precision)))
        for each, old in apart:
            current = [renamed.get(n, n) for n in old]
            kernels.append(([each.node], current, sum_writer(found, each, current, precision)))
        for results, current, writer in kernels:
            replace_with_kernel(graph, results, current, writer)
        tidied(graph)
    land_results(graph)
