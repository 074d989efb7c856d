"""What rewrites have found out about a node, or decided of it: data that the node has, and copies of it have, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import fx

from fx_lsp.codegen.ir.index import Coords
from fx_lsp.codegen.ir.kernel import Kernel, Naming
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.ir.write_target import LayoutStep, WriteTarget


class TemplateWriter(Protocol):
    """Writes the kernels of a node. `targets` are those of its results by number, as far as they are needed; `buffers`
    are what is in memory."""

    def __call__(
        self, targets: Mapping[int, WriteTarget], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]: ...


@dataclass(frozen=True)
class NodeRole:
    """The role of a node in what a kernel computes: the gradient of something, or what is called `title`.

    `of` are the names of the nodes that might say what that something is called, the likeliest first.
    """

    title: str
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Iteration:
    """The place of a node in a loop: which loop, which of its iterations, in the order in which they run, and which
    operation of the body, the same number in all iterations."""

    loop: int
    number: int
    position: int


@dataclass(frozen=True)
class NodeFacts:
    """What is known of a node.

    `writer` writes the kernels that it stands for, None for an operation of ATen; `output_layout` is, for a result of
    such a node, the shape in which it is computed, and the steps from there to what is in memory. `role` names what
    nothing else gives a name. `seeds` are those of random numbers, and a `scatter_sum` is added up with atomic
    operations. What `must_materialize` is in memory, so that what is made of it is no part of the loop that makes it.
    `parts` is how many parts a reduction behind a loop is split into, 0 for as many as any other, None if that is open.
    `iteration` says where in a loop it is, for a node of one.
    """

    writer: TemplateWriter | None = None
    output_layout: tuple[Coords, tuple[LayoutStep, ...]] | None = None
    role: NodeRole | None = None
    seeds: bool = False
    scatter_sum: bool = False
    must_materialize: bool = False
    parts: int | None = None
    iteration: Iteration | None = None


FACTS = "fx_lsp_facts"
"""The key of facts in the `meta` of a node."""

_NONE = NodeFacts()


def facts_of(node: fx.Node) -> NodeFacts:
    """Return what is known of a node."""
    return node.meta.get(FACTS, _NONE)


def add_facts(node: fx.Node, **facts: Any) -> None:
    """Have more be known of a node."""
    node.meta[FACTS] = replace(facts_of(node), **facts)
