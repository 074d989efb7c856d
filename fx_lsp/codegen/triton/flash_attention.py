"""Kernels for attention that see a tile of the scores at a time: forward with an online softmax, backward in two, and
the gradient of a bias, which sums scores over the batches that share it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy
import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.choices import Choices, Precision
from fx_lsp.codegen.graph.attention import (
    Attention,
    ScoreProduct,
    ScoreSum,
    absorb_scale,
    match_layout,
    name_roles,
    replace_dot,
    scale_scores,
    tensors_read,
)
from fx_lsp.codegen.graph.edit import sort_graph
from fx_lsp.codegen.graph.query import shape_of
from fx_lsp.codegen.graph.template_kernel import (
    Subgraph,
    outputs_of,
    replace_with_kernel,
    subgraph_of,
)
from fx_lsp.codegen.ir.index import ZERO, Coords, contiguous_strides, linear
from fx_lsp.codegen.ir.kernel import Kernel, Naming
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import TemplateWriter
from fx_lsp.codegen.ir.statement import For
from fx_lsp.codegen.ir.text import fill_template, name, parse_expression, size_text, unparse
from fx_lsp.codegen.ir.tile import Dim, Tile
from fx_lsp.codegen.ir.values import Buffer, Value
from fx_lsp.codegen.ir.write_target import WriteTarget
from fx_lsp.codegen.lower.algebra import split_factor
from fx_lsp.codegen.lower.attention import ScoreLayout, find_attention
from fx_lsp.codegen.triton.attention import AttentionWriter, dot_block, is_moderate, loop_bounds, operand_expression
from fx_lsp.codegen.triton.reductions import exponential_below, exponentials_below, softmax_base

CONFIGS_FORWARD = ((128, 128, 8, 3), (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3))
CONFIGS_BACKWARD = ((64, 128, 8, 3), (64, 64, 4, 3), (128, 64, 8, 2), (32, 128, 4, 3), (64, 128, 4, 2))


def forward_writer(attention: Attention, reads: Sequence[fx.Node], precision: Precision) -> TemplateWriter:
    """Write the kernel that makes the result, and the maximum and the sum of each row for backward."""
    computed_nodes = [
        attention.score_product,
        attention.shifted,
        attention.weights,
        attention.result.scores,
        attention.result.other,
    ]
    subgraph = subgraph_of(reads, computed_nodes)
    layout = ScoreLayout(attention.score_product)

    def write(
        targets: Mapping[int, WriteTarget], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        return [_ForwardWriter(title, attention, subgraph, layout, targets, buffers, naming, precision).kernel()]

    return write


def backward_groups(attention: Attention) -> list[tuple[list[fx.Node], list[ScoreProduct]]]:
    """Return the results of backward, those that sum over m and those that sum over n apart: one kernel each."""
    groups = [[p for p in attention.backward if p.over == over] for over in ("m", "n")]
    return [([p.node for p in group], group) for group in groups if group]


def backward_writer(
    attention: Attention, products: Sequence[ScoreProduct], reads: Sequence[fx.Node], precision: Precision
) -> TemplateWriter:
    """Write the kernel that makes the gradients that sum over m (of keys and values), or over n (of queries)."""
    assert attention.gradient is not None
    computed_nodes = [attention.score_product, attention.gradient, *(n for p in products for n in (p.scores, p.other))]
    subgraph = subgraph_of(reads, computed_nodes)
    layout = ScoreLayout(attention.score_product)

    def write(
        targets: Mapping[int, WriteTarget], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        return [
            _BackwardWriter(
                f"{title}_{'columns' if products[0].over == 'm' else 'rows'}",
                attention,
                products,
                subgraph,
                layout,
                targets,
                buffers,
                naming,
                precision,
            ).kernel()
        ]

    return write


def sum_writer(
    attention: Attention, summed: ScoreSum, reads: Sequence[fx.Node], precision: Precision
) -> TemplateWriter:
    """Write the kernel that makes a sum of scores over batches, the gradient of a bias."""
    assert attention.gradient is not None
    subgraph = subgraph_of(reads, [attention.score_product, attention.gradient, summed.scores])
    layout = ScoreLayout(attention.score_product)

    def write(
        targets: Mapping[int, WriteTarget], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]:
        name = f"{title}_{naming.name(targets[0].node)}"
        return [
            _ScoreSumWriter(name, attention, summed, subgraph, layout, targets, buffers, naming, precision).kernel()
        ]

    return write


def write_score_products(
    writer: AttentionWriter, attention: Attention, operands: Sequence[tuple[Value, Value]]
) -> None:
    """Write the products that make the scores, and the gradient of the weights."""
    dtype = attention.score_product.meta["val"].dtype
    nodes = attention.score_product, attention.gradient
    for (left, right), title, node in zip(operands, ("products", "grad_weights"), nodes, strict=True):
        a, b = operand_expression(writer, left, dtype), operand_expression(writer, right, dtype)
        writer.define(title, writer.dot(a, fill_template("b.T", {"b": b}), dtype), node)


class _ForwardWriter(AttentionWriter):
    def __init__(
        self,
        title: str,
        attention: Attention,
        subgraph: Subgraph,
        layout: ScoreLayout,
        targets: Mapping[int, WriteTarget],
        buffers: Mapping[fx.Node, Buffer],
        naming: Naming,
        precision: Precision,
    ) -> None:
        super().__init__(title, "m", subgraph, layout, targets, buffers, naming, precision, CONFIGS_FORWARD)
        self.attention = attention

    def kernel(self) -> Kernel:
        attention, first = self.attention, self.attention.score_product
        self.begin()
        dtype = first.meta["val"].dtype
        queries, keys = self.sides(first)
        wide = self.depth_axis(shape_of(attention.result.other)[-1])
        values = self.operand(self.subgraph.of[attention.result.other], self.n, wide, False)
        self.bind(first, "products")
        shifted = self.score(attention.shifted)
        self.bind(attention.weights, "weights")
        weights = self.score(attention.result.scores)
        self.prepare([queries, keys, values, shifted, weights])
        q = operand_expression(self, queries, dtype)
        shape = f"[ROWS, {dot_block(int(self.space.sizes[wide]))}]"
        self.define("running_max", 'tl.full([ROWS], -float("inf"), tl.float32)')
        self.define("running_sum", "tl.zeros([ROWS], tl.float32)")
        self.define("acc", f"tl.zeros({shape}, tl.float32)")
        low, high = loop_bounds(shifted, self.m, self.n, "m", self.layout)

        def body() -> None:
            k = operand_expression(self, keys, dtype)
            self.define("products", self.dot(q, fill_template("b.T", {"b": k}), dtype), first)
            scores = self.ref(shifted)
            if not self.is_even(self.ndim):
                inside = parse_expression(f"cols[None, :] < {size_text(self.layout.n)}")
                scores = fill_template('tl.where(m, a, -float("inf"))', {"m": inside, "a": scores})
            if not isinstance(scores, ast.Name):
                self.define("scores", scores, attention.row_max)
                scores = name("scores")
            self.define("higher", f"tl.maximum(running_max, tl.max({scores.id}, axis=1))", attention.row_max)
            self.define("base", softmax_base("higher"))
            self.define("weights", exponentials_below(scores.id, "base", is_moderate(shifted)), attention.row_sum)
            self.define("scale", exponential_below("running_max", "base"))
            self.define("running_sum", "running_sum * scale + tl.sum(weights, axis=1)", attention.row_sum)
            v = operand_expression(self, values, dtype)
            rounded = self.rounded(self.ref(weights), dtype)
            self.define("acc", self.dot(rounded, v, dtype, "acc * scale[:, None]"), attention.result.node)
            self.define("running_max", "higher")

        self.loop_over(low, high, body)
        writes: list[Buffer] = []
        targets = {
            0: ((self.b, self.m, wide), "acc / running_sum[:, None]"),
            1: ((self.b, self.m, ZERO), "running_max[:, None]"),
            2: ((self.b, self.m, ZERO), "running_sum[:, None]"),
        }
        for number, (coords, text) in targets.items():
            if number in self.targets:
                place = self.targets[number]
                writes.append(place.buffer)
                self.store(place, self._of(place.shape, coords), text)
        return self.finished(writes)

    def _of(self, shape: Coords, coords: Coords) -> Coords:
        """Return coordinates of a result of some shape; the row statistics may have any with an element for each
        row."""
        if coords[2] is ZERO and len(shape) != (3 if self.batched else 2):
            return self.space.coordinates(self.b * self.layout.m + self.m, shape)
        return coords if self.batched else coords[1:]


class _BackwardWriter(AttentionWriter):
    def __init__(
        self,
        title: str,
        attention: Attention,
        products: Sequence[ScoreProduct],
        subgraph: Subgraph,
        layout: ScoreLayout,
        targets: Mapping[int, WriteTarget],
        buffers: Mapping[fx.Node, Buffer],
        naming: Naming,
        precision: Precision,
    ) -> None:
        over = products[0].over
        configs = CONFIGS_BACKWARD if over == "m" else tuple((c, r, w, s) for r, c, w, s in CONFIGS_BACKWARD)
        fixed = "n" if over == "m" else "m"
        super().__init__(title, fixed, subgraph, layout, targets, buffers, naming, precision, configs)
        self.attention, self.products = attention, products

    def kernel(self) -> Kernel:
        attention = self.attention
        assert attention.gradient is not None
        self.begin()
        dtype = attention.score_product.meta["val"].dtype
        operands = [self.sides(product) for product in (attention.score_product, attention.gradient)]
        self.bind(attention.score_product, "products")
        self.bind(attention.gradient, "grad_weights")
        self.bind_weights(attention)
        chosen = [(i, p) for i, p in enumerate(self.products) if i in self.targets]
        others = [self._other(product) for _, product in chosen]
        scores, factors = zip(*(split_factor(self._oriented(product)) for _, product in chosen), strict=True)
        self.prepare([*(o for pair in operands for o in pair), *others, *scores])
        names: list[str] = []
        for (_, product), other in zip(chosen, others, strict=True):
            width = next(int(self.space.sizes[d]) for d in self.depths if d in other.axes)
            names.append(self.unique(f"{self.naming.name(self.targets[self.products.index(product)].node)}_acc"))
            block = "COLS" if product.over == "m" else "ROWS"
            self.define(names[-1], f"tl.zeros([{block}, {dot_block(width)}], tl.float32)", product.node)
        low, high = loop_bounds(scores[0], self.m, self.n, self.fixed, self.layout)
        for value in (*(o for pair in operands for o in pair), *others):
            if not self.is_in_loop(value):
                operand_expression(self, value, dtype)

        def body() -> None:
            write_score_products(self, attention, operands)
            for (_, product), score, other, total in zip(chosen, scores, others, names, strict=True):
                left = self._operand_of(product, self._masked(self.ref(score)), dtype)
                right = operand_expression(self, other, dtype)
                self.define(total, self.dot(left, right, dtype, total), product.node)

        self.loop_over(low, high, body)
        writes: list[Buffer] = []
        for (number, product), other, total, factor in zip(chosen, others, names, factors, strict=True):
            place = self.targets[number]
            writes.append(place.buffer)
            self.store(place, self._coords_of(product, other), total if factor == 1 else f"{total} * {factor!r}")
        return self.finished(writes)

    def _coords_of(self, product: ScoreProduct, other: Value) -> Coords:
        """Return the coordinates of an element of the result of a product."""
        depth = next(d for d in self.depths if d in other.axes)
        row = self.n if product.over == "m" else self.m
        at = (depth, row) if product.transposed else (row, depth)
        return (self.b, *at) if self.batched else at

    def _other(self, product: ScoreProduct) -> Value:
        """Return the tile of what a product multiplies scores with."""
        row = self.m if product.over == "m" else self.n
        depth = self.depth_axis(shape_of(product.other)[-2 if product.transposed else -1])
        return self.operand(self.subgraph.of[product.other], row, depth, product.transposed)

    def _masked(self, scores: ast.expr) -> ast.expr:
        """Return scores that are 0 outside of the tensor."""
        outside = [
            f"({variable} < {size_text(size)})"
            for variable, size, dim in (
                ("rows[:, None]", self.layout.m, self.mdim),
                ("cols[None, :]", self.layout.n, self.ndim),
            )
            if not self.is_even(dim)
        ]
        if not outside:
            return scores
        return fill_template("tl.where(m, a, 0.0)", {"m": parse_expression(" & ".join(outside)), "a": scores})

    def _operand_of(self, product: ScoreProduct, scores: ast.expr, dtype: torch.dtype) -> ast.expr:
        """Return scores as the left operand of a product."""
        rounded = self.rounded(scores, dtype)
        return fill_template("a.T", {"a": rounded}) if product.over == "m" else rounded

    def _oriented(self, product: ScoreProduct) -> Value:
        """Return the scores of a product, whichever way its argument has them."""
        swapped = (product.over == "m") == (product.side == 0)
        return self.score(product.scores, swapped)


CONFIGS_SUM = ((128, 64, 8, 3), (64, 128, 8, 3), (64, 64, 4, 3), (128, 128, 8, 2), (64, 32, 4, 3))


class _ScoreSumWriter(AttentionWriter):
    """A program keeps rows and columns, and goes through the batches that are summed. Two runs give the same bits."""

    def __init__(
        self,
        title: str,
        attention: Attention,
        summed: ScoreSum,
        subgraph: Subgraph,
        layout: ScoreLayout,
        targets: Mapping[int, WriteTarget],
        buffers: Mapping[fx.Node, Buffer],
        naming: Naming,
        precision: Precision,
    ) -> None:
        super().__init__(title, "m", subgraph, layout, targets, buffers, naming, precision, CONFIGS_SUM)
        self.attention, self.summed = attention, summed
        self.reserved.update(("share", "step"))
        self.ndim = replace(self.ndim, role="grid")
        number = sympy.cancel(layout.batch / summed.summed)
        self.share = self.space.axis("share", number) if number != 1 else ZERO
        self.extra_names = {self.share: "share"} if number != 1 else {}
        share = Dim((sympy.Symbol("share"),), (number,), "grid", 1, "share", "B", "")
        self.tile = Tile((self.mdim, self.ndim, *([share] if number != 1 else [])), {}, self.tile.configs)

    def is_in_loop(self, value: Value) -> bool:
        return self.summed.summed != 1 and self.b in value.axes

    def kernel(self) -> Kernel:
        """Return the kernel."""
        attention, summed = self.attention, self.summed
        assert attention.gradient is not None
        for number, dim in enumerate((self.mdim, self.ndim)):
            start = f"tl.program_id({number}) * {dim.block_name}"
            self.define(dim.variable, f"{start} + tl.arange(0, {dim.block_name})")
        if self.share != 0:
            variable = "share" if summed.summed != 1 else "batch"
            self.extra_names = {self.share: variable}
            self.define(variable, "tl.program_id(2)" + (".to(tl.int64)" if self.is_large() else ""))
        operands = [self.sides(product) for product in (attention.score_product, attention.gradient)]
        self.bind(attention.score_product, "products")
        self.bind(attention.gradient, "grad_weights")
        self.bind_weights(attention)
        score = self.score(summed.scores)
        self.prepare([*(o for pair in operands for o in pair), score])

        def body() -> ast.expr:
            write_score_products(self, attention, operands)
            return self.ref(score)

        place = self.targets[0]
        node = place.node
        if summed.summed != 1:
            self.define("acc", "tl.zeros([ROWS, COLS], tl.float32)", node)
            self.in_loop = True
            self.define("batch", self._batch())
            self.define("acc", body(), node, "+")
            self.in_loop = False
            steps = parse_expression(f"range({size_text(summed.summed)})")
            self.outer.statements.append(For("step", steps, tuple(self.inner.statements)))
            result = "acc"
        else:
            result = unparse(body())
        axes, sizes = (self.share, self.m, self.n), (ZERO, self.layout.m, self.layout.n)
        coords = self.space.coordinates(linear(axes, contiguous_strides(sizes)), place.shape)
        self.store(place, coords, result)
        return self.finished([place.buffer])

    def _batch(self) -> str:
        """Return the batch of a step."""
        if self.share == 0:
            return "step"
        summed, number = (self._bracketed(s) for s in (self.summed.summed, self.space.sizes[self.share]))
        return f"share * {summed} + step" if self.summed.inner else f"step * {number} + share"

    def finished(self, writes: Sequence[Buffer]) -> Kernel:
        return replace(super().finished(writes), tile=self.tile)


def fuse_attention(graph: fx.Graph, choices: Choices) -> None:
    """Have template kernels stand for every attention of a joint graph, or of one for inference."""
    precision = choices.precision
    for node in list(graph.nodes):
        if operation(node) != "aten.amax.default":
            continue
        attention = find_attention(graph, node)
        if attention is None:
            continue
        name_roles(attention)
        if attention.row_dot is not None:
            replace_dot(graph, attention)
        products = scale_scores(graph, attention.score_product, attention.backward)
        attention = replace(attention, backward=tuple(absorb_scale(graph, p) for p in products))
        groups = backward_groups(attention)
        reads = tensors_read(attention, [attention.result])
        writer = forward_writer(attention, reads, precision)
        needed = [(results, products, tensors_read(attention, products)) for results, products in groups]
        score_sums = [(each, tensors_read(attention, (), each.scores)) for each in attention.sums]
        kernel = replace_with_kernel(
            graph, [attention.result.node, attention.row_max, attention.row_sum], reads, writer
        )
        kernel.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        outputs = outputs_of(kernel)
        renamed = {attention.result.node: outputs[0], attention.row_max: outputs[1], attention.row_sum: outputs[2]}
        kernels: list[tuple[list[fx.Node], list[fx.Node], TemplateWriter]] = []
        for results, products, old in needed:
            match_layout(products)
            current = [renamed.get(n, n) for n in old]
            kernels.append((results, current, backward_writer(attention, products, current, precision)))
        for each, old in score_sums:
            current = [renamed.get(n, n) for n in old]
            kernels.append(([each.node], current, sum_writer(attention, each, current, precision)))
        for results, current, writer in kernels:
            replace_with_kernel(graph, results, current, writer)
        sort_graph(graph)
