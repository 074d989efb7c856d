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

    def index(self, index: Index) -> Index:
        """Return an index in terms of the merged axes."""
        return index.xreplace(dict(self.merged))


@dataclass(frozen=True)
class Config:
    """Block sizes by name, and how many warps work on a program."""

    blocks: tuple[tuple[str, int], ...]
    warps: int
    stages: int = 0


MAX_ROW_ELEMENTS = 16384
"""The most elements of a row that one program holds at once."""

MAX_TILE_ELEMENTS = 8192
"""The most elements that a program holds at once where it reduces both rows and columns of them, in any order."""
