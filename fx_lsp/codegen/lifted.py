"""Sums in the steps of a loop over time, over more than a program of the loop holds, are finished behind the loop.

A step sums, say, over the columns of its state for one result and over the rows for another. A program holds some rows
with all columns: what each of them sums is stacked, and added up for all steps at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, cast

import torch
from torch import fx

from fx_lsp.codegen.edits import converted, inserted, replaced
from fx_lsp.codegen.families import SUMS, Family, Lifting, is_pointwise, is_view, slice_of, sums_in, value_of
from fx_lsp.codegen.joined import stacked
from fx_lsp.codegen.lowerings.reductions import reduced_dimensions
from fx_lsp.codegen.registry import operation
from fx_lsp.codegen.schedule import AT_ONCE
from fx_lsp.codegen.stepsums import in_parts

aten = torch.ops.aten

LEAST = 4
"""From how many steps on."""

TILE = 1024
"""How many elements of its state a program of the loop has, if it need not hold more."""

COLUMNS = 16
"""How many of them lie side by side where steps sum over rows alone."""

Dims: TypeAlias = "tuple[int, ...]"


def lift_sums(graph: fx.Graph) -> None:
    """Have sums that would keep a program of a loop from holding a part of the state be finished for all steps, or, if
    they take nothing of it, be made for all before the loop."""
    stacks = _stacks(graph)
    free = _only_stacked(graph, stacks)
    sums = _by_shape(graph, free)
    if not sums:
        return
    state = max(map(prod, sums))
    lifting = Lifting(graph)
    for shape, alike in sums.items():
        if prod(shape) < state:
            lifting.late.update(n for found in alike.values() for n in found if n in free)
            continue
        bound = {dims for dims, found in alike.items() if len(set(found) - free) >= LEAST - 1}
        parts = _begun(shape, alike, bound)
        for dims, found in alike.items():
            for node in found:
                if dims in parts:
                    first, last = _parted(graph, node, *parts[dims])
                    lifting.begun.add(first)
                    lifting.late.add(last)
                elif prod(shape[d] for d in dims) <= AT_ONCE:
                    in_parts(node, 1)
    for node, (dim, family) in stacks.items():
        if lifting.is_late(family):
            lifting.replace(node, dim, family)
    graph.eliminate_dead_code()
    for family in _slicewise(graph, state):
        Lifting(graph).replace_each(family)
    lifting = Lifting(graph)
    for node, (dim, family) in _stacks(graph).items():
        if not any(True for n in family for _ in sums_in(n)):
            lifting.replace(node, dim, family, alone=True)
    graph.eliminate_dead_code()


def _stacks(graph: fx.Graph) -> dict[fx.Node, tuple[int, Family]]:
    """What stacks something of each step that no other step takes: along which dimension, and what."""
    found: dict[fx.Node, tuple[int, Family]] = {}
    for node in graph.nodes:
        dim, parts = stacked(node) or (0, list[fx.Node]())
        if len(parts) >= LEAST and parts[-1] not in _ancestors(parts[0]) and parts[0] not in _ancestors(parts[-1]):
            found[node] = dim, tuple(parts)
    return found


def _ancestors(node: fx.Node) -> set[fx.Node]:
    """What a node is made of, itself too."""
    stack, seen = [node], {node}
    while stack:
        new = [n for n in stack.pop().all_input_nodes if n not in seen]
        seen.update(new)
        stack.extend(new)
    return seen


def _only_stacked(graph: fx.Graph, stacks: Mapping[fx.Node, tuple[int, Family]]) -> set[fx.Node]:
    """What is needed for nothing but stacks, and made to them by what can be done for all steps at once."""
    found = set(stacks)
    for stack in stacks:
        joins = [n for n in stack.all_input_nodes if operation(n) == "aten.cat.default"] or [stack]
        found.update(joins, (n for n in joins[0].all_input_nodes if operation(n) == "aten.unsqueeze.default"))
    for node in reversed(graph.nodes):
        known = is_pointwise(node) or is_view(node) or operation(node) in SUMS
        if known and node.users and all(u in found and operation(u) not in SUMS for u in node.users):
            found.add(node)
    return found


def _by_shape(graph: fx.Graph, free: Collection[fx.Node]) -> dict[Dims, dict[Dims, list[fx.Node]]]:
    """The sums that there are in every step, by the shape of what they sum and by its dimensions that they sum over.
    Some of them are `free`, and some take a state."""
    found: dict[Dims, dict[Dims, list[fx.Node]]] = {}
    for node in [n for n in graph.nodes if operation(n) in SUMS]:
        shape: tuple[Any, ...] = tuple(value_of(node.args[0]).shape)
        if all(isinstance(s, int) for s in shape):
            found.setdefault(shape, {}).setdefault(reduced_dimensions(node), []).append(node)
    often = {shape: {d: sums for d, sums in alike.items() if len(sums) >= LEAST} for shape, alike in found.items()}
    often = {s: alike for s, alike in often.items() if any(n in free for sums in alike.values() for n in sums)}
    return often if any(_grows(sums) for alike in often.values() for sums in alike.values()) else {}


def _grows(sums: Sequence[fx.Node]) -> bool:
    """Whether each of some sums is made of more than the one before it, or the one after it, as of a state."""
    return abs(len(_ancestors(sums[-1])) - len(_ancestors(sums[0]))) >= len(sums) - 1


def _slicewise(graph: fx.Graph, state: int) -> list[Family]:
    """Sums, of fewer elements than there are of a state, that are made in the same way of one slice after the other."""
    known: dict[fx.Node, tuple[int, int | None]] = {}
    numbers: dict[Any, int] = {}
    families: dict[int, dict[int, fx.Node]] = {}
    for node in graph.nodes:
        made, steps = _made(node, known)
        known[node] = numbers.setdefault(made, len(numbers)), next(iter(steps), None)
        if operation(node) in SUMS and steps and prod(value_of(node.args[0]).shape) < state:
            number, step = known[node]
            families.setdefault(number, {})[cast("int", step)] = node
    ordered = [tuple(family[step] for step in sorted(family)) for family in families.values()]
    whole = [max(f) - min(f) == len(f) - 1 for f in families.values()]
    return [family for family, is_whole in zip(ordered, whole, strict=True) if is_whole and len(family) >= LEAST]


def _made(node: fx.Node, known: Mapping[fx.Node, tuple[int, int | None]]) -> tuple[Any, set[int]]:
    """How a node is made of slices with one number, and that number; of something else, it is like no other."""
    if (part := slice_of(node)) is not None:
        return (node.target, *part[:2]), {part[2]}
    steps = {step for n in node.all_input_nodes if (step := known[n][1]) is not None}
    if len(steps) != 1 or not (is_pointwise(node) or is_view(node) or operation(node) in SUMS):
        return node, set()
    args = tuple(known[a][0] if isinstance(a, fx.Node) else repr(a) for a in node.args)
    return (node.target, args, repr(node.kwargs)), steps


def _begun(shape: Dims, known: Collection[Dims], bound: Collection[Dims]) -> dict[Dims, tuple[Dims, int]]:
    """For the dimensions of sums that a program of the loop can only begin: those that it sums over, and how many
    elements of the first of them. `bound` are those of sums that the next step takes: a program has to finish them."""
    real = [d for d, size in enumerate(shape) if size != 1]
    ends = [dims for dims in known if dims and list(dims) == real[len(real) - len(dims) :]]
    columns = min(ends, key=len, default=())
    if not columns and len(known) > 1:
        return {}
    before = [d for d in real if d < columns[0]] if columns else real
    wide = prod(shape[d] for d in columns) if columns else COLUMNS
    found: dict[Dims, tuple[Dims, int]] = {}
    for dims in known:
        row = dims[-1] if not columns and dims else before[-1] if before else None
        if dims == columns or dims in bound or row is None:
            continue
        if set(columns) < set(dims) and columns:
            found[dims] = columns, shape[columns[0]]
        elif row in dims and not set(columns) & set(dims):
            rows = next(r for r in range(shape[row], 0, -1) if shape[row] % r == 0 and (r * wide <= TILE or r == 1))
            if rows < shape[row] or len(dims) > 1:
                found[dims] = (row,), rows
    return found


def _parted(graph: fx.Graph, node: fx.Node, dims: Dims, rows: int) -> tuple[fx.Node, fx.Node]:
    """Make a sum one of sums over some dimensions, of so many elements of the first of them. Returns both."""
    source: Any = node.args[0]
    value, result = value_of(source), value_of(node)
    wide = torch.promote_types(result.dtype, torch.float32) if result.dtype.is_floating_point else result.dtype
    with graph.inserting_before(node):
        if rows < value.shape[dims[0]]:
            (row,) = dims
            shape = [*value.shape[:row], value.shape[row] // rows, rows, *value.shape[row + 1 :]]
            source = inserted(graph, node, aten.reshape.default, (source, shape))
            args: tuple[Any, ...] = (source, [row + 1])
        else:
            args = (source, list(dims), True)
        first = inserted(graph, node, aten.sum.dim_IntList, args, {"dtype": wide}, f"{node.name}_partial")
        in_parts(first, 1)
        over = list(reduced_dimensions(node))
        last = inserted(graph, node, aten.sum.dim_IntList, (first, over, result.dim() == value.dim()), {"dtype": wide})
        found = converted(graph, node, last, result.dtype)
    replaced(graph, node, found)
    return first, last
