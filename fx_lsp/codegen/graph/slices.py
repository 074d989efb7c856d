"""Optimize tensors that are written or assembled part by part: `out[t] = y`, the gradients of `x[0]`, `x[1]`, …,
stacks.

In a graph, each write creates a new whole tensor, so that every writing step would cost as much as all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import insert_call, insert_cast, insert_sum, replace_node
from fx_lsp.codegen.graph.query import VIEW_SCATTERS, argument, dimension, is_zero, reduced_dimensions, symbolic_shape
from fx_lsp.codegen.ir.lowerings import args_of, operation

aten = torch.ops.aten
_COPIES = {"aten.clone.default": 0, "aten.copy.default": 1}
_READS = ("aten.select.int", "aten.slice.Tensor")

MIN_WRITES = 4
"""The least number of writes that are joined."""


@dataclass(frozen=True)
class TensorPart:
    """Describe the part of a tensor from `start` to `end` along a dimension; `single` parts lack that dimension."""

    source: fx.Node
    dim: int
    start: int
    end: int
    single: bool


def join_writes(graph: fx.Graph) -> None:
    """Replace reads of tensors that are written part by part by the written parts, and all writes by one concatenation
    of the parts.
    """
    for node in list(graph.nodes):
        if operation(node) in _READS:
            _read_through(graph, node)
        elif operation(node) in VIEW_SCATTERS:
            _write_directly(graph, node)
    graph.eliminate_dead_code()
    for node in reversed(list(graph.nodes)):
        written = _written_part(node)
        if written is not None and any(_written_base(user) is not node for user in node.users):
            _join_writes(graph, node, written.dim)
    graph.eliminate_dead_code()


def reads_of_written_parts(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield reads of a tensor with a written part that they are inside of, or disjoint from."""
    for node in graph.nodes:
        read = part_of(node, node.args[0], 1) if operation(node) in _READS else None
        written = _written_part(_through_copies(read.source)) if read is not None else None
        if read is None or written is None or written.dim != read.dim:
            continue
        within = written.start <= read.start and read.end <= written.end
        if within or written.end <= read.start or read.end <= written.start:
            yield node


def part_of(node: fx.Node, tensor: Any, position: int) -> TensorPart | None:
    """Return the part of a tensor that a node reads or writes, whose arguments begin at a position; None if it is
    unknown or has gaps.
    """
    value = tensor.meta["val"]
    dim = dimension(argument(node, position, "dim", 0), value.dim())
    size = value.shape[dim]
    if "select" in operation(node):
        start: Any = argument(node, position + 1, "index")
        end, step = start, 1
    else:
        start = argument(node, position + 1, "start", 0) or 0
        end = argument(node, position + 2, "end", size)
        end, step = size if end is None else end, argument(node, position + 3, "step", 1)
    if step != 1 or not all(isinstance(n, int) for n in (start, end, size)):
        return None
    single = "select" in operation(node)
    start, end = (max(n + size, 0) if n < 0 else min(n, size) for n in (start, end))
    return TensorPart(tensor, dim, start, end + 1 if single else max(start, end), single)


def _written_part(node: fx.Node) -> TensorPart | None:
    """Return the part that a node writes into a tensor, with the written value as source; None if it writes nothing."""
    if operation(node) not in ("aten.select_scatter.default", "aten.slice_scatter.default"):
        return None
    part = part_of(node, node.args[0], 2)
    source: Any = node.args[1]
    return TensorPart(source, part.dim, part.start, part.end, part.single) if part is not None else None


def _written_base(node: fx.Node) -> Any:
    """Return the tensor that a node writes into, or None."""
    return _through_copies(node.args[0]) if _written_part(node) is not None else None


def _write_directly(graph: fx.Graph, node: fx.Node) -> None:
    """Write a value instead of its copy, and skip an earlier write of the same part."""
    value, base = args_of(node)[1], args_of(node)[0]
    if operation(value) == "aten.copy.default":
        copied, source = value.meta["val"], args_of(value)[1]
        alike = symbolic_shape(source.meta["val"]) == symbolic_shape(copied)
        if alike or all(isinstance(size, int) for size in copied.shape):
            with graph.inserting_before(node):
                source = insert_cast(graph, node, source, copied.dtype)
                source = source if alike else insert_call(node, aten.expand.default, (source, list(copied.shape)))
            node.update_arg(1, source)
    while operation(base) == operation(node) and (base.args[2:], base.kwargs) == (node.args[2:], node.kwargs):
        base = base.args[0]
    node.update_arg(0, base)


def _through_copies(node: Any) -> Any:
    """Return the node with the same elements before they were copied."""
    while isinstance(node, fx.Node) and operation(node) in _COPIES:
        source: Any = node.args[_COPIES[operation(node)]]
        if not isinstance(source, fx.Node) or _shape_and_dtype(source) != _shape_and_dtype(node):
            break
        node = source
    return node


def _shape_and_dtype(node: fx.Node) -> Any:
    value = node.meta["val"]
    return tuple(value.shape), value.dtype


