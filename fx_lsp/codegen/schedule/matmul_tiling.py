"""How the kernel of a matmul is cut into tiles, and what it reads those of its operands with.

TMA reads whole tiles of matrices in memory (Hopper), which need no masks and no registers. On chips without it Triton
makes ordinary loads of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from fx_lsp.choices import Choices
from fx_lsp.codegen.ir.index import Coords, Index, coefficient, count, power_of_two
from fx_lsp.codegen.ir.text import size_text
from fx_lsp.codegen.ir.tile import Config, Dim, DimRole, Tile
from fx_lsp.codegen.ir.values import Buffer, Load, Value, values_of
from fx_lsp.codegen.lower.matmul import MatmulValues, matmul_operands
from fx_lsp.codegen.schedule.tiling import merge_axes

TILE_GROUP = 8
"""How many columns of tiles are gone through together, so that their operands stay in the L2 cache."""

_HALF = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4), (64, 256, 64, 4, 4), (64, 128, 64, 4, 4))
_FLAT = ((64, 64, 64, 4, 4), (32, 64, 128, 4, 4), (16, 128, 128, 4, 4), (16, 64, 128, 4, 5), (16, 32, 256, 2, 4))
_SINGLE = ((128, 128, 32, 8, 3), (128, 64, 32, 4, 3), (64, 128, 32, 4, 3), (64, 64, 32, 4, 3), (32, 64, 32, 4, 3))
"""Sizes of tiles (rows, columns, what is summed at a time), warps, stages: for half precision, few rows, float32."""
MAX_FLAT_ROWS = 64
"""With how many rows at most the tiles are those for few."""
MIN_TMA_DEPTH = 64
"""With how few elements to sum TMA has nothing to read ahead."""


@dataclass(frozen=True)
class MatmulTiling:
    """The dimensions of a matmul: the rows and columns of its result, what is summed, and the batches, if any.

    `operands` are the values that are multiplied, `dtype` what they are multiplied in. `matrices` are the two that TMA
    reads tiles of; None where the kernel loads elements.
    """

    tile: Tile
    rows: Dim
    cols: Dim
    depth: Dim
    batch: Dim
    dtype: torch.dtype
    operands: tuple[Value, Value]
    matrices: tuple[TmaMatrix, TmaMatrix] | None


def tile_matmul(values: MatmulValues, choices: Choices) -> MatmulTiling:
    """Cut a matmul into tiles."""
    sizes = values.builder.space.sizes
    dtype: torch.dtype = matmul_operands(values.node)[0].meta["val"].dtype
    left, right = (_as_stored(operand, dtype) for operand in (values.left, values.right))
    all_values = list(values_of([left, right, *(s.value for s in values.stores)]))
    remaining, merged = merge_axes(
        {a: sizes[a] for g in values.groups for a in g}, all_values, values.stores, values.groups
    )
    batches, m, n, k = ([(a, remaining[a]) for a in group if a in remaining] for group in values.groups)
    height, width, summed = (count(s for _, s in axes) for axes in (m, n, k))
    chosen = matmul_configs(height, width, summed, dtype)
    first = dict(chosen[0].blocks)

    def dim(axes: list[tuple[sympy.Symbol, Index]], role: DimRole, variable: str, size: str) -> Dim:
        block = f"BLOCK_{size}"
        return Dim(tuple(a for a, _ in axes), tuple(s for _, s in axes), role, first[block], variable, size, block)

    rows, cols, depth = dim(m, "grid", "rows", "M"), dim(n, "grid", "cols", "N"), dim(k, "loop", "k", "K")
    batch = Dim(tuple(a for a, _ in batches), tuple(s for _, s in batches), "grid", 1, "batch", "", "")
    tile = Tile((rows, cols, *([batch] if batches else []), depth), merged, chosen)
    large = _is_more(height, MAX_FLAT_ROWS) and _is_more(summed, MIN_TMA_DEPTH)
    matrices: tuple[TmaMatrix, TmaMatrix] | None = None
    if choices.tma == "yes" and large and dtype is not torch.float32:
        left_matrix = tma_matrix(left, rows, depth, batch, tile)
        right_matrix = tma_matrix(right, depth, cols, batch, tile)
        matrices = _both(left_matrix, right_matrix)
    return MatmulTiling(tile, rows, cols, depth, batch, dtype, (left, right), matrices)


def _both(left: TmaMatrix | None, right: TmaMatrix | None) -> tuple[TmaMatrix, TmaMatrix] | None:
    return (left, right) if left is not None and right is not None else None


def _is_more(size: Index, least: int) -> bool:
    return not size.is_Integer or int(size) > least


def matmul_configs(m: Index, n: Index, k: Index, dtype: torch.dtype) -> tuple[Config, ...]:
    """Return configurations for the sizes of a matmul, those that are symbols taken to be large: none is larger than
    it."""
    rows, columns, depth = (max(16, power_of_two(int(s))) if s.is_Integer else 4096 for s in (m, n, k))
    whole = next((b for b in (64, 32) if bool(sympy.Mod(k, b) == 0)), 64)
    distinct: dict[tuple[tuple[str, int], ...], Config] = {}
    chosen = _SINGLE if dtype is torch.float32 else _HALF + _FLAT[:1] if rows > MAX_FLAT_ROWS else _FLAT
    for height, width, step, warps, stages in chosen:
        step = min(step, whole) if bool(sympy.Mod(k, step) != 0) else step
        sizes = min(height, rows), min(max(width, 32), columns), min(step, depth)
        blocks = tuple(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), (*sizes, TILE_GROUP), strict=True))
        small = sizes[0] * sizes[1] < 64 * 64
        distinct.setdefault((*blocks, ("warps", warps)), Config(blocks, min(warps, 4) if small else warps, stages))
    if len(distinct) == 1:
        only = next(iter(distinct.values()))
        return only, replace(only, warps=only.warps // 2)
    return tuple(distinct.values())


def _as_stored(value: Value, dtype: torch.dtype) -> Value:
    """Return an operand in its own dtype where it is only loaded: half precision needs no detour over float32."""
    return replace(value, dtype=dtype) if isinstance(value, Load) and value.buffer.dtype == dtype else value


TMA_ALIGNMENT = 16
"""What the address of a matrix and the bytes between its rows are multiples of (CUDA driver API, tensor maps)."""


MAX_TMA_DIMENSIONS = 5
"""How many dimensions TMA reads along."""


@dataclass(frozen=True)
class BatchAxis:
    """An axis of batches: how many there are, and how many elements lie between one and the next."""

    axis: sympy.Symbol
    size: Index
    stride: Index


@dataclass(frozen=True)
class TmaMatrix:
    """Matrices in memory, one for each element of the `outer` axes: their dimensions, how many elements lie between
    their rows, and, of the tile that is wanted, whether that is `turned`, a column for each row in memory."""

    buffer: Buffer
    outer: tuple[BatchAxis, ...]
    rows: Dim
    columns: Dim
    stride: Index
    turned: bool

    def descriptor(self) -> str:
        """Return the call that makes the descriptor of all of them."""
        rows, columns = self.rows.size_name, self.columns.size_name
        size_texts = {
            self.columns.size: columns,
            sympy.expand(self.rows.size * self.columns.size): f"{rows} * {columns}",
        }
        sizes = [*(size_text(o.size) for o in self.outer), rows, columns]
        strides = [size_texts.get(s) or size_text(s) for s in (*(o.stride for o in self.outer), self.stride)] + ["1"]
        blocks = [*("1" for _ in self.outer), self.rows.block_name, self.columns.block_name]
        lists = (f"[{', '.join(part)}]" for part in (sizes, strides, blocks))
        return f"tl.make_tensor_descriptor({self.buffer.name}_ptr, {', '.join(lists)})"

    def tile(self, descriptor: str, place: Sequence[str]) -> str:
        """Return the call that reads the tile that begins at a place: one number for each of its dimensions in
        memory."""
        blocks = f"{self.rows.block_name}, {self.columns.block_name}"
        flat = f".reshape({blocks})" if self.outer else ""
        return f"{descriptor}.load([{', '.join(place)}]){flat}{'.T' if self.turned else ''}"


def tma_matrix(value: Value, tall: Dim, wide: Dim, batch: Dim, tile: Tile) -> TmaMatrix | None:
    """Return the matrices that an operand with a row for each element of `tall` and a column for each of `wide` is read
    from.

    None where it is computed, or does not lie in memory as TMA takes it.
    """
    if not isinstance(value, Load) or value.guard or value.indirect or value.dtype != value.buffer.dtype:
        return None
    index = tile.index(value.index)
    strides = [(a, s, coefficient(index, a) or sympy.S.Zero) for a, s in zip(batch.axes, batch.sizes, strict=True)]
    outer = tuple(BatchAxis(a, size, stride) for a, size, stride in strides if stride != 0)
    if len(outer) > MAX_TMA_DIMENSIONS - 2 or not all(
        _is_aligned(o.stride * value.buffer.dtype.itemsize) for o in outer
    ):
        return None
    for rows, columns in ((tall, wide), (wide, tall)):
        stride, step = (_common_step(index, d.axes, d.sizes) for d in (rows, columns))
        if stride is None or step != 1 or not _is_aligned(stride * value.buffer.dtype.itemsize):
            continue
        along = sum(s * _flat_index(d) for s, d in ((stride, rows), (step, columns))) + sum(
            o.stride * o.axis for o in outer
        )
        if sympy.expand(index - along) == 0:
            return TmaMatrix(value.buffer, outer, rows, columns, stride, rows is wide)
    return None


def _common_step(index: Index, axes: Sequence[sympy.Symbol], sizes: Coords) -> Index | None:
    """Return the step of an index along some axes together; None where that is not always as much."""
    step = coefficient(index, axes[-1]) if axes else None
    even = step is not None and all(
        sympy.expand((coefficient(index, a) or 0) - step * count(sizes[i + 1 :])) == 0 for i, a in enumerate(axes)
    )
    return step if even else None


def _flat_index(dim: Dim) -> Index:
    """Return the number of an element, counted through all axes of a dimension."""
    return sum(a * count(dim.sizes[i + 1 :]) for i, a in enumerate(dim.axes))


def _is_aligned(stride: Index) -> bool:
    """Return whether rows that lie so many bytes apart are where TMA looks for them."""
    return bool(stride > 0) if stride.is_Integer and stride % TMA_ALIGNMENT == 0 else False
