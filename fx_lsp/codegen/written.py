"""Tensors that a loop writes part by part, `out[t] = y`: what is read from them is known, what they become is joined.

In a graph each such write makes a new tensor of the whole one, so that steps which write would each be about all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.edits import converted, inserted, is_zero, replaced
from fx_lsp.codegen.lowerings.views import argument, dimension
from fx_lsp.codegen.registry import operation

aten = torch.ops.aten
_SAME = {"aten.clone.default": 0, "aten.copy.default": 1}
_READS = ("aten.select.int", "aten.slice.Tensor")

LEAST = 4
"""From how many writes on they are joined."""


@dataclass(frozen=True)
class Part:
    """What lies from `start` to `end` along a dimension of a tensor; `single` parts are without that dimension."""

    source: fx.Node
    dim: int
    start: int
    end: int
    single: bool


def join_writes(graph: fx.Graph) -> None:
    """Have what is read of tensors that are written part by part be what was written there, and what all writes make be
    one tensor joined of the parts."""
    for node in list(graph.nodes):
        if operation(node) in _READS:
            _read_through(graph, node)
    graph.eliminate_dead_code()
    for node in reversed(list(graph.nodes)):
        written = _write(node)
        if written is not None and any(_base(user) is not node for user in node.users):
            _join(graph, node, written.dim)
    graph.eliminate_dead_code()


def _part(node: fx.Node, tensor: Any, position: int) -> Part | None:
    """The part of a tensor that a node reads or writes, whose arguments begin at a position; None where it is not known
    or has gaps."""
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
    return Part(tensor, dim, start, end + 1 if single else max(start, end), single)


def _write(node: fx.Node) -> Part | None:
    """What a node writes into a tensor, and where; None where it writes nothing."""
    if operation(node) not in ("aten.select_scatter.default", "aten.slice_scatter.default"):
        return None
    found = _part(node, node.args[0], 2)
    source: Any = node.args[1]
    return Part(source, found.dim, found.start, found.end, found.single) if found is not None else None


def _base(node: fx.Node) -> Any:
    """The tensor that a node writes into, or None."""
    return _content(node.args[0]) if _write(node) is not None else None


def _content(node: Any) -> Any:
    """A node that has the same elements, before they were copied as they are."""
    while isinstance(node, fx.Node) and operation(node) in _SAME:
        source: Any = node.args[_SAME[operation(node)]]
        if not isinstance(source, fx.Node) or _kind(source) != _kind(node):
            break
        node = source
    return node


def _kind(node: fx.Node) -> Any:
    value = node.meta["val"]
    return tuple(value.shape), value.dtype


def _read_through(graph: fx.Graph, node: fx.Node) -> None:
    """Read what was written, or what was there before what is written elsewhere; of a sum, what each term has there."""
    read = _part(node, node.args[0], 1)
    if read is None:
        return
    terms, zeros, passed = list[fx.Node](), list[fx.Node](), False
    sources = [read.source]
    with graph.inserting_before(node):
        while sources:
            source = _content(sources.pop())
            written = _write(source)
            if written is not None and written.dim != read.dim:
                written = None
            if written is not None and (written.end <= read.start or read.end <= written.start):
                sources.append(_base(source))
                passed = True
            elif written is not None and written.start <= read.start and read.end <= written.end:
                is_none = is_zero(_content(written.source))
                (zeros if is_none else terms).append(_taken(graph, node, written, read))
                passed = True
            elif _is_sparse_sum(source):
                sources.extend(reversed(source.args))
            else:
                found = inserted(graph, node, node.target, (source, *node.args[1:]), node.kwargs)
                (zeros if is_zero(source) else terms).append(found)
        if not passed:
            return
        total, *others = terms or zeros
        for other in others if terms else ():
            total = inserted(graph, node, aten.add.Tensor, (total, other))
    node.replace_all_uses_with(total)
    graph.erase_node(node)


def _is_sparse_sum(node: fx.Node) -> bool:
    """Whether a node adds to a tensor what is written into zeros, as gradients of parts are added up."""
    if operation(node) != "aten.add.Tensor" or node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
        return False
    terms: Any = [_content(a) for a in node.args]
    if any(_kind(t) != _kind(node) for t in terms):
        return False
    return any(_write(t) is not None and is_zero(_base(t)) for t in terms)


def _taken(graph: fx.Graph, node: fx.Node, written: Part, read: Part) -> fx.Node:
    """What is read of what was written."""
    value = node.meta["val"]
    found = converted(graph, node, _content(written.source), value.dtype)
    if written.single:
        return found if read.single else inserted(graph, node, aten.unsqueeze.default, (found, read.dim))
    start, end = read.start - written.start, read.end - written.start
    if read.single:
        return inserted(graph, node, aten.select.int, (found, read.dim, start))
    whole = (start, end) == (0, written.end - written.start)
    return found if whole else inserted(graph, node, aten.slice.Tensor, (found, read.dim, start, end))


def _join(graph: fx.Graph, node: fx.Node, dim: int) -> None:
    """Join what is written along a dimension, and what is left of what was there before, unless it is little."""
    size: Any = node.meta["val"].shape[dim]
    parts: dict[tuple[int, int], Part] = {}
    current: Any = node
    while isinstance(current, fx.Node) and (written := _write(current)) is not None and written.dim == dim:
        span = written.start, written.end
        if span not in parts and any(start < span[1] and span[0] < end for start, end in parts):
            return
        parts.setdefault(span, written)
        current = _base(current)
    if len(parts) < LEAST or not isinstance(size, int):
        return
    with graph.inserting_before(node):
        joined: list[fx.Node] = []
        at = 0
        for (start, end), part in [*sorted(parts.items()), ((size, size), None)]:
            if start > at:
                joined.append(inserted(graph, node, aten.slice.Tensor, (current, dim, at, start)))
            if part is not None:
                found = converted(graph, node, _content(part.source), node.meta["val"].dtype)
                joined.append(inserted(graph, node, aten.unsqueeze.default, (found, dim)) if part.single else found)
            at = end
        made = inserted(graph, node, aten.cat.default, (joined, dim))
    replaced(graph, node, made)
