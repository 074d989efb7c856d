"""Facts about a node that rewrites record in its `meta`. Copies of the node keep them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import fx

from fx_lsp.codegen.ir.index import Coords
from fx_lsp.codegen.ir.template import Template
from fx_lsp.codegen.ir.write_target import LayoutStep


@dataclass(frozen=True)
class NodeRole:
    """The role of a node: a gradient, or a value called `title`.

    `of` are the names of nodes from which the name derives, such as the node of a gradient, the most likely first.
    """

    title: str
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Iteration:
    """The place of a node in a loop: the loop, the iteration in execution order, and the operation of the body.

    The operation has the same number in all iterations.
    """

    loop: int
    number: int
    position: int


@dataclass(frozen=True)
class NodeFacts:
    """Facts about a node.

    `template` says what a template node computes; it is None for an ATen operation. `output_layout` is, for a result of
    such a node, the shape that it is computed in and the steps from there to memory. `role` names a node without
    another name. `seeds` are those of random numbers. A `scatter_sum` uses atomic additions. A node that
    `must_materialize` is in memory, so that its users are not part of the loop that computes it. `parts` is the number
    of parts that a reduction behind a loop is split into: 0 for the same number as others, None if undecided.
    `iteration` is the place of a node in a loop. A node `in_place` is in the memory of its first argument: a kernel
    writes the new elements there, or, if it is "enclosing", another node that writes into a view has done so.
    """

    template: Template | None = None
    output_layout: tuple[Coords, tuple[LayoutStep, ...]] | None = None
    role: NodeRole | None = None
    seeds: bool = False
    scatter_sum: bool = False
    must_materialize: bool = False
    parts: int | None = None
    iteration: Iteration | None = None
    in_place: Literal["write", "enclosing"] | None = None


FACTS = "fx_lsp_facts"
"""The key of facts in the `meta` of a node."""

_NONE = NodeFacts()


def facts_of(node: fx.Node) -> NodeFacts:
    """Return the facts about a node."""
    return node.meta.get(FACTS, _NONE)


def add_facts(node: fx.Node, **facts: Any) -> None:
    """Add facts about a node."""
    node.meta[FACTS] = replace(facts_of(node), **facts)
