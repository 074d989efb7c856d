"""The tile that a program works on: its dimensions, block sizes to choose from, and how much a program may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import sympy

from fx_lsp.codegen.ir.index import Coords, Index, count

DimRole = Literal["grid", "loop", "whole"]


@dataclass(frozen=True)
class Dim:
    """Some axes, flattened, outermost first, as one dimension of the tile that a program works on.

    `role`: a "grid" dimension is spread over programs, a "loop" one is gone through by each of them in steps, a "whole"
    one is there at once. `block` is how many elements there are at a time; with 1, the dimension is no part of tiles.
    `variable` is the index in the text, `size_name` and `block_name` what its size and block are called.
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
        """The number of an element, counted through all axes."""
        return sympy.Symbol(self.variable, integer=True, nonnegative=True)


@dataclass(frozen=True)
class Tile:
    """The dimensions of a kernel, outermost first, and how its axes were merged.

    `configs` are block sizes and warps to choose from, best first.
    """

    dims: tuple[Dim, ...]
    merged: Mapping[sympy.Symbol, Index]
    configs: tuple[Config, ...]

    @property
    def grid(self) -> tuple[Dim, ...]:
        """The dimensions that are spread over programs, one for each axis of the grid: the first axis takes any number
        of programs, the others `MAX_PROGRAMS` each."""
        dims = [d for d in self.dims if d.role == "grid"]
        longest = [d for d in dims[1:] if d.size.is_Integer and self._programs(d) > MAX_PROGRAMS]
        return (*longest, *(d for d in dims if d not in longest))

    def program(self, dim: Dim) -> str:
        """Return the number of a program along a dimension, as text."""
        return f"tl.program_id({self.grid.index(dim)})"

    def _programs(self, dim: Dim) -> int:
        """Return how many programs there are along a dimension of a known size, at most."""
        blocks = [dict(config.blocks).get(dim.block_name, dim.block) for config in self.configs]
        return -(-int(dim.size) // min(blocks, default=dim.block))

    def index(self, index: Index) -> Index:
        """Return an index in terms of the merged axes."""
        return index.xreplace(dict(self.merged))


@dataclass(frozen=True)
class Config:
    """Block sizes by name, and how many warps work on a program."""

    blocks: tuple[tuple[str, int], ...]
    warps: int
    stages: int = 0


MAX_PROGRAMS = 65535
"""The most programs along an axis of a grid that is not its first."""

MAX_ROW_ELEMENTS = 16384
"""The most elements of a row that one program holds at once."""

MAX_TILE_ELEMENTS = 8192
"""The most elements that a program holds at once where it reduces both rows and columns of them, in any order."""
