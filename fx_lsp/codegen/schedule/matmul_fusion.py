"""Matmuls that are worth a kernel of ours: those whose result is computed on, element by element, before it is stored.

A matmul alone stays a call: the libraries behind ATen are hard to beat at it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.query import buffer_of, is_empty, is_free, is_view, shape_of, stays
from fx_lsp.codegen.ir.index import count
from fx_lsp.codegen.ir.ops import lowering_of, operation
from fx_lsp.codegen.ir.write_target import Place
from fx_lsp.codegen.lower.builder import Cut
from fx_lsp.codegen.lower.matmul import Computed, Matmul, computed, operands
from fx_lsp.codegen.schedule.fusion import is_anchor_reduction
from fx_lsp.codegen.schedule.matmul_tiling import tiling

FEW = 4
"""How many times a kernel may compute an operand on its way from memory: once for each block of the other's side."""
BLOCK = 128
DEEPEST = 1024
DEEPEST_WITH_TMA = 4096
DEEPEST_WITH_RESULT = 128
"""The most elements that a kernel of ours sums: beyond, the library's speed makes up for a pass over the result. The
last is for kernels that store the result, too, and save no more than reading it."""
MOST_PROGRAMS = 65535
"""The most programs that a launch has along its last dimension, which is that of batches."""
_MOVES = ("aten.clone.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default")


def has_kernel(node: fx.Node) -> bool:
    """Whether Triton multiplies what a matmul multiplies, and there are several rows, columns and elements to sum."""
    left, right = operands(node)
    dtype = left.meta["val"].dtype
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return False
    if any(n.meta["val"].dtype != dtype or n.meta["val"].layout is not torch.strided for n in (left, right, node)):
        return False
    *batches, m, n = shape_of(node)
    if any(s == 0 or (s.is_Integer and s > MOST_PROGRAMS) for s in batches):
        return False
    return not any(s in (0, 1) for s in (m, n, shape_of(left)[-1]))


def _is_deep(made: Computed, saved: int, choices: Choices) -> bool:
    """Whether a matmul sums so much for each element that the library's speed is worth more than `saved` tensors."""
    found = tiling(made, choices)
    deepest = DEEPEST if found.matrices is None else DEEPEST_WITH_TMA
    depth = found.depth.size
    return not depth.is_Integer or int(depth) > (deepest if saved > 1 else DEEPEST_WITH_RESULT)


def fused_matmul(node: fx.Node, choices: Choices) -> Matmul | None:
    """What a kernel for a matmul computes besides, or None where it is not worth one, or has none."""
    always = choices.matmul == "always"
    rejected: set[fx.Node] = set()
    stored: set[fx.Node] = set()
    if not always and not any(_is_element_wise(u) for view in _views(node) for u in view.users):
        return None
    while True:
        region = _region(node, rejected)
        made = _results(node, region)
        if not (always or made.saved > 0):
            return None
        results = made.nodes if made.saved > 0 else (node,)
        reads = _reads(node, results, region, stored)
        if any(is_view(r) or is_empty(r) for r in reads):
            return None
        matmul = Matmul(node, results, reads)
        piece = matmul.piece()
        memory = {copy: buffer_of(copy, copy.name) for copy in piece.reads}
        try:
            places = {piece.of[r]: Place(r, shape_of(r), buffer_of(r, r.name)) for r in results}
            values = computed(piece.of[node], memory, places)
        except Cut as cut:
            where = next((n for n, copy in piece.of.items() if copy is cut.node), node)
            if where is node or where in stored:
                return None
            (rejected if where in region else stored).add(where)
        else:
            return matmul if always or not _is_deep(values, made.saved, choices) else None


# what is computed of the result


def _region(node: fx.Node, rejected: Collection[fx.Node]) -> dict[fx.Node, None]:
    """What is computed of a matmul and of nothing that comes after it, with as many elements as it has, in order."""
    after, found, size = {node}, {node: None}, count(shape_of(node))
    other = node.next
    while other.op != "root":
        behind = [i for i in other.all_input_nodes if i in after]
        if behind:
            after.add(other)
            fits = other not in rejected and all(i in found for i in behind) and _is_element_wise(other)
            if fits and count(shape_of(other)) == size:
                found[other] = None
        other = other.next
    return found


def _is_element_wise(node: fx.Node) -> bool:
    """Whether a node can be part of a kernel that computes each element of it from a few others."""
    fits = isinstance(node.meta.get("val"), torch.Tensor) and lowering_of(node) is not None
    return fits and not stays(node) and not is_anchor_reduction(node)


@dataclass(frozen=True)
class _Results:
    """What a kernel stores, in order, and how many tensors of the result's size less are read and written with it."""

    nodes: tuple[fx.Node, ...]
    saved: int


