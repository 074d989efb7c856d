"""The tiles of a matmul kernel, and how it reads its operands.

TMA (Hopper) reads whole tiles of matrices in memory without masks or registers. On chips without it Triton emits
ordinary loads instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.query import buffer_of, matmul_operands, shape_of
from fx_lsp.codegen.ir.index import Coords, Index, coefficient, count, power_of_two
from fx_lsp.codegen.ir.kernel import KernelWork, ProductKind
from fx_lsp.codegen.ir.template import MatmulTemplate
from fx_lsp.codegen.ir.text import size_text
from fx_lsp.codegen.ir.tile import Config, Dim, DimRole, Tile
from fx_lsp.codegen.ir.values import Buffer, Load, Value, values_of
from fx_lsp.codegen.ir.write_target import WriteTarget
from fx_lsp.codegen.lower.matmul import MatmulValues, matmul_values
from fx_lsp.codegen.schedule.estimate import Way, faster
from fx_lsp.codegen.schedule.tiling import merge_axes

TILE_GROUP = 8
"""The number of tile columns processed together, so that their operands stay in the L2 cache."""

_HALF = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4), (64, 256, 64, 4, 4), (64, 128, 64, 4, 4))
_FLAT = ((64, 64, 64, 4, 4), (32, 64, 128, 4, 4), (16, 128, 128, 4, 4), (16, 64, 128, 4, 5), (16, 32, 256, 2, 4))
_SINGLE = ((128, 128, 32, 8, 3), (128, 64, 32, 4, 3), (64, 128, 32, 4, 3), (64, 64, 32, 4, 3), (32, 64, 32, 4, 3))
"""Tile configurations (rows, columns, depth, warps, stages) for half precision, for few rows, and for float32."""
MAX_FLAT_ROWS = 64
"""The largest number of rows that uses the configurations for few rows."""
MIN_TMA_DEPTH = 64
"""The least depth for TMA; below it, TMA has nothing to prefetch."""

LIBRARY_DEPTH = 64
"""The depth that the library leaves to a program if there are too few programs."""
ASSUMED_SIZE = 4096
"""The assumed value of sizes that are only known at run time."""


@dataclass(frozen=True)
class MatmulTiling:
    """The dimensions of a matmul: rows and columns of its result, the summed dimension, and the batches, if any.

    `operands` are the multiplied values and `dtype` the dtype they are multiplied in. `matrices` are the two that TMA
    reads tiles of, or None if the kernel loads elements.
    """

    tile: Tile
    rows: Dim
    cols: Dim
    depth: Dim
    batch: Dim
    dtype: torch.dtype
    operands: tuple[Value, Value]
    matrices: tuple[TmaMatrix, TmaMatrix] | None


def is_slower_than_library(template: MatmulTemplate, choices: Choices, saved: int) -> bool:
    """Return True if a matmul kernel takes longer, by an estimate for an H200, than a call of the library and a kernel
    that moves the `saved` tensors of the result's size. Raises NotFusible if there is no such kernel.
    """
    memory = {read: buffer_of(read, read.name) for read in template.subgraph.reads}
    targets = {r: WriteTarget(r, shape_of(r), buffer_of(r, r.name)) for r in template.results}
    tiling = tile_matmul(matmul_values(template.node, memory, targets), choices)
    dims = (tiling.rows, tiling.cols, tiling.batch, tiling.depth)
    rows, cols, batch, depth = (int(d.size) if d.size.is_Integer else ASSUMED_SIZE for d in dims)
    blocks = [dict(config.blocks) for config in tiling.tile.configs]
    programs = batch * max(math.ceil(rows / b["BLOCK_M"]) * math.ceil(cols / b["BLOCK_N"]) for b in blocks)
    operations, size = 2 * rows * cols * batch * depth, rows * cols * batch * tiling.dtype.itemsize
    is_single, is_exact = tiling.dtype is torch.float32, choices.precision == "ieee"
    own: ProductKind = "f32" if is_single and is_exact else "half" if tiling.matrices is None else "half, TMA"
    library: ProductKind = "library f32" if is_single else "library half"
    kernel = KernelWork(
        operations=operations * (2 if is_single and not is_exact else 1), programs=programs, product=own
    )
    call = replace(kernel, operations=operations, programs=programs * math.ceil(depth / LIBRARY_DEPTH), product=library)
    return faster(Way((kernel,)), Way((call, KernelWork(moved=saved * size)))) is not None


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
    """Return configurations for an (m, k) x (k, n) matmul. Blocks are no larger than the sizes; symbolic sizes count as
    large.
    """
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
    """Return an operand in its stored dtype if it is only loaded: half precision needs no conversion to float32."""
    return replace(value, dtype=dtype) if isinstance(value, Load) and value.buffer.dtype == dtype else value


TMA_ALIGNMENT = 16
"""The required alignment, in bytes, of a matrix and of its row stride (CUDA driver API, tensor maps)."""


MAX_TMA_DIMENSIONS = 5
"""The largest number of dimensions that TMA reads along."""


@dataclass(frozen=True)
class BatchAxis:
    """A batch axis: its size, and the stride between one batch and the next in elements."""

    axis: sympy.Symbol
    size: Index
    stride: Index


@dataclass(frozen=True)
class TmaMatrix:
    """A matrix in memory for each element of the `outer` axes.

    It has the row and column dimensions, the row stride in elements, and `turned`: whether the wanted tile is the
    transpose of the tile in memory.
    """

    buffer: Buffer
    outer: tuple[BatchAxis, ...]
    rows: Dim
    columns: Dim
    stride: Index
    turned: bool

    def descriptor(self) -> str:
        """Return the Triton call that makes the descriptor of all matrices."""
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
        """Return the Triton call that reads the tile at a place: one offset for each dimension in memory."""
        blocks = f"{self.rows.block_name}, {self.columns.block_name}"
        flat = f".reshape({blocks})" if self.outer else ""
        return f"{descriptor}.load([{', '.join(place)}]){flat}{'.T' if self.turned else ''}"


def tma_matrix(value: Value, tall: Dim, wide: Dim, batch: Dim, tile: Tile) -> TmaMatrix | None:
    """Return the matrices of an operand with a row for each element of `tall` and a column for each element of `wide`.

    Returns None if the operand is computed, or if TMA does not support its layout in memory.
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
    """Return the one stride of an index along some axes taken together, or None if it is not uniform."""
    step = coefficient(index, axes[-1]) if axes else None
    even = step is not None and all(
        sympy.expand((coefficient(index, a) or 0) - step * count(sizes[i + 1 :])) == 0 for i, a in enumerate(axes)
    )
    return step if even else None


def _flat_index(dim: Dim) -> Index:
    """Return the flat index of an element over all axes of a dimension."""
    return sum(a * count(dim.sizes[i + 1 :]) for i, a in enumerate(dim.axes))


def _is_aligned(stride: Index) -> bool:
    """Return True if a row stride in bytes is positive and meets the alignment of TMA."""
    return bool(stride > 0) if stride.is_Integer and stride % TMA_ALIGNMENT == 0 else False
