"""Mark writes into a part of a tensor that happen in its memory, so that the rest of it is not copied.

A graph has no mutation: each write is an operation whose result is a whole new tensor. A marked one is an alias of its
first argument instead, and a kernel writes the new elements. The schedule decides if that is possible: everything that
reads the old elements has to come before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from fx_lsp.codegen.graph.query import (
    VIEW_SCATTERS,
    has_only_dense,
    is_view,
    is_without_elements,
    layout_step,
    shape_of,
    stays_call,
    view_chain,
)
from fx_lsp.codegen.graph.scatter import INDEX_PUTS, is_accumulation, replaces_few, scatter_indices
from fx_lsp.codegen.graph.slices import TensorPart, part_of
from fx_lsp.codegen.ir.lowerings import NotFusible, aliases_first, args_of, operation
from fx_lsp.codegen.ir.node_facts import add_facts, facts_of

INDEXED_WRITES = (*INDEX_PUTS, "aten.scatter.src", "aten.scatter.value")
"""The operations that replace elements with indices in a tensor."""

Writes = dict[fx.Node, Literal["write", "enclosing"]]


def mark_partial_writes(graph: fx.Graph, changed: Mapping[fx.Node, fx.Node], refused: Collection[fx.Node]) -> None:
    """Mark the writes that happen in the memory of their first argument, except those in `refused`.

    `changed` maps new values of inputs to old ones. All writes from an old value to the new one are marked, or none.
    Of the tensors that the graph computes, only those with indexed writes stay in place: others are computed with all
    their parts at once.
    """
    for node in graph.nodes:
        if facts_of(node).in_place:
            add_facts(node, in_place=None)
    for new, old in changed.items():
        writes = _writes_between(new, old)
        if not any(node in refused for node in writes):
            _mark(writes)
    for node in graph.nodes:
        if operation(node) not in INDEXED_WRITES or node in refused or facts_of(node).in_place:
            continue
        if replaces_few(node) and not any(map(_is_marked, node.all_input_nodes)):
            continue  # a kernel compares each place with the indices, and nothing is stored
        if _is_partial_write(node) and _is_computed(_memory_path(node.args[0], _is_marked)[0]):
            _mark({node: "write"})
            _mark_enclosing(node)


def _mark(writes: Writes) -> None:
    for node, kind in writes.items():
        add_facts(node, in_place=kind)


def _is_marked(node: fx.Node) -> bool:
    return facts_of(node).in_place is not None


def _is_computed(node: fx.Node) -> bool:
    """Return True if kernels compute a tensor, so that its memory is no other's."""
    return node.op == "call_function" and not aliases_first(node) and not stays_call(node)


def _mark_enclosing(node: fx.Node) -> None:
    """Mark the nodes that put a written view back into its tensor: they have nothing left to write."""
    for user in node.users:
        if _encloses(user, _is_marked):
            _mark({user: "enclosing"})
            _mark_enclosing(user)


def _writes_between(new: fx.Node, old: fx.Node) -> Writes:
    """Return the writes that make a new value of an old one, and none if the new one is also made otherwise."""
    writes = _writes_behind(new, old)
    return writes if writes is not None and _has_memory_of(new, old) else {}


def _writes_behind(node: Any, old: fx.Node) -> Writes | None:
    writes: Writes = {}
    while node is not old:
        if _is_partial_write(node):
            inner = _writes_behind(node.args[1], old) if _encloses(node, _is_partial_write) else None
            writes |= {node: "write"} if inner is None else {**inner, node: "enclosing"}
        elif not _keeps_places(node):
            return None
        node = node.args[0]
    return writes


def _encloses(node: fx.Node, is_write: Callable[[fx.Node], bool]) -> bool:
    """Return True if a node replaces a view of a tensor by that view, after a write into it."""
    if operation(node) not in VIEW_SCATTERS:
        return False
    value: Any = args_of(node)[1]
    if not is_write(value):
        return False
    base, views = _memory_path(node.args[0], is_write)
    inner, inner_views = _memory_path(value, is_write)
    return inner is base and list(map(_view_of, inner_views)) == [*map(_view_of, views), _view_of(node)]