def _results(node: fx.Node, region: dict[fx.Node, None]) -> _Results:
    """The nodes of a region that have to be in memory anyway, and those on the way to them that others need."""
    wanted = [n for n in region if not is_view(n) and _is_stored(n, node)]
    inside = _between(node, wanted, region) or {node}
    needed = {_base(n) for n in inside if any(u not in inside for u in n.users)}
    results = tuple(n for n in region if n in needed or n in wanted)
    again = sum(1 for n in results if _read_by_others(n, inside))
    extra = sum(1 for n in results if n is not node and n not in wanted)
    alone = all(n is node for n in results)
    return _Results(results, 0 if alone else 2 - (node in results) - extra - again)


def _base(node: fx.Node) -> fx.Node:
    """What a view is a view of."""
    while is_view(node):
        source: Any = node.args[0]
        node = source
    return node


def _views(node: fx.Node) -> Iterable[fx.Node]:
    """A node and its views."""
    yield node
    for user in node.users:
        if is_view(user) and user.args[0] is node:
            yield from _views(user)


def _is_stored(node: fx.Node, matmul: fx.Node) -> bool:
    """Whether a node has to be in memory for another than `matmul`: for a call, or because it is returned."""
    users = [u for view in _views(node) for u in view.users if u is not matmul]
    return any(u.op == "output" or (u.op == "call_function" and stays(u) and not is_empty(u)) for u in users)


def _read_by_others(node: fx.Node, inside: Collection[fx.Node]) -> bool:
    """Whether a kernel outside of a region computes on a node."""
    users = [u for view in _views(node) for u in view.users if u not in inside]
    return any(u.op == "call_function" and not is_view(u) and not stays(u) for u in users)


def _between(first: fx.Node, last: Iterable[fx.Node], region: Collection[fx.Node]) -> set[fx.Node]:
    """The nodes of a region that some of its nodes are computed from, they themselves too."""
    found: set[fx.Node] = set()
    stack = list(last)
    while stack:
        node = stack.pop()
        if node in region and node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes if node is not first else ())
    return found


# what is read


def _reads(
    node: fx.Node, results: Collection[fx.Node], region: Collection[fx.Node], stored: Collection[fx.Node]
) -> tuple[fx.Node, ...]:
    """The tensors that a kernel reads: operands where they are in memory, and what the epilogue takes besides."""
    left, right = operands(node)
    found: dict[fx.Node, None] = {}
    for operand, other in ((left, right), (right, left)):
        side = shape_of(other)[-1 if other is right else -2]
        times = -(-int(side) // BLOCK) if side.is_Integer else FEW + 1
        found[_source(operand, node, times, stored)] = None
    inside = _between(node, results, region)
    pending = [i for n in inside if n is not node for i in n.all_input_nodes if i not in inside]
    pending += [a for a in node.args if isinstance(a, fx.Node)][:-2]
    seen: set[fx.Node] = set()
    while pending:
        current = pending.pop()
        if current in seen or not isinstance(current.meta.get("val"), (torch.Tensor, tuple, list)):
            continue
        seen.add(current)
        if current in stored or _is_in_memory(current, node):
            found[current] = None
        else:
            pending.extend(current.all_input_nodes)
    return tuple(found)


def _is_in_memory(node: fx.Node, matmul: fx.Node) -> bool:
    """Whether a node will be in memory, whatever becomes of `matmul`."""
    if node.op != "call_function" or lowering_of(node) is None or is_anchor_reduction(node):
        return True
    source = node.args[0] if node.args else None
    if isinstance(source, fx.Node) and isinstance(source.meta.get("val"), (tuple, list)):
        return lowering_of(source) is None or stays(source)
    return stays(node) or (
        not is_view(node) and isinstance(node.meta["val"], torch.Tensor) and _is_stored(node, matmul)
    )


def _source(operand: fx.Node, matmul: fx.Node, times: int, stored: Collection[fx.Node]) -> fx.Node:
    """The tensor that a kernel reads an operand from.

    That is where it, or the one tensor that it is computed from, is in memory: a kernel does what only moves elements
    itself, and computes what it needs a few `times`. Everything else is stored before.
    """
    current, last = operand, operand
    first: fx.Node | None = None
    while current not in stored and not _is_in_memory(current, matmul):
        sources = [i for i in current.all_input_nodes if not isinstance(i.meta.get("val"), torch.SymInt)]
        moves = is_free(current) or operation(current) in _MOVES
        first = first or (None if moves else current)
        if len(sources) != 1 or isinstance(sources[0].meta.get("val"), (tuple, list)) or (not moves and times > FEW):
            return first or last
        last, current = current, sources[0]
    return current
