"""The order of writes in place: what has to be in earlier steps than a write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import fx

from fx_lsp.codegen.graph.partial_writes import write_touches, writes_in, writes_overlap, written_operands
from fx_lsp.codegen.graph.query import view_chain
from fx_lsp.codegen.ir.lowerings import NotFusible
from fx_lsp.codegen.ir.node_facts import facts_of

Needed: TypeAlias = Callable[[fx.Node], frozenset[fx.Node]]
"""Returns the nodes in memory that a node is computed from: on each path, the nearest one."""


@dataclass(frozen=True)
class WriteOrder:
    """Hold the nodes that have to be in earlier steps than a write in place (`before`): other writes of the same
    elements, and all readers of older versions of the tensor.

    `conflicts` are later versions that should not contain the write. `shared` is a written value that is computed from
    an older version and that others use, too; None without one.
    """

    before: set[fx.Node]
    conflicts: set[fx.Node]
    shared: fx.Node | None

    def first_step(self, write: fx.Node, place: Mapping[fx.Node, int]) -> int:
        """Return the first step that may contain the write. Raises NotFusible if there is none: for a value that has to
        be stored before, or for the write.
        """
        if self.conflicts or any(n not in place for n in self.before):
            raise NotFusible(self.shared or write, "overwrites elements that are read later")
        return max((place[n] + 1 for n in self.before), default=0)


def order_of_writes(
    nodes: Iterable[fx.Node], in_memory: Collection[fx.Node], results: Iterable[fx.Node], needed: Needed
) -> dict[fx.Node, WriteOrder]:
    """Return the order of the writes among the nodes that are in place, which are `nodes` in the order of the graph."""
    into: dict[fx.Node, list[fx.Node]] = {}
    for node in nodes:
        *_, base = view_chain(node)
        into.setdefault(base, []).append(node)
    if not into:
        return {}
    readers = _readers(in_memory, results, needed)
    order: dict[fx.Node, WriteOrder] = {}
    for base, versions in into.items():
        for number, node in enumerate(versions):
            if facts_of(node).in_place == "write":
                earlier = [base, *(n for n in versions[:number] if write_touches(node, n))]
                before = {user for n in earlier for user in readers.get(n, ())} - {node}
                before |= set(_writes_before(node, base, versions[:number]))
                later = {n for n in versions[number + 1 :] if write_touches(node, n)}
                conflicts = {n for n in later if node not in writes_in(n)}
                order[node] = WriteOrder(before, conflicts, _shared_value(node, earlier, in_memory, needed))
    return order


def _readers(in_memory: Collection[fx.Node], results: Iterable[fx.Node], needed: Needed) -> dict[fx.Node, set[fx.Node]]:
    """Return for each node in memory the others that read it. The output of the graph reads the results."""
    readers: dict[fx.Node, set[fx.Node]] = {}
    for node in in_memory:
        for source in needed(node) if facts_of(node).in_place != "enclosing" else ():
            readers.setdefault(source, set()).add(node)
    for node in results:
        output = next(user for user in node.users if user.op == "output")
        for source in (node, *(() if node in in_memory else needed(node))):
            readers.setdefault(source, set()).add(output)
    return readers


def _writes_before(write: fx.Node, base: fx.Node, earlier: Sequence[fx.Node]) -> Iterable[fx.Node]:
    """Yield the nodes that write elements of a write before it does."""
    if base.op == "call_function":
        yield base
    for node in earlier:
        if facts_of(node).in_place == "write" and writes_overlap(write, node):
            yield node


def _shared_value(
    write: fx.Node, earlier: Sequence[fx.Node], in_memory: Collection[fx.Node], needed: Needed
) -> fx.Node | None:
    for node in written_operands(write):
        computed = isinstance(node.meta.get("val"), torch.Tensor) and node not in in_memory
        if computed and len(node.users) > 1 and not needed(node).isdisjoint(earlier):
            return node
    return None
