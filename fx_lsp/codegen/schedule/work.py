"""Count the work of a kernel: the bytes it moves, its memory requests, operations, programs and loop iterations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import sympy

from fx_lsp.codegen.ir.index import Coords, Index, coefficient, size_hint
from fx_lsp.codegen.ir.kernel import KernelWork
from fx_lsp.codegen.ir.ops import Op
from fx_lsp.codegen.ir.tile import Config, Tile
from fx_lsp.codegen.ir.values import Axes, Buffer, Compute, Load, Reduction, Scan, Store, values_of
from fx_lsp.codegen.schedule.estimate import SECTOR

SPECIAL = 12
"""The cost of a division or a special function, such as a logarithm, in additions."""


def work_of(
    stores: Sequence[Store], tile: Tile, sizes: Mapping[sympy.Symbol, Index], hints: Mapping[str, int]
) -> KernelWork:
    """Return the work of a kernel that writes `stores`, over axes with these sizes."""
    numbers = {axis: size_hint(size, hints) for axis, size in sizes.items()}
    values = list(values_of(v for store in stores for v in store.values))
    accesses = {(v.buffer.name, v.index): (v.buffer, v.index, v.axes) for v in values if isinstance(v, Load)}
    elements: dict[str, tuple[Buffer, int]] = {}
    requests = 0
    for buffer, index, axes in [*accesses.values(), *((s.buffer, s.index, s.axes) for s in stores)]:
        many = _count(axes, numbers)
        elements[buffer.name] = (buffer, elements.get(buffer.name, (buffer, 0))[1] + many)
        step = buffer.dtype.itemsize if _is_contiguous(index, tile) else SECTOR
        requests += math.ceil(many * step / SECTOR)
    moved = sum(min(many, _elements(b.shape, hints)) * b.dtype.itemsize for b, many in elements.values())
    config = tile.configs[0]
    return KernelWork(
        moved,
        requests,
        sum(_operations(v.op) * _count(v.axes, numbers) for v in values if isinstance(v, Compute))
        + sum(_count(v.args[0].axes, numbers) for v in values if isinstance(v, Reduction)),
        math.prod(_blocks(tile, config, "grid", hints)),
        config.warps,
        math.prod(_blocks(tile, config, "loop", hints)),
        any(isinstance(v, Scan) for v in values),
    )


def _count(axes: Axes, numbers: Mapping[sympy.Symbol, int]) -> int:
    return math.prod(numbers.get(axis, 1) for axis in axes)


def _elements(shape: Coords, hints: Mapping[str, int]) -> int:
    return math.prod(size_hint(size, hints) for size in shape)


def _operations(op: Op) -> int:
    """Return the cost of an operation in additions: one for a sum, a product, a comparison, a cast or a choice."""
    return 1 if op.is_exact or op.is_cast or not {"(", "/"}.intersection(op.text) else SPECIAL


def _blocks(tile: Tile, config: Config, role: str, hints: Mapping[str, int]) -> Iterable[int]:
    """Yield the number of blocks along each dimension with a role."""
    chosen = dict(config.blocks)
    for dim in tile.dims:
        if dim.role == role:
            yield math.ceil(size_hint(dim.size, hints) / chosen.get(dim.block_name, dim.block))


def _is_contiguous(index: Index, tile: Tile) -> bool:
    """Return True if elements next to each other in a tile are so in memory, or are the same element."""
    moved = tile.index(index)
    tiled = [axis for dim in tile.dims if dim.block > 1 for axis in dim.axes]
    slopes = [coefficient(moved, axis) for axis in tiled if axis in moved.free_symbols]
    return not slopes or any(slope == 1 for slope in slopes)
