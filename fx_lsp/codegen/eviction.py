"""Which loads ask the cache to keep what they read: those of elements that are read again."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from fx_lsp.codegen.tiles import Dim, Tile
from fx_lsp.codegen.values import Axes, Load


def read_again(load: Load, loads: Iterable[Load], moving: Axes, tile: Tile) -> bool:
    """Whether elements that a load reads are read by other programs too, or at a neighbouring place by this one.

    `loads` are those of the kernel, `moving` the axes with which the place of this one moves. What a program goes
    through in a loop (the operands of a product) would only push out the rest.
    """
    along = {s for a in moving for s in tile.index(a).free_symbols}
    passed = [d for d in tile.dims if along & set(d.axes)]
    if not any(d.block > 1 for d in passed):
        return False
    spread = [d for d in tile.dims if d.role == "grid" and not _in_one(d, tile)]
    streams = any(d.role == "loop" for d in passed)
    shared = not streams and any(not along.issuperset(d.axes) for d in spread)
    return shared or any(_near(load, other, tile) for other in loads)


def _in_one(dim: Dim, tile: Tile) -> bool:
    """Whether one program has all of a dimension, whatever the block sizes."""
    blocks = (dict(c.blocks).get(dim.block_name, dim.block) for c in tile.configs)
    return bool(dim.size.is_Integer) and dim.size <= min(blocks, default=dim.block)


def _near(load: Load, other: Load, tile: Tile) -> bool:
    """Whether a load of a part of the tile reads what another reads too, less than a row from there."""
    if not load.guard or other.guard or other.buffer is not load.buffer or other.indirect or load.indirect:
        return False
    gap = sympy.expand(load.index - other.index)
    return bool(gap.is_Integer) and abs(gap) < tile.dims[-1].size
