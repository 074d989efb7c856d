"""Values over the axes of a kernel, before they are text. Each is an expression of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import sympy
import torch
from torch import fx

from fx_lsp.codegen.ir.index import Coords, Index
from fx_lsp.codegen.ir.ops import Op, Scalar, Sign

Axes: TypeAlias = frozenset[sympy.Symbol]


@dataclass(frozen=True)
class Comparison:
    """The condition that `left` compares with `right` by `sign`."""

    left: Index
    sign: Sign
    right: Index


Guard: TypeAlias = tuple[Comparison, ...]
"""The conditions under which a value is needed. Elsewhere it is undefined, and its loads may be out of bounds."""


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory. Sizes and strides are in elements; `name` is its name in the file."""

    name: str
    dtype: torch.dtype
    shape: Coords
    strides: Coords


@dataclass(frozen=True, eq=False)
class Value:
    """A value that a kernel holds in registers for each element of the `axes` over which it varies.

    `dtype` is the dtype that it is computed in (float32 for half precision). `node` is the operation that it is from.
    """

    dtype: torch.dtype
    node: fx.Node | None
    axes: Axes

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it is computed from."""
        return ()


@dataclass(frozen=True, eq=False)
class Constant(Value):
    """A constant."""

    value: Scalar


@dataclass(frozen=True, eq=False)
class Variable(Value):
    """A variable that the kernel already has; `text` is its name."""

    text: str


@dataclass(frozen=True, eq=False)
class Indexed(Value):
    """A value that depends on an index. `indirect` are the values of index symbols in it."""

    indirect: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.indirect


@dataclass(frozen=True, eq=False)
class Coordinate(Indexed):
    """An index as a value."""

    index: Index


@dataclass(frozen=True, eq=False)
class Test(Indexed):
    """The truth of all conditions of a guard."""

    guard: Guard


@dataclass(frozen=True, eq=False)
class Load(Indexed):
    """An element of a buffer. It is read only if `guard` holds."""

    buffer: Buffer
    index: Index
    guard: Guard


@dataclass(frozen=True, eq=False)
class Compute(Value):
    """An operation on other values."""

    op: Op
    args: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.args


@dataclass(frozen=True, eq=False)
class Reduction(Value):
    """A result of a reduction of `args` over the axes `over`. `kind` is one of `graph.query.REDUCTION_KINDS`.

    A reduction with several results (`var_mean`, `argmax`) has one value for each `part`.
    """

    kind: str
    args: tuple[Value, ...]
    over: tuple[sympy.Symbol, ...]
    part: int

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.args


@dataclass(frozen=True, eq=False)
class Scan(Value):
    """The running result of `arg` along the axes `over`, in their order."""

    kind: str
    arg: Value
    over: tuple[sympy.Symbol, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.arg,)


@dataclass(frozen=True, eq=False)
class Store:
    """A value to write to an element of a buffer. `node` is the operation that stores it."""

    buffer: Buffer
    index: Index
    value: Value
    node: fx.Node

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that are stored, and other values needed."""
        return (self.value,)

    @property
    def axes(self) -> Axes:
        """The axes over which it runs."""
        return frozenset(self.index.free_symbols)


@dataclass(frozen=True, eq=False)
class IndexedStore(Store):
    """A value to write to an element of a buffer for each element of the axes `over`, if `where` holds.

    `indirect` are the values of index symbols. If several values are for one element, any of them may stay.
    """

    indirect: tuple[Value, ...]
    where: Value | None
    over: Axes

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.indirect, *(() if self.where is None else (self.where,)), self.value)

    @property
    def axes(self) -> Axes:
        return self.over


class AtomicAdd(IndexedStore):
    """A value to add to an element of a buffer, under the same conditions."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that values of a dtype are computed in: float32 for half precision, otherwise the same."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def values_of(roots: Iterable[Value], but: Iterable[int] = ()) -> Iterator[Value]:
    """Yield every value that `roots` depend on, with the roots, each once and after its inputs.

    Values with ids in `but` are skipped with their inputs.
    """
    seen = set(but)

    def visit(value: Value) -> Iterator[Value]:
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            current, done = stack.pop()
            if done:
                yield current
            elif id(current) not in seen:
                seen.add(id(current))
                stack.append((current, True))
                stack.extend((i, False) for i in reversed(current.inputs))

    for root in roots:
        yield from visit(root)
