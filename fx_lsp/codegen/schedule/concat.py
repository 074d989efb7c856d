"""Concatenations whose parts kernels compute: each kernel writes its part directly into the joined tensor."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import fx

from fx_lsp.codegen.graph.query import argument, dimension, layout_step, shape_of
from fx_lsp.codegen.ir.index import ZERO, count
from fx_lsp.codegen.ir.lowerings import operation
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.write_target import LayoutStep, Offset, Reshape

MIN_CONCAT_PARTS = 4
"""The least number of parts for which each part is written on its own."""

MIN_PIECE = 32
"""The least number of neighbouring elements in a result for which parts of one shape are written on their own."""

ConcatParts: TypeAlias = dict[fx.Node, list[tuple[fx.Node, tuple[LayoutStep, ...]]]]
"""Maps each part to the tensors that contain it, with the steps from those to the elements of the part."""


def concat_parts(
    nodes: Iterable[fx.Node], roots: Collection[fx.Node], views: Collection[fx.Node], results: Collection[fx.Node]
) -> ConcatParts:
    """Return the parts of the concatenations among some nodes: those of many tensors, of results of template kernels,
    or of tensors of one shape, if these are `results` of the graph: one kernel computes an element of each.

    A concatenation with one of the `roots` as a part is left out: the root is in memory already and would be copied.
    At most one in MIN_CONCAT_PARTS parts may be among the `views` of roots.
    """
    parts_of: ConcatParts = {}
    for node in nodes:
        if operation(node) != "aten.cat.default":
            continue
        joined: Any = node.args[0]
        parts = {part: _template_result(part) for part in joined}
        whole, further = _copy_of_whole(node)
        if not _are_many(parts) and not (whole in results and _are_even(node, joined)):
            continue
        rank = len(shape_of(node))
        if len(parts) < len(joined) or any(len(shape_of(p)) != rank or facts_of(p).in_place for p in parts):
            continue
        ready = [part for part, result in parts.items() if result is None and (part in roots or part in views)]
        if len(ready) * MIN_CONCAT_PARTS > len(parts) or any(part in roots for part in ready):
            continue
        dim, start = dimension(argument(node, 1, "dim", 0), rank), ZERO
        for part, result in parts.items():
            source, steps = result or (part, ())
            parts_of.setdefault(source, []).append((whole, (*steps, Offset(dim, start), *further)))
            start = start + shape_of(part)[dim]
    return parts_of


def _are_many(parts: Mapping[fx.Node, object]) -> bool:
    """Return True if a concatenation has many parts, or if one is a result of a template kernel."""
    return len(parts) >= MIN_CONCAT_PARTS or any(result is not None for result in parts.values())


def _are_even(node: fx.Node, parts: Sequence[fx.Node]) -> bool:
    """Return True if the parts of a concatenation have one shape, and elements next to each other in the result."""
    shape = shape_of(parts[0])
    piece = count(shape[dimension(argument(node, 1, "dim", 0), len(shape)) :])
    return all(shape_of(p) == shape for p in parts) and bool(piece >= MIN_PIECE)


def _template_result(part: fx.Node) -> tuple[fx.Node, tuple[LayoutStep, ...]] | None:
    """Return the result of a template kernel of which a part has all elements, and the layout steps to the part.

    Returns None if the part is no such result, or if another node needs the result.
    """
    steps: list[LayoutStep] = []
    while len(part.users) == 1:
        kernel: Any = part.args[0] if part.target is operator.getitem else None
        if kernel is not None:
            return (part, tuple(steps)) if facts_of(kernel).template is not None else None
        step = layout_step(part)
        if step is None:
            return None
        steps.insert(0, step)
        part = part.all_input_nodes[0]
    return None


def _copy_of_whole(node: fx.Node) -> tuple[fx.Node, tuple[LayoutStep, ...]]:
    """Return the copy of a whole joined tensor and the layout steps to it, or the tensor itself and no steps."""
    whole, steps, way = node, (), list[LayoutStep]()
    current = node
    while len(current.users) == 1:
        current = next(iter(current.users))
        step = layout_step(current)
        if step is None:
            break
        way.append(step)
        if isinstance(step, Reshape) and operation(current) == "aten.clone.default":
            whole, steps = current, tuple(way)
    return whole, steps
