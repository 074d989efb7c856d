"""Matrices in memory that TMA reads tiles of: Hopper's copies of whole tiles, which need no masks and no registers.

On chips without it Triton makes ordinary loads of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from fx_lsp.codegen.index import Coords, Index, coefficient, count
from fx_lsp.codegen.text import size_text
from fx_lsp.codegen.tiles import Dim, Tile
from fx_lsp.codegen.values import Buffer, Load, Value

ALIGNMENT = 16
"""What the address of a matrix and the bytes between its rows are multiples of (CUDA driver API, tensor maps)."""


MOST_DIMENSIONS = 5
"""How many dimensions TMA reads along."""


@dataclass(frozen=True)
class Outer:
    """An axis of batches: how many there are, and how many elements lie between one and the next."""

    axis: sympy.Symbol
    size: Index
    stride: Index


@dataclass(frozen=True)
class Matrix:
    """Matrices in memory, one for each element of the `outer` axes: their dimensions, how many elements lie between
    their rows, and, of the tile that is wanted, whether that is `turned`, a column for each row in memory."""

    buffer: Buffer
    outer: tuple[Outer, ...]
    rows: Dim
    columns: Dim
    stride: Index
    turned: bool

    def descriptor(self) -> str:
        """The call that makes the descriptor of all of them."""
        rows, columns = self.rows.size_name, self.columns.size_name
        known = {self.columns.size: columns, sympy.expand(self.rows.size * self.columns.size): f"{rows} * {columns}"}
        sizes = [*(size_text(o.size) for o in self.outer), rows, columns]
        strides = [known.get(s) or size_text(s) for s in (*(o.stride for o in self.outer), self.stride)] + ["1"]
        blocks = [*("1" for _ in self.outer), self.rows.block_name, self.columns.block_name]
        lists = (f"[{', '.join(part)}]" for part in (sizes, strides, blocks))
        return f"tl.make_tensor_descriptor({self.buffer.name}_ptr, {', '.join(lists)})"

    def tile(self, descriptor: str, place: Sequence[str]) -> str:
        """The call that reads the tile that begins at a place: one number for each of its dimensions in memory."""
        blocks = f"{self.rows.block_name}, {self.columns.block_name}"
        flat = f".reshape({blocks})" if self.outer else ""
        return f"{descriptor}.load([{', '.join(place)}]){flat}{'.T' if self.turned else ''}"


def matrix_of(value: Value, tall: Dim, wide: Dim, batch: Dim, tile: Tile) -> Matrix | None:
    """The matrices that an operand with a row for each element of `tall` and a column for each of `wide` is read from.

    None where it is computed, or does not lie in memory as TMA takes it.
    """
    if not isinstance(value, Load) or value.guard or value.indirect or value.dtype != value.buffer.dtype:
        return None
    index = tile.index(value.index)
    strides = [(a, s, coefficient(index, a) or sympy.S.Zero) for a, s in zip(batch.axes, batch.sizes, strict=True)]
    outer = tuple(Outer(a, size, stride) for a, size, stride in strides if stride != 0)
    if len(outer) > MOST_DIMENSIONS - 2 or not all(_fits(o.stride * value.buffer.dtype.itemsize) for o in outer):
        return None
    for rows, columns in ((tall, wide), (wide, tall)):
        stride, step = (_step(index, d.axes, d.sizes) for d in (rows, columns))
        if stride is None or step != 1 or not _fits(stride * value.buffer.dtype.itemsize):
            continue
        along = sum(s * _whole(d) for s, d in ((stride, rows), (step, columns))) + sum(o.stride * o.axis for o in outer)
        if sympy.expand(index - along) == 0:
            return Matrix(value.buffer, outer, rows, columns, stride, rows is wide)
    return None


def _step(index: Index, axes: Sequence[sympy.Symbol], sizes: Coords) -> Index | None:
    """By how much an index grows with each element of some axes together; None where that is not always as much."""
    step = coefficient(index, axes[-1]) if axes else None
    even = step is not None and all(
        sympy.expand((coefficient(index, a) or 0) - step * count(sizes[i + 1 :])) == 0 for i, a in enumerate(axes)
    )
    return step if even else None


def _whole(dim: Dim) -> Index:
    """The number of an element, counted through all axes of a dimension."""
    return sum(a * count(dim.sizes[i + 1 :]) for i, a in enumerate(dim.axes))


def _fits(stride: Index) -> bool:
    """Whether rows that lie so many bytes apart are where TMA looks for them."""
    return bool(stride > 0) if stride.is_Integer and stride % ALIGNMENT == 0 else False
