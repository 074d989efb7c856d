"""How the kernel of a matmul is cut into tiles, and what it reads those of its operands with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy
import torch

from fx_lsp.choices import Choices
from fx_lsp.codegen.descriptors import Matrix, matrix_of
from fx_lsp.codegen.index import Index, count, power_of_two
from fx_lsp.codegen.matmul_kernel import Computed, operands
from fx_lsp.codegen.tiles import Config, Dim, Role, Tile, merged_axes
from fx_lsp.codegen.values import Load, Value, values_of

GROUP = 8
"""How many columns of tiles are gone through together, so that their operands stay in the L2 cache."""

_HALF = ((128, 256, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4), (64, 256, 64, 4, 4), (64, 128, 64, 4, 4))
_FLAT = ((64, 64, 64, 4, 4), (32, 64, 128, 4, 4), (16, 128, 128, 4, 4), (16, 64, 128, 4, 5), (16, 32, 256, 2, 4))
_SINGLE = ((128, 128, 32, 8, 3), (128, 64, 32, 4, 3), (64, 128, 32, 4, 3), (64, 64, 32, 4, 3), (32, 64, 32, 4, 3))
"""Sizes of tiles (rows, columns, what is summed at a time), warps, stages: for half precision, few rows, float32."""
FEW = 64
"""With how many rows at most the tiles are those for few."""
SHALLOW = 64
"""With how few elements to sum TMA has nothing to read ahead."""


@dataclass(frozen=True)
class Tiling:
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
    matrices: tuple[Matrix, Matrix] | None


def tiling(made: Computed, choices: Choices) -> Tiling:
    """How a matmul is cut into tiles."""
    sizes = made.builder.space.sizes
    dtype: torch.dtype = operands(made.node)[0].meta["val"].dtype
    left, right = (_as_stored(operand, dtype) for operand in (made.left, made.right))
    values = list(values_of([left, right, *(s.value for s in made.stores)]))
    kept, merged = merged_axes({a: sizes[a] for g in made.groups for a in g}, values, made.stores, made.groups)
    batches, m, n, k = ([(a, kept[a]) for a in group if a in kept] for group in made.groups)
    height, width, summed = (count(s for _, s in axes) for axes in (m, n, k))
    chosen = configs(height, width, summed, dtype)
    first = dict(chosen[0].blocks)

    def dim(axes: list[tuple[sympy.Symbol, Index]], role: Role, variable: str, size: str) -> Dim:
        block = f"BLOCK_{size}"
        return Dim(tuple(a for a, _ in axes), tuple(s for _, s in axes), role, first[block], variable, size, block)

    rows, cols, depth = dim(m, "grid", "rows", "M"), dim(n, "grid", "cols", "N"), dim(k, "loop", "k", "K")
    batch = Dim(tuple(a for a, _ in batches), tuple(s for _, s in batches), "grid", 1, "batch", "", "")
    tile = Tile((rows, cols, *([batch] if batches else []), depth), merged, chosen)
    matrices: tuple[Matrix, Matrix] | None = None
    large = _is_more(height, FEW) and _is_more(summed, SHALLOW)
    if choices.tma == "yes" and large and dtype is not torch.float32:
        found = matrix_of(left, rows, depth, batch, tile), matrix_of(right, depth, cols, batch, tile)
        matrices = (found[0], found[1]) if found[0] is not None and found[1] is not None else None
    return Tiling(tile, rows, cols, depth, batch, dtype, (left, right), matrices)


def _is_more(size: Index, least: int) -> bool:
    return not size.is_Integer or int(size) > least


def configs(m: Index, n: Index, k: Index, dtype: torch.dtype) -> tuple[Config, ...]:
    """Configurations for the sizes of a matmul, those that are symbols taken to be large: none is larger than it."""
    rows, columns, depth = (max(16, power_of_two(int(s))) if s.is_Integer else 4096 for s in (m, n, k))
    whole = next((b for b in (64, 32) if bool(sympy.Mod(k, b) == 0)), 64)
    found: dict[tuple[tuple[str, int], ...], Config] = {}
    chosen = _SINGLE if dtype is torch.float32 else _HALF + _FLAT[:1] if rows > FEW else _FLAT
    for height, width, step, warps, stages in chosen:
        step = min(step, whole) if bool(sympy.Mod(k, step) != 0) else step
        sizes = min(height, rows), min(max(width, 32), columns), min(step, depth)
        blocks = tuple(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"), (*sizes, GROUP), strict=True))
        small = sizes[0] * sizes[1] < 64 * 64
        found.setdefault((*blocks, ("warps", warps)), Config(blocks, min(warps, 4) if small else warps, stages))
    if len(found) == 1:
        only = next(iter(found.values()))
        return only, replace(only, warps=only.warps // 2)
    return tuple(found.values())


def _as_stored(value: Value, dtype: torch.dtype) -> Value:
    """An operand in its own dtype where it is only loaded: half precision needs no detour over float32."""
    return replace(value, dtype=dtype) if isinstance(value, Load) and value.buffer.dtype == dtype else value
