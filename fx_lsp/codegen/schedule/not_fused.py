"""Say why the kernels of two steps are not one, as data. `fx_lsp/messages/fusion.py` has the sentences."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from torch import fx

from fx_lsp.codegen.graph.query import is_scan, reduced_dimensions, scanned_dimension, shape_of
from fx_lsp.codegen.ir.index import Coords
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.model import WhyNotFused


@dataclass(frozen=True)
class NotFused:
    """Hold the reason why a kernel does not compute what a later one does, with its facts.

    `nodes` are those that the reason is about, the earlier one first. `sizes` are those that both kernels run over; for
    "reductions", the shape and the dimensions of each; for "row", the number of elements and the limit. `why` is the
    reason why a node is called or stored.
    """

    kind: WhyNotFused
    nodes: tuple[fx.Node, ...] = ()
    sizes: tuple[Coords | tuple[int, ...], ...] = ()
    why: str = ""


def of_call(node: fx.Node) -> NotFused:
    """Return the reason why a step that is a node of the graph shares no kernel."""
    return NotFused("template" if facts_of(node).template is not None else "call", (node,))


def of_reductions(left: fx.Node, right: fx.Node) -> NotFused:
    """Return the reason that two reductions or scans run over dimensions that no loop of one kernel has."""
    sizes = tuple(part for node in (left, right) for part in _shape_and_dimensions(node))
    return NotFused("reductions", (left, right), sizes)


def reduction_of(node: fx.Node) -> fx.Node:
    """Return the reduction that a node is, or that it is a result of."""
    source: Any = node.args[0]
    return source if node.target is operator.getitem else node


def _shape_and_dimensions(node: fx.Node) -> tuple[Coords, tuple[int, ...]]:
    if is_scan(node):
        return shape_of(node), (scanned_dimension(node),)
    reduction = reduction_of(node)
    return shape_of(reduction.all_input_nodes[0]), tuple(sorted(reduced_dimensions(reduction)))
