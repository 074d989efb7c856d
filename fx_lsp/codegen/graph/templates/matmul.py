"""Replace matmuls by template kernels: those whose result feeds element-wise operations before it is stored.

A matmul without an epilogue falls back to ATen, because its libraries are hard to beat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.graph.edit import insert_call, replace_node, sort_graph
from fx_lsp.codegen.graph.query import (
    computes_nothing,
    is_anchor_reduction,
    is_empty,
    is_view,
    matmul_operands,
    shape_of,
    stays_call,
)
from fx_lsp.codegen.graph.templates.template_kernel import replace_with_kernel, subgraph_of
from fx_lsp.codegen.ir.index import count
from fx_lsp.codegen.ir.lowerings import NotFusible, lowering_of, operation
from fx_lsp.codegen.ir.template import MatmulTemplate, Subgraph

aten = torch.ops.aten
MATMULS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default")

MAX_RECOMPUTED = 4
"""The largest number of times that a kernel may recompute an operand: once for each block of the other operand."""
ASSUMED_BLOCK = 128
MAX_GRID = 65535
"""The largest number of programs along the last dimension of a launch: the batches."""
_MOVES = ("aten.clone.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.expand.default")


SpeedQuestion: TypeAlias = "Callable[[MatmulTemplate, Choices, int], bool]"
"""A function that returns True if the kernel of a matmul is slower than the library, although it saves to move a number
of tensors of the result's size. It raises NotFusible if it cannot compute a node of the subgraph. The schedule answers
that (`schedule/matmul_tiling.py`).
"""


def fuse_matmuls(graph: fx.Graph, choices: Choices, is_slower: SpeedQuestion) -> None:
    """Replace matmuls of a graph, with their prologues and epilogues, by template kernels.

    "epilogue" replaces those that save reading or writing a tensor of the result's size; "always" replaces all that
    have a kernel. Where a product remains a call, a kernel that follows adds its bias.
    """
    done: set[fx.Node] = set()
    while node := next((n for n in graph.nodes if operation(n) in MATMULS and n not in done), None):
        done.add(node)
        fusion = _matmul_with_epilogue(node, choices, is_slower) if _has_kernel(node) else None
        if fusion is not None:
            replace_with_kernel(graph, fusion.results, fusion.reads, fusion.template)
            sort_graph(graph)
        elif _is_followed_by_kernel(node):
            _add_bias_apart(graph, node)


def _is_followed_by_kernel(node: fx.Node) -> bool:
    """Return True if only element-wise operations read a product with a bias. In half precision the library rounds less
    often.
    """
    if operation(node) != "aten.addmm.default" or node.kwargs or node.meta["val"].dtype.itemsize < 4:
        return False
    users = [u for view in _with_views(node) for u in view.users if not is_view(u)]
    return all(u.op == "call_function" and _is_element_wise(u) for u in users)


def _add_bias_apart(graph: fx.Graph, node: fx.Node) -> None:
    bias, left, right = node.args
    with graph.inserting_before(node):
        product = insert_call(node, aten.mm.default, (left, right), name="product")
        total = insert_call(node, aten.add.Tensor, (product, bias))
    replace_node(graph, node, total)


def _has_kernel(node: fx.Node) -> bool:
    """Return True if Triton multiplies the dtype of a matmul, and its rows, columns and depth are more than one."""
    left, right = matmul_operands(node)
    dtype = left.meta["val"].dtype
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return False
    if any(n.meta["val"].dtype != dtype or n.meta["val"].layout is not torch.strided for n in (left, right, node)):
        return False
    *batches, m, n = shape_of(node)
    if any(s == 0 or (s.is_Integer and s > MAX_GRID) for s in batches):
        return False
    return not any(s in (0, 1) for s in (m, n, shape_of(left)[-1]))


@dataclass(frozen=True)
class _MatmulFusion:
    """A template kernel for a matmul, with the `results` and the tensors in memory (`reads`) as nodes of the graph."""

    template: MatmulTemplate
    results: tuple[fx.Node, ...]
    reads: tuple[fx.Node, ...]


def _matmul_with_epilogue(node: fx.Node, choices: Choices, is_slower: SpeedQuestion) -> _MatmulFusion | None:
    """Return the kernel of a matmul and its epilogue, or None if it has none or if a kernel is not worthwhile."""
    always = choices.matmul == "always"
    rejected: set[fx.Node] = set()
    stored: set[fx.Node] = set()
    if not always and not any(_is_element_wise(u) for view in _with_views(node) for u in view.users):
        return None
    while True:
        region = _epilogue_region(node, rejected)
        stored_results = _stored_results(node, region)
        if not (always or stored_results.saved > 0):
            return None
        results = stored_results.nodes if stored_results.saved > 0 else (node,)
        reads = _tensors_read(node, results, region, stored)
        if any(is_view(r) or is_empty(r) for r in reads):
            return None
        subgraph = subgraph_of(reads, (node, *results))
        template = MatmulTemplate(subgraph, subgraph.of[node], tuple(subgraph.of[r] for r in results))
        try:
            slower = is_slower(template, choices, stored_results.saved)
        except NotFusible as cut:
            where = _original(subgraph, cut.node) or node
            if where is node or where in stored:
                return None
            (rejected if where in region else stored).add(where)
        else:
            return _MatmulFusion(template, results, reads) if always or not slower else None


def _original(subgraph: Subgraph, copy: fx.Node) -> fx.Node | None:
    """Return the node that a node of a subgraph is a copy of."""
    return next((node for node, other in subgraph.of.items() if other is copy), None)


# the epilogue nodes


def _epilogue_region(node: fx.Node, rejected: Collection[fx.Node]) -> dict[fx.Node, None]:
    """Find the nodes computed only from a matmul and nodes before it, with as many elements, in order."""
    after, region, size = {node}, {node: None}, count(shape_of(node))
    other = node.next
    while other.op != "root":
        behind = [i for i in other.all_input_nodes if i in after]
        if behind:
            after.add(other)
            fits = other not in rejected and all(i in region for i in behind) and _is_element_wise(other)
            if fits and count(shape_of(other)) == size:
                region[other] = None
        other = other.next
    return region


def _is_element_wise(node: fx.Node) -> bool:
    """Return True if a node can be part of a kernel that computes each element from a few others."""
    fits = isinstance(node.meta.get("val"), torch.Tensor) and lowering_of(node) is not None
    return fits and not stays_call(node) and not is_anchor_reduction(node)


@dataclass(frozen=True)
class _StoredResults:
    """The nodes that a kernel stores, in order, and the number of tensors of the result's size that it saves
    to move.
    """

    nodes: tuple[fx.Node, ...]
    saved: int


def _stored_results(node: fx.Node, region: dict[fx.Node, None]) -> _StoredResults:
    """Return the nodes of a region that must be in memory, and those on the way to them that others need."""
    stored = [n for n in region if not is_view(n) and _is_stored(n, node)]
    inside = _between(node, stored, region) or {node}
    needed = {_base(n) for n in inside if any(u not in inside for u in n.users)}
    results = tuple(n for n in region if n in needed or n in stored)
    again = sum(1 for n in results if _read_by_others(n, inside))
    extra = sum(1 for n in results if n is not node and n not in stored)
    alone = all(n is node for n in results)
    return _StoredResults(results, 0 if alone else 2 - (node in results) - extra - again)


def _base(node: fx.Node) -> fx.Node:
    """Return the base of a view."""
    while is_view(node):
        source: Any = node.args[0]
        node = source
    return node


def _with_views(node: fx.Node) -> Iterable[fx.Node]:
    """Yield a node and its views."""
    yield node
    for user in node.users:
        if is_view(user) and user.args[0] is node:
            yield from _with_views(user)


def _is_stored(node: fx.Node, matmul: fx.Node) -> bool:
    """Return True if a node must be in memory for a user other than `matmul`: a call, or the output of the graph."""
    users = [u for view in _with_views(node) for u in view.users if u is not matmul]
    return any(u.op == "output" or (u.op == "call_function" and stays_call(u) and not is_empty(u)) for u in users)


def _read_by_others(node: fx.Node, inside: Collection[fx.Node]) -> bool:
    """Return True if a kernel outside a region reads a node."""
    users = [u for view in _with_views(node) for u in view.users if u not in inside]
    return any(u.op == "call_function" and not is_view(u) and not stays_call(u) for u in users)


def _between(first: fx.Node, last: Iterable[fx.Node], region: Collection[fx.Node]) -> set[fx.Node]:
    """Return the nodes of a region that the `last` nodes are computed from, including these."""
    between: set[fx.Node] = set()
    stack = list(last)
    while stack:
        node = stack.pop()
        if node in region and node not in between:
            between.add(node)
            stack.extend(node.all_input_nodes if node is not first else ())
    return between


# the tensors read


def _tensors_read(
    node: fx.Node, results: Collection[fx.Node], region: Collection[fx.Node], stored: Collection[fx.Node]
) -> tuple[fx.Node, ...]:
    """Return the tensors that a kernel reads: the sources of its operands, and the other inputs of the epilogue."""
    left, right = matmul_operands(node)
    reads: dict[fx.Node, None] = {}
    for operand, other in ((left, right), (right, left)):
        side = shape_of(other)[-1 if other is right else -2]
        times = -(-int(side) // ASSUMED_BLOCK) if side.is_Integer else MAX_RECOMPUTED + 1
        reads[_operand_source(operand, node, times, stored)] = None
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
            reads[current] = None
        else:
            pending.extend(current.all_input_nodes)
    return tuple(reads)


def _is_in_memory(node: fx.Node, matmul: fx.Node) -> bool:
    """Return True if a node will be in memory, independent of `matmul`."""
    if node.op != "call_function" or lowering_of(node) is None or is_anchor_reduction(node):
        return True
    source = node.args[0] if node.args else None
    if isinstance(source, fx.Node) and isinstance(source.meta.get("val"), (tuple, list)):
        return stays_call(source)
    return stays_call(node) or (
        not is_view(node) and isinstance(node.meta["val"], torch.Tensor) and _is_stored(node, matmul)
    )


def _operand_source(operand: fx.Node, matmul: fx.Node, times: int, stored: Collection[fx.Node]) -> fx.Node:
    """Return the tensor that a kernel reads an operand from.

    It is the operand itself, or the one tensor that it is computed from, if that is in memory. The kernel performs
    views and copies itself, and computes an element up to a few `times`. Everything else is stored first.
    """
    current, last = operand, operand
    first: fx.Node | None = None
    while current not in stored and not _is_in_memory(current, matmul):
        sources = [i for i in current.all_input_nodes if not isinstance(i.meta.get("val"), torch.SymInt)]
        moves = computes_nothing(current) or operation(current) in _MOVES
        first = first or (None if moves else current)
        if (
            len(sources) != 1
            or isinstance(sources[0].meta.get("val"), (tuple, list))
            or (not moves and times > MAX_RECOMPUTED)
        ):
            return first or last
        last, current = current, sources[0]
    return current
