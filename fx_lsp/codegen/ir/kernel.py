"""A kernel as statements, what things in it are called, and its launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import fx

from fx_lsp.codegen.ir.index import Index, size_symbol
from fx_lsp.codegen.ir.statement import CodeLine, Statement, names_used, print_statements
from fx_lsp.codegen.ir.tile import Tile
from fx_lsp.codegen.ir.values import Buffer


def sizes_used(statements: Iterable[Statement], expressions: Iterable[Index]) -> dict[str, Index]:
    """Return the sizes that are known only when a kernel runs, of those in expressions, that its statements use, by
    name."""
    free = {s.name for expression in expressions for s in expression.free_symbols}
    return {s: size_symbol(s) for s in sorted(free & names_used(statements))}


@dataclass(frozen=True)
class Naming:
    """The names of things in a kernel: `name` of any node, `variable` of one that the user bound to a name, or None;
    `source` is the line of the user's file that a node came from, as it is written in a comment, or ""."""

    name: Callable[[fx.Node], str]
    variable: Callable[[fx.Node], str | None]
    source: Callable[[fx.Node], str]


@dataclass(frozen=True)
class KernelParameter:
    """A parameter of a kernel; Triton compiles one anew for each value of a `constant` one."""

    name: str
    constant: bool = False


@dataclass
class Kernel:
    """A kernel: its parameters and statements, the buffers that it `reads` and `writes`, in the order of its arguments,
    and `sizes`, the further arguments with what is passed for them. `adds` are the names of the buffers that it adds
    to, which have to be zero before; `described` those that TMA reads: such a kernel has as many programs as there are
    multiprocessors; `overwrites` those that have new values afterwards and old ones before."""

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

    def printed(self) -> list[CodeLine]:
        """Return the definition as lines."""
        parameters = ", ".join(f"{p.name}: tl.constexpr" if p.constant else p.name for p in self.parameters)
        return [CodeLine(f"def {self.name}({parameters}):"), *print_statements(self.body)]


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with the nodes that it reads and writes."""

    kernel: Kernel
    reads: tuple[fx.Node, ...]
    writes: tuple[fx.Node, ...]
