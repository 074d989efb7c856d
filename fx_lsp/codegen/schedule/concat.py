"""Tensors that are joined out of parts which kernels compute: each part is written where it belongs at once."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from torch import fx

from fx_lsp.codegen.graph.query import argument, dimension, shape_of, step_of
from fx_lsp.codegen.graph.template_kernel import writer_of
from fx_lsp.codegen.ir.index import ZERO
from fx_lsp.codegen.ir.ops import operation
from fx_lsp.codegen.ir.write_target import Reshape, Shift, Step

MANY = 4
"""From how many on, tensors that are joined are written one by one."""

Pieces: TypeAlias = dict[fx.Node, list[tuple[fx.Node, tuple[Step, ...]]]]
"""For nodes that are parts of others: of which, and the steps to their elements there."""


def pieces_of(nodes: Iterable[fx.Node], roots: Collection[fx.Node], views: Collection[fx.Node]) -> Pieces:
    """The parts of what some nodes join: of many tensors, or of results of kernels that are written as a whole.

    `roots` are in memory and no parts: they would be copied. Of their `views`, few are.
    """
    found: Pieces = {}
    for node in nodes:
        if operation(node) != "aten.cat.default":
            continue
        given: Any = node.args[0]
        parts = {part: _made(part) for part in given}
        if len(parts) < MANY and not any(made is not None for made in parts.values()):
            continue
        rank = len(shape_of(node))
        if len(parts) < len(given) or any(len(shape_of(part)) != rank for part in parts):
            continue
        ready = [part for part, made in parts.items() if made is None and (part in roots or part in views)]
        if len(ready) * MANY > len(parts) or any(part in roots for part in ready):
            continue
        whole, further = _copied(node)
        dim, start = dimension(argument(node, 1, "dim", 0), rank), ZERO
        for part, made in parts.items():
            source, steps = made or (part, ())
            found.setdefault(source, []).append((whole, (*steps, Shift(dim, start), *further)))
            start = start + shape_of(part)[dim]
    return found


def _made(part: fx.Node) -> tuple[fx.Node, tuple[Step, ...]] | None:
    """The result of a kernel of ours that a part has all elements of, and the steps to them; None where something else
    needs it, too, or it is none."""
    steps: list[Step] = []
    while len(part.users) == 1:
        made: Any = part.args[0] if part.target is operator.getitem else None
        if made is not None:
            return (part, tuple(steps)) if writer_of(made) is not None else None
        step = step_of(part)
        if step is None:
            return None
        steps.insert(0, step)
        part = part.all_input_nodes[0]
    return None


def _copied(node: fx.Node) -> tuple[fx.Node, tuple[Step, ...]]:
    """What a joined tensor is copied to as a whole, or that itself, and the steps there."""
    whole, steps, way = node, (), list[Step]()
    current = node
    while len(current.users) == 1:
        current = next(iter(current.users))
        step = step_of(current)
        if step is None:
            break
        way.append(step)
        if isinstance(step, Reshape) and operation(current) == "aten.clone.default":
            whole, steps = current, tuple(way)
    return whole, steps
