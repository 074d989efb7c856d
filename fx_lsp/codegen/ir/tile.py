"""The tile of a program: its dimensions, block sizes to choose from, and limits on its size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import sympy

from fx_lsp.codegen.ir.index import Coords, Index, count

DimRole = Literal["grid", "loop", "whole"]


@dataclass(frozen=True)
class Dim:
    """Some axes, flattened, outermost first, as one dimension of the tile of a program.

    `role`: a "grid" dimension is split over programs, each program loops over a "loop" dimension, and a "whole"
    dimension is held at once. `block` is the number of elements at a time; a dimension with block 1 is not part of
    tiles. `variable` is the name of its index, `size_name` and `block_name` those of its size and block.
    """

    axes: tuple[sympy.Symbol, ...]
    sizes: Coords
    role: DimRole
    block: int
    variable: str
    size_name: str
    block_name: str

    @property
    def size(self) -> Index:
        """The number of its elements."""
        return count(self.sizes)

    @property
    def whole(self) -> sympy.Symbol:
        """The symbol of the flat index over all axes."""
        return sympy.Symbol(self.variable, integer=True, nonnegative=True)


@dataclass(frozen=True)
class Tile:
    """The dimensions of a kernel, outermost first, and the merged axes.

    `configs` are block sizes and warps to choose from, best first.
    """

    dims: tuple[Dim, ...]
    merged: Mapping[sympy.Symbol, Index]
    configs: tuple[Config, ...]

    @property
    def grid(self) -> tuple[Dim, ...]:
        """The dimensions split over programs, one for each axis of the grid.

        The first axis takes any number of programs, the others `MAX_PROGRAMS` each. An open size may be any, such as a
        batch of small matrices; blocks of a length are few.
        """
        dims = [d for d in self.dims if d.role == "grid"]
        longest = [d for d in dims if self._programs(d) > MAX_PROGRAMS][:1]
        return (*longest, *(d for d in dims if d not in longest))

    def program(self, dim: Dim) -> str:
        """Return the index of a program along a dimension, as text."""
        return f"tl.program_id({self.grid.index(dim)})"

    def _programs(self, dim: Dim) -> int:
        """Return the largest number of programs along a dimension."""
        if not dim.size.is_Integer:
            return 1 if dim.block > 1 else MAX_PROGRAMS + 1
        blocks = [dict(config.blocks).get(dim.block_name, dim.block) for config in self.configs]
        return -(-int(dim.size) // min(blocks, default=dim.block))

    def index(self, index: Index) -> Index:
        """Return an index in terms of the merged axes."""
        return index.xreplace(dict(self.merged))


@dataclass(frozen=True)
class Config:
    """Block sizes by name, and the number of warps of a program."""

    blocks: tuple[tuple[str, int], ...]
    warps: int
    stages: int = 0


MAX_PROGRAMS = 65535
"""The largest number of programs along an axis of a grid, except the first axis."""

MAX_ROW_ELEMENTS = 16384
"""The largest number of elements of a row that one program holds at once."""

MAX_TILE_ELEMENTS = 8192
"""The largest number of elements that a program holds at once if it reduces both rows and columns."""
