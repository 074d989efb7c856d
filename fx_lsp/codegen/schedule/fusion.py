"""Decide which operations share a kernel.

An anchor is a node that must exist as a whole: a result, an argument of a call that stays in ATen, a reduction. All
other nodes are computed inside the kernels that use them. Anchors are taken in order. Each joins an earlier group that
runs over the same elements, if nothing that it needs comes after that group. Otherwise it begins a new group, which
says why it is none of the earlier ones.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.partial_writes import Needed, order_of_writes, writes_in, written_operands
from fx_lsp.codegen.graph.query import (
    is_anchor_reduction,
    is_empty,
    is_scan,
    is_view,
    reduced_dimensions,
    scanned_dimension,
    shape_of,
    stays_call,
    view_chain,
)
from fx_lsp.codegen.graph.scatter import scatter_shape
from fx_lsp.codegen.ir.index import Coords, Index, count
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.tile import MAX_ROW_ELEMENTS, MAX_TILE_ELEMENTS
from fx_lsp.codegen.schedule.concat import ConcatParts, concat_parts
from fx_lsp.codegen.schedule.not_fused import NotFused, of_call, of_reductions, reduction_of


@dataclass
class FusionGroup:
    """The anchors that one kernel computes. `sizes` are the sizes of its axes, outermost first.

    `spans` marks for each anchor the axes that it has an element for. `reduces` marks the axes that a reduction reduces
    or that a scan runs along; a scan still has an element for each of them. `refused_by` says for each earlier step, by
    its index, why that does not compute the first of the anchors.
    """

    sizes: Coords
    spans: dict[fx.Node, tuple[bool, ...]] = field(default_factory=dict[fx.Node, tuple[bool, ...]])
    reduces: dict[fx.Node, tuple[bool, ...]] = field(default_factory=dict[fx.Node, tuple[bool, ...]])
    refused_by: dict[int, NotFused] = field(default_factory=dict[int, NotFused])


@dataclass
class Schedule:
    """The steps of a program in order: groups, and calls that stay in ATen. `stored` are the nodes in memory.

    `concat_parts` maps nodes that are written into others to those, with the steps to their elements there.
    """

    steps: list[FusionGroup | fx.Node]
    stored: set[fx.Node]
    concat_parts: ConcatParts

    def stored_by(self, group: FusionGroup) -> list[fx.Node]:
        """Return the nodes that the kernel of a group writes to memory, or into others."""
        return [n for n in group.spans if n in self.stored or n in self.concat_parts or facts_of(n).in_place]

    def not_fused(self, earlier: int, later: int) -> NotFused:
        """Return why two steps are not one, by their indices."""
        step = self.steps[later]
        return step.refused_by[earlier] if isinstance(step, FusionGroup) else of_call(step)


@dataclass(frozen=True)
class _Memory:
    """The nodes of a graph that are in memory, independent of fusion.

    `results`, the `arguments` of `calls` and the nodes in `cut`, each for a reason, must be in memory. `live` are the
    nodes that results and calls need. `roots` are in memory already, with all their `views`. `parts` are written into
    `joined` tensors. The nodes `enclosing` are tensors after a write in place into one of their views.
    """

    results: set[fx.Node]
    calls: set[fx.Node]
    live: set[fx.Node]
    arguments: set[fx.Node]
    cut: Mapping[fx.Node, str]
    roots: set[fx.Node]
    views: set[fx.Node]
    parts: ConcatParts
    joined: set[fx.Node]
    enclosing: set[fx.Node]

    def needs(self, node: fx.Node) -> bool:
        """Return True if a node must be in memory."""
        return node in self.results or node in self.arguments or node in self.cut


def build_schedule(graph: fx.Graph, cut: Mapping[fx.Node, str], called: Collection[fx.Node] = ()) -> Schedule:
    """Return the schedule of `graph`. Nodes in `cut` are anchors, each for a reason; nodes in `called` fall back to
    ATen.
    """
    writes = [n for n in graph.nodes if facts_of(n).in_place == "write"]
    bases = {base for *_, base in map(view_chain, writes) if base.op == "call_function"}
    memory = _memory(graph, {**dict.fromkeys(bases, "is written in place later"), **cut}, called)
    anchors = _anchors(graph, memory)
    boundary = anchors | memory.roots | memory.enclosing
    needs: dict[fx.Node, frozenset[fx.Node]] = {}
    steps, place = _place_anchors(graph, memory, anchors, needs)
    stored = {n for n in anchors if memory.needs(n)}
    for node in anchors:
        stored |= {n for n in anchors_needed(node, boundary, needs) if n in anchors and place[n] != place[node]}
    return Schedule(steps, {n for n in stored if not facts_of(n).in_place} | memory.roots, memory.parts)


def _place_anchors(
    graph: fx.Graph, memory: _Memory, anchors: set[fx.Node], needs: dict[fx.Node, frozenset[fx.Node]]
) -> tuple[list[FusionGroup | fx.Node], dict[fx.Node, int]]:
    """Return the steps of a graph, and the index of the step of each node."""
    boundary = anchors | memory.roots | memory.enclosing
    in_place = [n for n in graph.nodes if facts_of(n).in_place and n in memory.live]
    needed: Needed = lambda node: anchors_needed(node, boundary, needs)  # noqa: E731
    order = order_of_writes(in_place, boundary & memory.live, memory.results, needed)
    steps: list[FusionGroup | fx.Node] = []
    place: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node in memory.calls:
            place[node] = len(steps)
            steps.append(node)
        elif node in memory.joined:
            parts = (n for n, targets in memory.parts.items() for whole, _ in targets if whole is node)
            place[node] = max(place[n] for n in parts) + 1
        elif node in memory.enclosing:
            place[node] = max(place[n] for n in writes_in(node))
        elif node in anchors:
            first = order[node].first_step(node, place) if node in order else 0
            barriers = _barriers(node, {n: place[n] for n in needed(node) if n in place}, memory.cut, first)
            place[node] = _group_anchor(steps, node, needs, place, barriers)
        elif node.target is operator.getitem and node in memory.roots:
            place[node] = place[node.args[0]]
    return steps, place


def _barriers(
    node: fx.Node, needed: Mapping[fx.Node, int], cut: Mapping[fx.Node, str], first: int
) -> dict[int, NotFused]:
    """Return why the steps before a number cannot compute a node, by that number. `needed` has the steps of the nodes
    that it needs, and `first` is the first step after the readers of what it overwrites.
    """
    barriers = {first: NotFused("order", (node,))} if first else dict[int, NotFused]()
    for other, step in needed.items():
        why = _ends_a_step(other, cut)
        if why is not None:
            barriers[step + 1] = NotFused("stored", (other, node), why=why)
        if step:
            barriers.setdefault(step, NotFused("between", (other, node)))
    return barriers


def _ends_a_step(node: fx.Node, cut: Mapping[fx.Node, str]) -> str | None:
    """Return why what needs a node has to be in a later step; None if it does not."""
    if node in cut:
        return cut[node]
    if facts_of(node).scatter_sum:
        return "is a sum of all programs"
    return "writes in place" if facts_of(node).in_place is not None else None


def _memory(graph: fx.Graph, cut: Mapping[fx.Node, str], called: Collection[fx.Node]) -> _Memory:
    """Return the nodes of a graph that are in memory, independent of fusion."""
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    results = set(output.all_input_nodes)
    calls = {n for n in graph.nodes if n.op == "call_function" and (n in called or stays_call(n))}
    live = _live_nodes(results | calls)
    roots = {n for n in graph.nodes if n.op in ("placeholder", "get_attr")} | _results_of(graph, calls)
    views = _views_of(roots)
    parts = concat_parts([n for n in graph.nodes if n in live], roots, views, results)
    joined = {whole for targets in parts.values() for whole, _ in targets}
    views |= _views_of(joined)
    arguments = _arguments(calls, views)
    enclosing = {n for n in live if facts_of(n).in_place == "enclosing"}
    return _Memory(results, calls, live, arguments, cut, roots | joined, views, parts, joined, enclosing)


def _results_of(graph: fx.Graph, calls: Collection[fx.Node]) -> set[fx.Node]:
    """Return the calls and the nodes that pick a result of one, also from nested lists."""
    results = set(calls)
    for node in graph.nodes:
        if node.target is operator.getitem and node.args[0] in results:
            results.add(node)
    return results


def _arguments(calls: Iterable[fx.Node], views: Collection[fx.Node]) -> set[fx.Node]:
    """Return the tensors that calls need in memory: an argument in `views` itself, otherwise the base that it views."""
    arguments = {i for call in calls if not is_empty(call) for i in call.all_input_nodes}
    return {n if n in views else _viewed_base(n) for n in arguments}


def _anchors(graph: fx.Graph, memory: _Memory) -> set[fx.Node]:
    """Return the nodes that must exist as a whole.

    Views of stored nodes are in memory with these. They are anchors only if they are results or parts.
    """
    computed = [n for n in graph.nodes if n in memory.live and n not in memory.roots and n.op == "call_function"]
    anchors = memory.parts.keys() - memory.roots | {n for n in computed if _is_tensor(n) and _is_anchor(n, memory)}
    views = _views_of({n for n in anchors if not is_view(n) and memory.needs(n)})
    results = {n for n in views if n in memory.results or n in memory.parts or facts_of(n).in_place}
    return anchors - (views - results)


def _is_anchor(node: fx.Node, memory: _Memory) -> bool:
    if facts_of(node).in_place:
        return facts_of(node).in_place == "write"
    if is_anchor_reduction(node) or is_scan(node) or facts_of(node).scatter_sum or node in memory.cut:
        return True
    return (node in memory.results or node in memory.arguments) and node not in memory.views


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _live_nodes(roots: Iterable[fx.Node]) -> set[fx.Node]:
    live: set[fx.Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(() if is_empty(node) else node.all_input_nodes)
    return live


def _views_of(roots: set[fx.Node]) -> set[fx.Node]:
    """Return the views of nodes in memory, also views of views. They cost nothing outside a kernel."""
    views: set[fx.Node] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        for user in node.users:
            if user.args and user.args[0] is node and is_view(user) and user not in views:
                views.add(user)
                pending.append(user)
    return views


def _viewed_base(node: fx.Node) -> fx.Node:
    """Return the base of which a node shows all elements, or the node itself. The base is in memory for other uses,
    too.
    """
    base = node
    while base.op == "call_function" and is_view(base) and isinstance(base.args[0], fx.Node):
        base = base.args[0]
    values: Any = node.meta.get("val"), base.meta.get("val")
    if base.op != "call_function" or not all(isinstance(v, torch.Tensor) for v in values):
        return node
    return base if count(shape_of(base)) == count(shape_of(node)) else node


def anchors_needed(
    node: fx.Node, anchors: set[fx.Node], memory: dict[fx.Node, frozenset[fx.Node]]
) -> frozenset[fx.Node]:
    """Return the nodes of `anchors` that `node` is computed from: on each path, the nearest one."""
    if node not in memory:
        needed: set[fx.Node] = set()
        for source in written_operands(node) if facts_of(node).in_place else node.all_input_nodes:
            needed |= {source} if source in anchors else anchors_needed(source, anchors, memory)
        memory[node] = frozenset(needed)
    return memory[node]


def _group_anchor(
    steps: list[FusionGroup | fx.Node],
    node: fx.Node,
    memory: dict[fx.Node, frozenset[fx.Node]],
    place: Mapping[fx.Node, int],
    barriers: Mapping[int, NotFused],
) -> int:
    """Return the index of the step that computes `node`: an earlier group, or a new one at the end. Steps before a
    barrier cannot compute it.
    """
    refused_by: dict[int, NotFused] = {}
    for number in range(len(steps) - 1, max(barriers, default=0) - 1, -1):
        group = steps[number]
        joined = of_call(group) if isinstance(group, fx.Node) else _joined(group, node, memory, place)
        if isinstance(joined, FusionGroup):
            steps[number] = joined
            return number
        refused_by[number] = joined
    for number, group in enumerate(steps[: max(barriers, default=0)]):
        barrier = barriers[min(b for b in barriers if b > number)]
        refused_by[number] = barrier if isinstance(group, FusionGroup) else of_call(group)
    steps.append(replace(single_group(node), refused_by=refused_by))
    return len(steps) - 1


def _joined(
    group: FusionGroup,
    node: fx.Node,
    memory: dict[fx.Node, frozenset[fx.Node]],
    place: Mapping[fx.Node, int],
) -> FusionGroup | NotFused:
    """Return a group that computes a node as well, or why there is none."""
    needs = memory[node]
    if not _shares_tensors(group, node, needs, memory) and not _are_siblings(group, node, memory, place):
        return NotFused("unrelated", (next(iter(group.spans)), node))
    return fuse_anchor(group, node, needs)


def _shares_tensors(
    group: FusionGroup, node: fx.Node, needs: frozenset[fx.Node], memory: dict[fx.Node, frozenset[fx.Node]]
) -> bool:
    """Return True if a node reads a tensor that a group computes or reads."""
    return any(n in group.spans or any(n in memory[anchor] for anchor in group.spans) for n in needs)


def _are_siblings(
    group: FusionGroup, node: fx.Node, memory: Mapping[fx.Node, frozenset[fx.Node]], place: Mapping[fx.Node, int]
) -> bool:
    """Return True if a node and a group reduce tensors of the same earlier step, such as the parts of several sums.

    Everything else that the group computes must depend on its own anchors only.
    """
    both = [*(a for a in group.spans if is_anchor_reduction(a)), node]
    if not is_anchor_reduction(node) or any(not memory[a] <= group.spans.keys() for a in group.spans if a not in both):
        return False
    sources = {place.get(n, -1) for anchor in both for n in memory[anchor]}
    alike = {tuple(shape_of(reduction_of(n).all_input_nodes[0])) for n in both}
    return len(alike) == 1 and len(sources) == 1 and -1 not in sources


def single_group(node: fx.Node) -> FusionGroup:
    """Return a group with one anchor."""
    sizes, spans, reduces = _iteration_sizes(node)
    group = FusionGroup(sizes)
    group.spans[node] = spans
    if any(reduces):
        group.reduces[node] = reduces
    return group


def _iteration_sizes(node: fx.Node) -> tuple[Coords, tuple[bool, ...], tuple[bool, ...]]:
    """Return the sizes of the loop that computes a node, a mask of those in its result, and a mask of the
    reduced ones.
    """
    if facts_of(node).scatter_sum or facts_of(node).in_place:
        sizes = tuple(s for s in scatter_shape(node) if s != 1)
        return sizes, (True,) * len(sizes), (False,) * len(sizes)
    if not is_anchor_reduction(node):
        along = scanned_dimension(node) if is_scan(node) else None
        dims_with_flag = [(s, i == along) for i, s in enumerate(shape_of(node)) if s != 1]
        return tuple(s for s, _ in dims_with_flag), (True,) * len(dims_with_flag), tuple(r for _, r in dims_with_flag)
    reduction = reduction_of(node)
    source: Any = reduction.args[0]
    shape, dims = shape_of(source), reduced_dimensions(reduction)
    dims_with_flag = [(s, i in dims) for i, s in enumerate(shape) if s != 1]
    return (
        tuple(s for s, _ in dims_with_flag),
        tuple(not r for _, r in dims_with_flag),
        tuple(r for _, r in dims_with_flag),
    )


def fuse_anchor(group: FusionGroup, node: fx.Node, needs: Collection[fx.Node] = ()) -> FusionGroup | NotFused:
    """Return the group with one more anchor, which `needs` others, or why the anchor does not fit."""
    sizes, spans, reduces = _iteration_sizes(node)
    ended = next((n for n in group.reduces if n in needs and not is_scan(n)), None)
    differ = NotFused("sizes", (next(iter(group.spans)), node), (group.sizes, sizes))
    if ended is not None:
        differ = NotFused("ends", (ended, node), of_reductions(ended, ended).sizes[:2])
    if not any(reduces) and count(sizes) != count(group.sizes):
        for mask in dict.fromkeys(group.reduces[a] for a in sorted(group.reduces, key=lambda a: a not in needs)):
            remaining = tuple(s for s, r in zip(group.sizes, mask, strict=True) if not r)
            if count(remaining) == count(sizes):
                joined = replace(group, spans=dict(group.spans), reduces=dict(group.reduces))
                joined.spans[node] = tuple(not r for r in mask)
                return _conflict(joined) or joined
        return differ
    common = common_refinement(group.sizes, sizes)
    if common is None:
        return differ
    joined = FusionGroup(common, refused_by=group.refused_by)
    joined.spans = {a: _refine_mask(m, group.sizes, common) for a, m in group.spans.items()}
    joined.reduces = {a: _refine_mask(m, group.sizes, common) for a, m in group.reduces.items()}
    joined.spans[node] = _refine_mask(spans, sizes, common)
    if any(reduces):
        joined.reduces[node] = _refine_mask(reduces, sizes, common)
    return _conflict(joined) or joined


def common_refinement(left: Coords, right: Coords) -> Coords | None:
    """Return sizes of which both lists are products of neighbours, or None if there are none."""
    refined: list[Index] = []
    a, b = list(reversed(left)), list(reversed(right))
    while a and b:
        if a[-1] == b[-1]:
            refined.append(a.pop())
            b.pop()
            continue
        big, small = (a, b) if _is_multiple(a[-1], b[-1]) else (b, a)
        if not _is_multiple(big[-1], small[-1]):
            return None
        size = small.pop()
        rest = big.pop() / size
        refined.append(size)
        big.append(rest)
    return None if a or b else tuple(refined)


def _is_multiple(size: Index, divisor: Index) -> bool:
    quotient = (size / divisor).cancel() if hasattr(size / divisor, "cancel") else size / divisor
    return bool(quotient.is_integer) and quotient != 1


def _refine_mask(mask: tuple[bool, ...], sizes: Coords, common: Coords) -> tuple[bool, ...]:
    """Return a mask over `sizes` as a mask over the finer `common`."""
    fine_mask: list[bool] = []
    parts = iter(common)
    for flag, size in zip(mask, sizes, strict=True):
        product = next(parts)
        fine_mask.append(flag)
        while product != size:
            product = product * next(parts)
            fine_mask.append(flag)
    return tuple(fine_mask)


def _conflict(group: FusionGroup) -> NotFused | None:
    """Return why one kernel cannot compute all reductions of a group; None if it can.

    All may run over the same axes. Or some run over the last axes, which one program holds as a whole, and the others
    over the axes before, which it loops over. In the second case only results may depend on the looped reductions,
    unless the program can hold all elements of both.
    """
    if len(set(group.reduces.values())) < 2:
        return None
    masks = _row_and_column_masks(group)
    if isinstance(masks, NotFused):
        return masks
    inner, outer = masks
    both = _masked_count(group, inner) * _masked_count(group, outer)
    if both.is_Integer and both <= MAX_TILE_ELEMENTS:
        return None
    late = {a for a, m in group.reduces.items() if m == outer}
    anchors, memory = set(group.spans), dict[fx.Node, frozenset[fx.Node]]()
    after = tuple(not o for o in outer)
    for anchor, spans in group.spans.items():
        first = next(iter(anchors_needed(anchor, anchors, memory) & late), None)
        if first is not None and (spans != after or anchor in group.reduces):
            return NotFused("ends", (first, anchor), of_reductions(first, first).sizes[:2])
    return None


def _row_and_column_masks(group: FusionGroup) -> tuple[tuple[bool, ...], tuple[bool, ...]] | NotFused:
    """Return the (inner, outer) masks of a group, or why its reductions are of another form.

    The inner reductions run over the last axes, few enough for one program; the outer ones over the axes right before.
    """
    masks = list(dict.fromkeys(group.reduces.values()))
    last = next(reversed(group.reduces))
    first = next(a for a, mask in group.reduces.items() if mask != group.reduces[last])
    differ = of_reductions(first, last)
    if len(masks) > 2 or any(is_scan(a) for a in group.reduces):
        return differ
    inner = next((m for m in masks if m[-1] and all(m[m.index(True) :])), None)
    if inner is None:
        return differ
    outer, whole = masks[1 - masks.index(inner)], _masked_count(group, inner)
    if any(i and o for i, o in zip(inner, outer, strict=True)):
        return differ
    if not whole.is_Integer or whole > MAX_ROW_ELEMENTS:
        return NotFused("row", (first, last), ((whole,), (MAX_ROW_ELEMENTS,)))
    return (inner, outer) if outer.index(True) + sum(outer) == inner.index(True) else differ


def _masked_count(group: FusionGroup, mask: tuple[bool, ...]) -> Index:
    """Return the number of elements along the axes of a mask."""
    return count(s for s, m in zip(group.sizes, mask, strict=True) if m)