def _view_of(node: fx.Node) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the operation and the arguments of a view, or of the view that a node replaces."""
    name = operation(node)
    replaces = name in VIEW_SCATTERS
    return VIEW_SCATTERS.get(name, name), node.args[2 if replaces else 1 :], node.kwargs


def _memory_path(node: Any, is_write: Callable[[fx.Node], bool]) -> tuple[fx.Node, list[fx.Node]]:
    """Return the tensor whose memory a node has after writes in place, and the views from there to the node."""
    views: list[fx.Node] = []
    while is_write(node) or _keeps_places(node):
        if not is_write(node):
            views.insert(0, node)
        node = node.args[0]
    return node, views


def writes_in(node: Any) -> set[fx.Node]:
    """Return the writes in place whose elements a tensor contains."""
    writes: set[fx.Node] = set()
    while is_view(node):
        kind = facts_of(node).in_place
        writes |= {node} if kind == "write" else writes_in(node.args[1]) if kind == "enclosing" else set()
        node = node.args[0]
    return writes


def written_operands(node: fx.Node) -> list[fx.Node]:
    """Return the operands of a write, without the tensor that it writes into."""
    operands: dict[fx.Node, None] = {}
    fx.map_arg((node.args[1:], node.kwargs), lambda n: operands.setdefault(n))
    return list(operands)


def write_touches(write: fx.Node, tensor: fx.Node) -> bool:
    """Return False if a tensor that shares the memory of a write in place is certain not to change by it."""
    return _may_overlap(_views_written(write), _memory_path(tensor, _is_marked)[1])


def writes_overlap(one: fx.Node, other: fx.Node) -> bool:
    """Return False if two writes in place into the same memory are certain to have no element in common."""
    return _may_overlap(_views_written(one), _views_written(other))


def _may_overlap(one: Sequence[fx.Node], other: Sequence[fx.Node]) -> bool:
    """Return False if successive views lead to different elements of one tensor."""
    for a, b in zip(one, other, strict=False):
        if _view_of(a) == _view_of(b):
            continue
        first, second = (_part_viewed(n) for n in (a, b))
        if first is None or second is None or first.dim != second.dim:
            return True
        return first.start < second.end and second.start < first.end
    return True


def _part_viewed(node: fx.Node) -> TensorPart | None:
    """Return the part of a tensor that a view shows, or that a node replaces; None if it is no such part."""
    if _view_of(node)[0] not in ("aten.select.int", "aten.slice.Tensor"):
        return None
    return part_of(node, node.args[0], 2 if operation(node) in VIEW_SCATTERS else 1)


def _views_written(node: fx.Node) -> list[fx.Node]:
    """Return the views from a tensor to the part of it that a write is restricted to."""
    _, views = _memory_path(node.args[0], _is_marked)
    return [*views, node] if operation(node) in VIEW_SCATTERS else views


def _keeps_places(node: fx.Node) -> bool:
    """Return True if a node is a view with different places for different elements."""
    moves = operation(node) in VIEW_SCATTERS.values() or layout_step(node) is not None
    return is_view(node) and moves and not _is_marked(node)


def _has_memory_of(new: fx.Node, old: fx.Node) -> bool:
    """Return True if a new value, after writes in place, has its elements where the old value has them."""
    contiguous = all(n.meta["val"].is_contiguous() for n in (new, old)) and shape_of(new) == shape_of(old)
    return contiguous or not _memory_path(new, _is_partial_write)[1]


def _is_partial_write(node: fx.Node) -> bool:
    """Return True if a node is a tensor with new values of some elements, whose places a kernel can compute."""
    name = operation(node)
    if name not in INDEXED_WRITES and name not in VIEW_SCATTERS:
        return False
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    if not has_only_dense(node) or any(isinstance(v, torch.Tensor) and is_without_elements(v) for v in values):
        return False
    if is_accumulation(node) or not shape_of(node):
        return False
    indices = scatter_indices(node) if name in INDEX_PUTS else []
    return not any(i is not None and i.meta["val"].dtype in (torch.bool, torch.uint8) for i in indices)


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
