"""Attention kernels that hold one tile of scores at a time.

Forward uses an online softmax. Backward takes two kernels, and a third for the gradient of a bias, which sums scores
over the batches that share it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import sympy
import torch
from torch import fx

from fx_lsp.codegen.graph.query import shape_of
from fx_lsp.codegen.ir.index import ZERO, Coords, Index, contiguous_strides, linear
from fx_lsp.codegen.ir.kernel import Kernel, converted
from fx_lsp.codegen.ir.statement import assign
from fx_lsp.codegen.ir.template import (
    Attention,
    AttentionForward,
    AttentionGradients,
    AttentionScoreSum,
    ScoreProduct,
    ScoreSum,
    TemplateCall,
)
from fx_lsp.codegen.ir.text import fill_template, parse_expression, size_text, unparse
from fx_lsp.codegen.ir.tile import Dim, Tile
from fx_lsp.codegen.ir.values import Buffer, Value
from fx_lsp.codegen.lower.algebra import split_factor
from fx_lsp.codegen.triton.attention import (
    LOWEST,
    ZEROED,
    AttentionTiles,
    ScoreTiling,
    dot_block,
    is_moderate,
    loop_bounds,
    rounded,
)
from fx_lsp.codegen.triton.reductions import Accumulator, ReductionLoop, weights_accumulator, write_reductions

CONFIGS_FORWARD = ((128, 128, 8, 3), (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3))
CONFIGS_BACKWARD = ((64, 128, 8, 3), (64, 64, 4, 3), (128, 64, 8, 2), (32, 128, 4, 3), (64, 128, 4, 2))


def _write_score_products(tiles: AttentionTiles, attention: Attention, operands: Sequence[tuple[Value, Value]]) -> None:
    """Write the products that compute the scores and the gradient of the weights."""
    assert attention.gradient is not None
    nodes = attention.score_product, attention.gradient
    for (left, right), title, node in zip(operands, ("products", "grad_weights"), nodes, strict=True):
        _write_score_product(tiles, attention, title, (left, right), node)


def _write_score_product(
    tiles: AttentionTiles, attention: Attention, title: str, operands: tuple[Value, Value], node: fx.Node
) -> None:
    dtype = attention.score_product.meta["val"].dtype
    left, right = (tiles.operand_tile(operand, dtype) for operand in operands)
    tiles.product(title, left, fill_template("b.T", {"b": right}), dtype, node)


def write_attention_forward(template: AttentionForward, call: TemplateCall) -> Kernel:
    """Write forward: an online softmax of the scores, and the product of its weights with the values."""
    attention = template.attention
    depth = dot_block(int(shape_of(attention.result.other)[-1]))
    tiles = AttentionTiles(ScoreTiling(template, "m", CONFIGS_FORWARD, depth), call)
    writer, product = tiles.writer, attention.score_product
    tiles.begin()
    dtype = product.meta["val"].dtype
    queries, keys = tiles.sides(product)
    wide = tiles.depth_axis(shape_of(attention.result.other)[-1])
    values = tiles.operand(tiles.subgraph.of[attention.result.other], tiles.n, wide, False)
    tiles.bind(product, "products")
    shifted = tiles.score(attention.shifted)
    tiles.bind(attention.weights, "weights")
    weights = tiles.score(attention.result.scores)
    tiles.take([queries, keys, values, shifted, weights])
    tiles.operand_tile(queries, dtype)

    def scores() -> ast.expr:
        expr = writer.ref(shifted)
        if writer.is_even(tiles.ndim):
            return expr
        inside = parse_expression(f"cols[None, :] < {size_text(tiles.layout.n)}")
        return fill_template('tl.where(m, a, -float("inf"))', {"m": inside, "a": expr})

    def weights_and_values() -> tuple[ast.expr, ast.expr]:
        v = tiles.operand_tile(values, dtype)
        return rounded(writer.ref(weights), dtype), v

    softmax_nodes = attention.row_max, attention.row_sum
    softmax = weights_accumulator(writer, "ROWS", scores, is_moderate(shifted), softmax_nodes)
    weighted = tiles.sum_of_products("acc", "ROWS", wide, dtype, attention.result.node)
    tiles.write_loop(
        loop_bounds(tiles, [shifted], LOWEST),
        [softmax, weighted.accumulator(writer, weights_and_values, "acc * scale[:, None]")],
        lambda: _write_score_product(tiles, attention, "products", (queries, keys), product),
    )
    writes: list[Buffer] = []
    results = {
        0: ((tiles.b, tiles.m, wide), "acc / running_sum[:, None]"),
        1: ((tiles.b, tiles.m, ZERO), "running_max[:, None]"),
        2: ((tiles.b, tiles.m, ZERO), "running_sum[:, None]"),
        3: ((tiles.b, tiles.m, wide), "acc / running_sum[:, None]"),
    }
    for number, (coords, text) in results.items():
        if number in tiles.targets:
            place = tiles.targets[number]
            writes.append(place.buffer)
            tiles.store(place, _coords_in(tiles, place.shape, coords), text)
    return tiles.finished(writes)


def _coords_in(tiles: AttentionTiles, shape: Coords, coords: Coords) -> Coords:
    """Return the coordinates in a result of a shape. Row statistics may have any shape with an element for each row."""
    if coords[2] is ZERO and len(shape) != (3 if tiles.batched else 2):
        return tiles.space.coordinates(tiles.b * tiles.layout.m + tiles.m, shape)
    return coords if tiles.batched else coords[1:]


def _bind_scores(tiles: AttentionTiles, attention: Attention) -> list[tuple[Value, Value]]:
    """Bind the scores and the gradient of the weights for backward. Return the operands of their products."""
    assert attention.gradient is not None
    operands = [tiles.sides(product) for product in (attention.score_product, attention.gradient)]
    tiles.bind(attention.score_product, "products")
    tiles.bind(attention.gradient, "grad_weights")
    tiles.bind_weights(attention)
    return operands


def write_attention_gradients(template: AttentionGradients, call: TemplateCall) -> Kernel:
    """Write products of scores that sum over m or over n."""
    attention, products, tiles = template.attention, template.products, _gradient_tiles(template, call)
    writer = tiles.writer
    tiles.begin()
    dtype = attention.score_product.meta["val"].dtype
    operands = _bind_scores(tiles, attention)
    chosen = [(i, p) for i, p in enumerate(products) if i in tiles.targets]
    others = [_other(tiles, product) for _, product in chosen]
    scores, factors = zip(*(split_factor(_oriented(tiles, product)) for _, product in chosen), strict=True)
    sides = [side for pair in operands for side in pair]
    tiles.take([*sides, *others, *scores])
    for value in (*sides, *others):
        if not writer.is_in_loop(value):
            tiles.operand_tile(value, dtype)
    sums: list[Accumulator] = []
    names: list[str] = []
    for (number, product), other, score in zip(chosen, others, scores, strict=True):
        names.append(writer.unique(f"{writer.naming.name(tiles.targets[number].node)}_acc"))
        block = "COLS" if product.over == "m" else "ROWS"
        depth = next(d for d in tiles.depths if d in other.axes)
        total = tiles.sum_of_products(names[-1], block, depth, dtype, product.node)
        sums.append(total.accumulator(writer, partial(_score_operands, tiles, product, score, other, dtype)))
    bounds = loop_bounds(tiles, scores, ZEROED)
    tiles.write_loop(bounds, sums, lambda: _write_score_products(tiles, attention, operands))
    writes: list[Buffer] = []
    for (number, product), other, total, factor in zip(chosen, others, names, factors, strict=True):
        place = tiles.targets[number]
        writes.append(place.buffer)
        tiles.store(place, _coords_of(tiles, product, other), total if factor == 1 else f"{total} * {factor!r}")
    return tiles.finished(writes)


def _gradient_tiles(template: AttentionGradients, call: TemplateCall) -> AttentionTiles:
    """Return the tiles of a kernel for products that sum over m or over n."""
    products, over = template.products, template.products[0].over
    configs = CONFIGS_BACKWARD if over == "m" else tuple((c, r, w, s) for r, c, w, s in CONFIGS_BACKWARD)
    depth = sum(dot_block(_depth(product)) for number, product in enumerate(products) if number in call.targets)
    tiling = ScoreTiling(template, "n" if over == "m" else "m", configs, depth)
    return AttentionTiles(tiling, replace(call, title=f"{call.title}_{'columns' if over == 'm' else 'rows'}"))


def _score_operands(
    tiles: AttentionTiles, product: ScoreProduct, score: Value, other: Value, dtype: torch.dtype
) -> tuple[ast.expr, ast.expr]:
    """Write the operands of a product of scores, and return them."""
    left = rounded(_masked(tiles, tiles.writer.ref(score)), dtype)
    left = fill_template("a.T", {"a": left}) if product.over == "m" else left
    return left, tiles.operand_tile(other, dtype)


def _coords_of(tiles: AttentionTiles, product: ScoreProduct, other: Value) -> Coords:
    """Return the coordinates of an element in the result of a product."""
    depth = next(d for d in tiles.depths if d in other.axes)
    row = tiles.n if product.over == "m" else tiles.m
    at = (depth, row) if product.transposed else (row, depth)
    return (tiles.b, *at) if tiles.batched else at


def _other(tiles: AttentionTiles, product: ScoreProduct) -> Value:
    """Return the tile of the other operand of a product with scores."""
    row = tiles.m if product.over == "m" else tiles.n
    depth = tiles.depth_axis(sympy.Integer(_depth(product)))
    return tiles.operand(tiles.subgraph.of[product.other], row, depth, product.transposed)


def _depth(product: ScoreProduct) -> int:
    return int(shape_of(product.other)[-2 if product.transposed else -1])


def _masked(tiles: AttentionTiles, scores: ast.expr) -> ast.expr:
    """Return scores with 0 outside the tensor."""
    outside = [
        f"({variable} < {size_text(size)})"
        for variable, size, dim in (
            ("rows[:, None]", tiles.layout.m, tiles.mdim),
            ("cols[None, :]", tiles.layout.n, tiles.ndim),
        )
        if not tiles.writer.is_even(dim)
    ]
    if not outside:
        return scores
    return fill_template("tl.where(m, a, 0.0)", {"m": parse_expression(" & ".join(outside)), "a": scores})


def _oriented(tiles: AttentionTiles, product: ScoreProduct) -> Value:
    """Return the scores of a product, transposed if the product takes them so."""
    swapped = (product.over == "m") == (product.side == 0)
    return tiles.score(product.scores, swapped)


CONFIGS_SUM = ((128, 64, 8, 3), (64, 128, 8, 3), (64, 64, 4, 3), (128, 128, 8, 2), (64, 32, 4, 3))


def write_attention_score_sum(template: AttentionScoreSum, call: TemplateCall) -> Kernel:
    """Write a sum of scores: a program keeps rows and columns and loops over the batches. It is deterministic."""
    attention, summed, place = template.attention, template.summed, call.targets[0]
    title = f"{call.title}_{call.naming.name(place.node)}"
    tiles = AttentionTiles(ScoreTiling(template, "m", CONFIGS_SUM), replace(call, title=title))
    writer = tiles.writer
    writer.reserved.update(("share", "step"))
    number = sympy.cancel(tiles.layout.batch / summed.summed)
    share = tiles.space.axis("share", number) if number != 1 else ZERO
    shares = [Dim((sympy.Symbol("share"),), (number,), "grid", 1, "share", "B", "")] if number != 1 else []
    tiles.ndim = replace(tiles.ndim, role="grid")
    writer.tile = Tile((tiles.mdim, tiles.ndim, *shares), {}, writer.tile.configs)
    writer.loop = Dim((tiles.b,), (summed.summed,), "loop", 1, "batch", "B", "") if summed.summed != 1 else None
    for dim in (tiles.mdim, tiles.ndim):
        start = f"{writer.tile.program(dim)} * {dim.block_name}"
        writer.define(dim.variable, f"{start} + tl.arange(0, {dim.block_name})")
    if number != 1:
        tiles.names[share] = "share" if summed.summed != 1 else "batch"
        writer.define(tiles.names[share], converted(writer.tile.program(shares[0]), tiles.offset_type))
    operands = _bind_scores(tiles, attention)
    score = tiles.score(summed.scores)
    tiles.take([*(side for pair in operands for side in pair), score])
    result = "acc"
    if summed.summed == 1:
        _write_score_products(tiles, attention, operands)
        result = unparse(writer.ref(score))
    else:

        def step() -> None:
            _write_score_products(tiles, attention, operands)
            writer.define("acc", writer.ref(score), place.node, "+")

        total = Accumulator([assign("acc", "tl.zeros([ROWS, COLS], tl.float32)", place.node)], step, lambda: None)
        steps = f"range({size_text(summed.summed)})"
        loop = ReductionLoop("step", steps, lambda: writer.define("batch", _batch(tiles, summed, share)))
        write_reductions(writer, [total], loop)
    axes, sizes = (share, tiles.m, tiles.n), (ZERO, tiles.layout.m, tiles.layout.n)
    coords = tiles.space.coordinates(linear(axes, contiguous_strides(sizes)), place.shape)
    tiles.store(place, coords, result)
    return tiles.finished([place.buffer])


def _batch(tiles: AttentionTiles, summed: ScoreSum, share: Index) -> str:
    """Return the batch of a step."""
    if not isinstance(share, sympy.Symbol):
        return "step"
    steps, shares = (tiles.writer.bracketed(s) for s in (summed.summed, tiles.space.sizes[share]))
    return f"share * {steps} + step" if summed.inner else f"step * {shares} + share"
