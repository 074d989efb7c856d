"""A kernel as statements, the names in it, and its launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import fx

from fx_lsp.codegen.ir.index import Coords, Index, count, size_symbol
from fx_lsp.codegen.ir.statement import CodeLine, Statement, divisors, names_used, print_statements
from fx_lsp.codegen.ir.tile import Tile
from fx_lsp.codegen.ir.values import Buffer

INDEX = "INDEX"
"""The type of offsets in kernels with symbolic sizes: a parameter that depends on the sizes of a launch."""


def offset_type(shapes: Iterable[Coords]) -> str | None:
    """Return the type of offsets into tensors of these shapes, None if 32 bits are enough."""
    sizes = [count(shape) for shape in shapes]
    if any(size.is_Integer and size >= 2**31 for size in sizes):
        return "tl.int64"
    return None if all(size.is_Integer for size in sizes) else INDEX


def converted(text: str, dtype: str | None) -> str:
    """Return an expression converted to a Triton type, or unchanged for None."""
    return text if dtype is None else f"{text}.to({dtype})"


def offset_parameters(body: Iterable[Statement]) -> list[KernelParameter]:
    """Return the parameter for the type of offsets if statements use it."""
    return [KernelParameter(INDEX, True, "tl.int32")] if INDEX in names_used(body) else []


def sizes_used(statements: Iterable[Statement], expressions: Iterable[Index]) -> dict[str, Index]:
    """Return the symbolic sizes in expressions that statements use, by name."""
    free = {s.name for expression in expressions for s in expression.free_symbols}
    return {s: size_symbol(s) for s in sorted(free & names_used(statements))}


@dataclass(frozen=True)
class Naming:
    """The names in a kernel.

    `name` returns the name of a node, and `variable` the variable that the user bound it to, or None. `source` returns
    the line of the user's file that a node is from, as a comment, or "".
    """

    name: Callable[[fx.Node], str]
    variable: Callable[[fx.Node], str | None]
    source: Callable[[fx.Node], str]


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel. Triton compiles a kernel again for each value of a `constant` parameter.

    One with a `default` is not among the arguments of its launches: `launch` in the file adds it where it is needed.
    """

    name: str
    constant: bool = False
    default: str | None = None

    def printed(self) -> str:
        """Return its definition."""
        annotated = f"{self.name}: tl.constexpr" if self.constant else self.name
        return annotated if self.default is None else f"{annotated} = {self.default}"


SECTOR = 32
"""The bytes of a memory request: what a warp reads at least for an address."""

ProductKind = Literal["f32", "half", "half, TMA", "library f32", "library half"]
"""Who computes a matrix product: a kernel, or PyTorch's library; in float32 or half precision."""


@dataclass(frozen=True)
class KernelWork:
    """Hold the work of one launch, at the sizes of the capture.

    `moved` are bytes between the GPU's memory and its cache: each element once. `requests` are those of 32 bytes to
    the caches; one for each element where neighbouring elements are not next to each other. `operations` count an
    addition as 1. `programs` have `warps` warps, and `iterations` of a loop each; 0 of them are enough. It is
    `sequential` if it computes elements from earlier ones: a scan or a recurrence. The operations of a `product` are
    those of a matrix product.
    """

    moved: int = 0
    requests: int = 0
    operations: int = 0
    programs: int = 0
    warps: int = 0
    iterations: int = 1
    sequential: bool = False
    product: ProductKind | None = None


@dataclass
class Kernel:
    """A kernel: its parameters and statements, and the buffers that it `reads` and `writes`, in argument order.

    `sizes` are further arguments with their values. `adds` are the names of buffers that it adds to, which must be zero
    before. `described` are the buffers that TMA reads; such a kernel has one program for each multiprocessor.
    `overwrites` are the buffers that have old values before and new ones after. `work` is None for a template.
    """

    name: str
    parameters: tuple[KernelParameter, ...]
    body: tuple[Statement, ...]
    reads: list[Buffer]
    writes: list[Buffer]
    sizes: dict[str, Index]
    tile: Tile
    adds: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    overwrites: tuple[str, ...] = ()
    work: KernelWork | None = None

    @property
    def costly_sizes(self) -> set[str]:
        """The names of the symbolic sizes that it loops over, or by which it divides the indices of elements, or, in a
        template, to which it pads the operands of products.

        A program divides its own number once, which costs nothing.
        """
        padded = [dim for dim in self.tile.dims if dim.role == "loop" or (self.work is None and dim.block > 1)]
        looped = [size for dim in padded for size in dim.sizes]
        numbers = {dim.variable for dim in self.tile.dims if dim.block == 1}
        divided = [self.sizes[name] for name in divisors(self.body, numbers | self.sizes.keys()) & self.sizes.keys()]
        return {symbol.name for size in (*looped, *divided) for symbol in size.free_symbols}

    def printed(self) -> list[CodeLine]:
        """Return the definition as lines."""
        parameters = ", ".join(p.printed() for p in self.parameters)
        return [CodeLine(f"def {self.name}({parameters}):"), *print_statements(self.body)]


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with the nodes that it reads and writes, and its `offsets`, which are arguments after the sizes."""

    kernel: Kernel
    reads: tuple[fx.Node, ...]
    writes: tuple[fx.Node, ...]
    offsets: Mapping[str, Index] = field(default_factory=dict[str, Index])

    @property
    def sizes(self) -> dict[str, Index]:
        """The sizes and offsets, by parameter."""
        return {**self.kernel.sizes, **self.offsets}

    def nodes_of(self, names: Collection[str]) -> set[fx.Node]:
        """Return the nodes of the buffers that have some names in the kernel."""
        kernel = self.kernel
        buffers = (*zip(kernel.reads, self.reads, strict=True), *zip(kernel.writes, self.writes, strict=True))
        return {node for buffer, node in buffers if buffer.name in names}