def _read_through(graph: fx.Graph, node: fx.Node) -> None:
    """Read the written value, or the earlier tensor if the write is elsewhere; in a sum, each term's part."""
    read = part_of(node, node.args[0], 1)
    if read is None:
        return
    terms, zeros, passed = list[fx.Node](), list[fx.Node](), False
    sources = [read.source]
    with graph.inserting_before(node):
        while sources:
            source = _through_copies(sources.pop())
            written = _written_part(source)
            if written is not None and written.dim != read.dim:
                written = None
            if written is not None and (written.end <= read.start or read.end <= written.start):
                sources.append(_written_base(source))
                passed = True
            elif written is not None and written.start <= read.start and read.end <= written.end:
                is_none = is_zero(_through_copies(written.source))
                (zeros if is_none else terms).append(_read_part(graph, node, written, read))
                passed = True
            elif _is_sparse_sum(source):
                sources.extend(reversed(source.args))
            else:
                read_node = insert_call(node, node.target, (source, *node.args[1:]), node.kwargs)
                (zeros if is_zero(source) else terms).append(read_node)
        if not passed:
            return
        total, *others = terms or zeros
        for other in others if terms else ():
            total = insert_call(node, aten.add.Tensor, (total, other))
    node.replace_all_uses_with(total)
    graph.erase_node(node)


def _is_sparse_sum(node: fx.Node) -> bool:
    """Return True if a node adds tensors that are zero except for written parts, as in gradients of parts."""
    if operation(node) != "aten.add.Tensor" or node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
        return False
    terms: Any = [_through_copies(a) for a in node.args]
    if any(_shape_and_dtype(t) != _shape_and_dtype(node) for t in terms):
        return False
    return any(_written_part(t) is not None and is_zero(_written_base(t)) for t in terms)


def _read_part(graph: fx.Graph, node: fx.Node, written: TensorPart, read: TensorPart) -> fx.Node:
    """Insert the read of a part of the written value."""
    value = node.meta["val"]
    source = insert_cast(graph, node, _through_copies(written.source), value.dtype)
    if written.single:
        return source if read.single else insert_call(node, aten.unsqueeze.default, (source, read.dim))
    start, end = read.start - written.start, read.end - written.start
    if read.single:
        return insert_call(node, aten.select.int, (source, read.dim, start))
    whole = (start, end) == (0, written.end - written.start)
    return source if whole else insert_call(node, aten.slice.Tensor, (source, read.dim, start, end))


def _join_writes(graph: fx.Graph, node: fx.Node, dim: int) -> None:
    """Join the values written along a dimension, and the rest of the earlier tensor, unless few are written."""
    size: Any = node.meta["val"].shape[dim]
    parts: dict[tuple[int, int], TensorPart] = {}
    current: Any = node
    while isinstance(current, fx.Node) and (written := _written_part(current)) is not None and written.dim == dim:
        span = written.start, written.end
        if span not in parts and any(start < span[1] and span[0] < end for start, end in parts):
            return
        parts.setdefault(span, written)
        current = _written_base(current)
    if len(parts) < MIN_WRITES or not isinstance(size, int):
        return
    with graph.inserting_before(node):
        values = dict[tuple[int, int], fx.Node]()
        for span, part in parts.items():
            source = insert_cast(graph, node, _through_copies(part.source), node.meta["val"].dtype)
            values[span] = insert_call(node, aten.unsqueeze.default, (source, dim)) if part.single else source
        joined_node = _insert_join(node, dim, values, current)
    replace_node(graph, node, joined_node)


def _insert_join(node: fx.Node, dim: int, parts: Mapping[tuple[int, int], fx.Node], rest: fx.Node) -> fx.Node:
    """Insert the concatenation of parts, each from one place to another along `dim`, with `rest` between them."""
    size = node.meta["val"].shape[dim]
    joined: list[fx.Node] = []
    at = 0
    for (start, end), part in [*sorted(parts.items(), key=lambda p: p[0]), ((size, size), None)]:
        if start > at:
            joined.append(insert_call(node, aten.slice.Tensor, (rest, dim, at, start)))
        if part is not None:
            joined.append(part)
        at = end
    return insert_call(node, aten.cat.default, (joined, dim))


def join_slices(graph: fx.Graph) -> None:
    """Replace sums of tensors that are zero except for one slice each by a concatenation of the slices, unless few are
    present. Other terms are added to that.
    """
    for node in reversed(list(graph.nodes)):
        slices = _sum_of_slices(node) if _is_whole_sum(node) else None
        if slices is None:
            continue
        with graph.inserting_before(node):
            values = dict[tuple[int, int], fx.Node]()
            for number, (first, *others) in slices.parts.items():
                for other in others:
                    first = insert_call(node, aten.add.Tensor, (first, other))
                values[number, number + 1] = insert_call(node, aten.unsqueeze.default, (first, slices.dim))
            joined_node = _insert_join(node, slices.dim, values, slices.zeros)
            for other in slices.others:
                joined_node = insert_call(node, aten.add.Tensor, (other, joined_node))
        replace_node(graph, node, joined_node)
    graph.eliminate_dead_code()


