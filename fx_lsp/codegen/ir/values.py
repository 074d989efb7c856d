"""What a kernel computes, before it is text: values over the axes of the kernel, each made of others."""

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
    """Holds where `left` compares with `right` as `sign` says."""

    left: Index
    sign: Sign
    right: Index


Guard: TypeAlias = tuple[Comparison, ...]
"""Where a value is needed at all; elsewhere it may be anything, and what it would load may not exist."""


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory. Sizes and strides count elements; `name` is what the file calls it."""

    name: str
    dtype: torch.dtype
    shape: Coords
    strides: Coords


@dataclass(frozen=True, eq=False)
class Value:
    """Something that a kernel holds, in registers, for each element of the `axes` over which it varies.

    `dtype` is what it is computed in (float32 for the half-precision ones); `node` is the operation it came from.
    """

    dtype: torch.dtype
    node: fx.Node | None
    axes: Axes

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it is made of."""
        return ()


@dataclass(frozen=True, eq=False)
class Constant(Value):
    """A number."""

    value: Scalar


@dataclass(frozen=True, eq=False)
class Variable(Value):
    """Something that the kernel has already; `text` is how it is written."""

    text: str


@dataclass(frozen=True, eq=False)
class Indexed(Value):
    """A value that depends on an index. `indirect` are the values that stand behind symbols in it."""

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
    """Whether all conditions of a guard hold."""

    guard: Guard


@dataclass(frozen=True, eq=False)
class Load(Indexed):
    """An element of a buffer; read only where `guard` holds."""

    buffer: Buffer
    index: Index
    guard: Guard


@dataclass(frozen=True, eq=False)
class Compute(Value):
    """What an operation makes of other values."""

    op: Op
    args: tuple[Value, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.args


@dataclass(frozen=True, eq=False)
class Reduction(Value):
    """One result of reducing `args` over the axes `over`; `kind` is one of those in `graph.query.REDUCTION_KINDS`.

    A reduction with several results (`var_mean`, `argmax`) is one value for each `part`.
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
    """A value to be written to an element of a buffer; `node` is the operation that asked for it."""

    buffer: Buffer
    index: Index
    value: Value
    node: fx.Node

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that it takes."""
        return (self.value,)

    @property
    def axes(self) -> Axes:
        """The axes over which it runs."""
        return frozenset(self.index.free_symbols)


@dataclass(frozen=True, eq=False)
class AtomicAdd(Store):
    """A value to be added to an element of a buffer, for each element of the axes `over`, and only where `where` holds.
    `indirect` are the values that stand behind symbols in the index."""

    indirect: tuple[Value, ...]
    where: Value | None
    over: Axes

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.indirect, *(() if self.where is None else (self.where,)), self.value)

    @property
    def axes(self) -> Axes:
        return self.over


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that values of a dtype are computed in: half precision in float32, everything else as it is."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def values_of(roots: Iterable[Value], but: Iterable[int] = ()) -> Iterator[Value]:
    """Yield every value that `roots` are made of, they themselves too, each once and before those that are made of it;
    none of those with the ids `but`, and nothing that they are made of."""
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
