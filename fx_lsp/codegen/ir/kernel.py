"""A kernel as text, what things in it are called, and its launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import fx

from fx_lsp.codegen.ir.index import Index, size_symbol
from fx_lsp.codegen.ir.tile import Tile
from fx_lsp.codegen.ir.values import Buffer


@dataclass(frozen=True)
class CodeLine:
    """A line of a kernel and the operation that it comes from."""

    text: str
    node: fx.Node | None = None


def indent_lines(lines: Iterable[CodeLine]) -> list[CodeLine]:
    """Return lines as those of a block."""
    return [CodeLine(f"    {line.text}".rstrip(), line.node) for line in lines]


def sizes_used(lines: Iterable[CodeLine], expressions: Iterable[Index]) -> dict[str, Index]:
    """Return the sizes that are known only when a kernel runs, of those in expressions, that its lines speak of, by
    name."""
    text = "\n".join(line.text for line in lines if not line.text.lstrip().startswith("#"))
    free = {s.name for expression in expressions for s in expression.free_symbols}
    return {s: size_symbol(s) for s in sorted(free) if re.search(rf"\b{s}\b", text)}


@dataclass(frozen=True)
class Naming:
    """The names of things in a kernel: `name` of any node, `variable` of one that the user bound to a name, or None;
    `source` is the line of the user's file that a node came from, as it is written in a comment, or ""."""

    name: Callable[[fx.Node], str]
    variable: Callable[[fx.Node], str | None]
    source: Callable[[fx.Node], str]


@dataclass
class Kernel:
    """A kernel as text: the buffers that it `reads` and `writes`, in the order of its arguments, and `sizes`, the
    further arguments with what is passed for them. `adds` are the names of the buffers that it adds to, which have to
    be zero before; `described` those that TMA reads: such a kernel has as many programs as there are multiprocessors;
    `overwrites` those that have new values afterwards and old ones before."""

    name: str
    lines: list[CodeLine]
    reads: list[Buffer]
    writes: list[Buffer]
    sizes: dict[str, Index]
    tile: Tile
    helpers: list[str]
    adds: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    overwrites: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelLaunch:
    """A kernel with the nodes that it reads and writes."""

    kernel: Kernel
    reads: tuple[fx.Node, ...]
    writes: tuple[fx.Node, ...]