def summed_slices(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield sums of tensors that are zero except for one slice each, unless few slices are present."""
    return (n for n in graph.nodes if _is_whole_sum(n) and _sum_of_slices(n) is not None)


def _is_whole_sum(node: fx.Node) -> bool:
    """Return True if a node adds, and is not a term of another sum."""
    return operation(node) == "aten.add.Tensor" and bool(node.users) and not any(map(_is_sum, node.users))


def _is_sum(node: fx.Node) -> bool:
    return operation(node) == "aten.add.Tensor" and not node.kwargs and all(isinstance(a, fx.Node) for a in node.args)


@dataclass(frozen=True)
class _SliceSum:
    """A sum of slices along `dim`, by number, and of other terms. `zeros` has the shape of the sum."""

    dim: int
    parts: Mapping[int, Sequence[fx.Node]]
    others: Sequence[fx.Node]
    zeros: fx.Node


def _sum_of_slices(total: fx.Node) -> _SliceSum | None:
    """Return the slices that a sum adds, or None if they are few, or along different dimensions."""
    value = total.meta["val"]
    stack: list[Any] = [total]
    dims: set[int] = set()
    parts: dict[int, list[fx.Node]] = {}
    others: list[fx.Node] = []
    base: Any = None
    while stack:
        node = stack.pop()
        if _is_sum(node) and (node is total or len(node.users) == 1):
            stack.extend(node.args)
        elif not _is_slice(node, value):
            others.append(node)
        else:
            base, part, dim, number = node.args
            dims.add(dim % value.dim())
            parts.setdefault(number % value.shape[dim], []).append(part)
    if len(dims) != 1 or len(parts) < min(value.shape[next(iter(dims))], MIN_WRITES):
        return None
    return _SliceSum(dims.pop(), parts, others, base)


def _is_slice(node: Any, total: torch.Tensor) -> bool:
    """Return True if a tensor of the shape of a sum is zero except for one slice with a known number."""
    if operation(node) != "aten.select_scatter.default" or node.meta["val"].shape != total.shape:
        return False
    base, _, dim, number = node.args
    return is_zero(base) and all(isinstance(n, int) for n in (dim, number, total.shape[dim]))


_REDUCTIONS = ("aten.sum.dim_IntList", "aten.mean.dim")

MIN_STACKED = 4
"""The least number of parts: fewer are not profitable."""


def sum_stacked_parts(graph: fx.Graph) -> None:
    """Sum the parts of a stack that is then summed, or averaged, over the stacked dimension."""
    for node in list(graph.nodes):
        parts = _summed_parts(node)
        if len(parts) < MIN_STACKED:
            continue
        value = node.meta["val"]
        with graph.inserting_before(node):
            total = insert_sum(graph, node, parts, value.dtype)
            if operation(node) == "aten.mean.dim":
                total = insert_call(node, aten.div.Tensor, (total, len(parts)))
            total = insert_cast(graph, node, total, value.dtype)
            if total.meta["val"].dim() < value.dim():
                total = insert_call(node, aten.unsqueeze.default, (total, reduced_dimensions(node)[0]))
        replace_node(graph, node, total)
    graph.eliminate_dead_code()


def summed_stacks(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield sums and averages of stacks that are only used for them."""
    return (n for n in graph.nodes if len(_summed_parts(n)) >= MIN_STACKED)


def _summed_parts(node: fx.Node) -> Sequence[fx.Node]:
    """Return the tensors whose stack a node sums or averages over the new dimension alone; or none."""
    dims = reduced_dimensions(node) if operation(node) in _REDUCTIONS else ()
    return _reduced_stack(node.args[0], dims[0]) if len(dims) == 1 else []


def _reduced_stack(node: Any, dim: int) -> Sequence[fx.Node]:
    """Return the tensors that a node stacks along a dimension, if only the reduction uses it; or none."""
    stack = stacked_tensors(node) if isinstance(node, fx.Node) else None
    source: Any = node.args[0] if stack is not None else None
    alone = len(node.users) == 1 and (not isinstance(source, fx.Node) or len(source.users) == 1)
    return stack[1] if stack is not None and stack[0] == dim and alone else []


def stacked_tensors(node: fx.Node) -> tuple[int, Sequence[fx.Node]] | None:
    """Return (dim, tensors) if a node stacks tensors along a new dimension; else None."""
    joins: Any = node.args[0] if operation(node) == "aten.view.default" else node
    if operation(joins) != "aten.cat.default":
        return None
    tensors: Any = joins.args[0]
    rank = joins.meta["val"].dim()
    dim = dimension(argument(joins, 1, "dim", 0), rank)
    if joins is node:
        apart = all(operation(g) == "aten.unsqueeze.default" and dimension(g.args[1], rank) == dim for g in tensors)
        return (dim, [g.args[0] for g in tensors]) if apart else None
    shape = tuple(tensors[0].meta["val"].shape)
    alike = all(tuple(g.meta["val"].shape) == shape for g in tensors)
    fits = alike and tuple(node.meta["val"].shape) == (*shape[:dim], len(tensors), *shape[dim:])
    return (dim, tensors) if fits else None
