"""The memory that elements of a tensor are written to: its own, or directly that of its views, copies and joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import fx

from fx_lsp.codegen.ir.index import Coords, Index, Space, contiguous_strides, linear
from fx_lsp.codegen.ir.values import Buffer


@dataclass(frozen=True)
class Reshape:
    """The same elements in order, in another shape."""

    before: Coords
    after: Coords


@dataclass(frozen=True)
class Permute:
    """Dimensions in another order, `order`."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Offset:
    """A part of a longer tensor along a dimension, from `start` on."""

    dim: int
    start: Index


LayoutStep: TypeAlias = "Reshape | Permute | Offset"


@dataclass(frozen=True)
class WriteTarget:
    """The place that the elements of `node`, computed in the shape `shape`, are written to: `steps` away in
    `buffer`.
    """

    node: fx.Node
    shape: Coords
    buffer: Buffer
    steps: tuple[LayoutStep, ...] = ()

    def index(self, space: Space, coords: Coords) -> Index:
        """Return the index, in the buffer, of an element."""
        return linear(apply_steps(space, coords, self.steps), self.buffer.strides)


def apply_steps(space: Space, coords: Coords, steps: Sequence[LayoutStep]) -> Coords:
    """Return the coordinates of an element after some steps."""
    for step in steps:
        if isinstance(step, Reshape):
            coords = space.coordinates(linear(coords, contiguous_strides(step.before)), step.after)
        elif isinstance(step, Permute):
            coords = tuple(coords[d] for d in step.order)
        else:
            coords = (*coords[: step.dim], coords[step.dim] + step.start, *coords[step.dim + 1 :])
    return coords
