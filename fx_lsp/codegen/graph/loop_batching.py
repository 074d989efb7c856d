"""Batch the same operation of each step of a loop over time into one operation for all steps.

Sums in the steps over more elements than a program of the loop holds are finished after the loop. A step may sum over
the columns of its state for one result and over the rows for another. A program holds some rows with all columns: its
partial sums are stacked, and summed for all steps at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias, cast

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import insert_call, insert_cast, replace_node
from fx_lsp.codegen.graph.query import fake_value, reduced_dimensions, slice_of
from fx_lsp.codegen.graph.reductions import plan_parts
from fx_lsp.codegen.graph.slices import stacked_tensors
from fx_lsp.codegen.ir.lowerings import aliases_first, is_random, operation
from fx_lsp.codegen.ir.node_facts import add_facts
from fx_lsp.codegen.ir.tile import MAX_TILE_ELEMENTS

aten = torch.ops.aten

SUMS = ("aten.sum.dim_IntList", "aten.sum.default")

_VIEWS = ("alias", "squeeze", "unsqueeze", "view", "_unsafe_view", "reshape", "expand")
"""Operations that keep elements in order, or repeat them."""

Family: TypeAlias = "tuple[fx.Node, ...]"
"""A node of each step, in order."""


def sums_behind(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the sums that a node derives from by operations that can be batched."""
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        if operation(current) in SUMS:
            yield current
        elif is_pointwise(current) or is_view(current):
            stack.extend(n for n in current.all_input_nodes if n not in seen)
            seen.update(current.all_input_nodes)


def is_pointwise(node: fx.Node) -> bool:
    """Return True if a node is deterministic and element-wise."""
    tags: Any = getattr(node.target, "tags", ())
    elementwise = torch.Tag.pointwise in tags or operation(node) == "prims.convert_element_type.default"
    return elementwise and not is_random(node)


def is_view(node: fx.Node) -> bool:
    """Return True if a node keeps elements in order, perhaps repeating some."""
    return operation(node).startswith(("aten.", "prims.")) and operation(node).split(".")[1] in _VIEWS


@dataclass
class StepBatching:
    """Replace operations of each step by operations for all steps, along the first dimension: the `deferred` sums and
    values derived from them. `partial` sums remain in the steps.
    """

    graph: fx.Graph
    partial: set[fx.Node] = field(default_factory=set["fx.Node"])
    deferred: set[fx.Node] = field(default_factory=set["fx.Node"])
    batched: dict[tuple[Family, bool], fx.Node | None] = field(default_factory=dict[Any, Any])

    def is_deferred(self, family: Family) -> bool:
        """Return True if a family derives from deferred sums."""
        return any(s in self.deferred for node in family for s in sums_behind(node))

    def replace(self, stack: fx.Node, dim: int, family: Family, alone: bool = False) -> None:
        """Replace a stack of a family along a dimension by a batched computation; with `alone`, only if nothing needs
        to be stacked. A stack never becomes a view of an input or a result.
        """
        with self.graph.inserting_before(stack):
            batched = self.batch(family, alone) or (None if alone else self._stack(family))
            if batched is None or fake_value(batched).shape[0] != len(family) or _is_input_or_result(batched):
                return
            batched = self._move_steps(batched, dim)
        replace_node(self.graph, stack, batched)

    def replace_each(self, family: Family) -> None:
        """Replace each of a family that does not depend on a state by slices of a batched computation, unless some are
        results.
        """
        if any(u.op == "output" for n in family for u in n.users):
            return
        order = {n: k for k, n in enumerate(self.graph.nodes)}
        with self.graph.inserting_before(min(family, key=lambda n: order[n])):
            batched = self.batch(family, alone=True)
        if batched is None or fake_value(batched).shape[0] != len(family):
            return
        for step, node in enumerate(family):
            with self.graph.inserting_before(node):
                replace_node(self.graph, node, insert_call(node, aten.select.int, (batched, 0, step)))

    def _move_steps(self, node: fx.Node, dim: int, user: fx.Node | None = None) -> fx.Node:
        """Return a node with its first dimension moved to `dim`, for `user`."""
        source: Any = node.args[0] if dim and _has_no_other_user(node, user) and node.args else None
        if source is not None and operation(node) == "prims.convert_element_type.default":
            return insert_cast(self.graph, node, self._move_steps(source, dim, node), fake_value(node).dtype)
        if source is not None and operation(node) in SUMS:
            dims, rank = reduced_dimensions(node), fake_value(source).dim()
            keep = fake_value(node).dim() == rank
            order = _order_with_first_at(dim if keep else [d for d in range(rank) if d not in dims][dim], rank)
            source = insert_call(node, aten.permute.default, (source, order))
            over = [order.index(d) for d in dims]
            return insert_call(node, aten.sum.dim_IntList, (source, over, keep), node.kwargs)
        order = _order_with_first_at(dim, fake_value(node).dim())
        return insert_call(node, aten.permute.default, (node, order)) if dim else node

    def batch(self, family: Family, alone: bool = False) -> fx.Node | None:
        """Return a family along a new first dimension, of size one if all are the same. None if no operation computes
        it, or with `alone`, if something would have to be stacked.
        """
        key = family, alone
        if key not in self.batched:
            self.batched[key] = (
                self._batch_shared(family) or self._batch_selected(family) or self._batch_applied(family, alone)
            )
        return self.batched[key]

    def _batch_shared(self, family: Family) -> fx.Node | None:
        first = family[0]
        constant = first.op == "call_function" and not first.all_input_nodes and not is_random(first)
        if not all(n is first or (constant and _call_key(n) == _call_key(first)) for n in family):
            return None
        return insert_call(first, aten.unsqueeze.default, (first, 0))

    def _batch_selected(self, family: Family) -> fx.Node | None:
        """Return the tensor whose consecutive slices are a family, with that dimension first; None for any other
        family.
        """
        slices = [slice_of(n) for n in family]
        if slices[0] is None:
            return None
        source, dim, at = slices[0]
        size: Any = fake_value(source).shape[dim]
        if not isinstance(size, int) or slices != [(source, dim, at + k) for k in range(len(family))]:
            return None
        order = [dim, *(d for d in range(fake_value(source).dim()) if d != dim)]
        if len(family) < size:
            source = insert_call(family[0], aten.slice.Tensor, (source, dim, at, at + len(family)))
        return insert_call(family[0], aten.permute.default, (source, order)) if dim else source

    def _batch_applied(self, family: Family, alone: bool) -> fx.Node | None:
        """Return the common operation of a family, for all steps, or None."""
        first = family[0]
        can_batch = is_pointwise(first) or is_view(first) or operation(first) in SUMS
        if not can_batch or first in self.partial or len({(n.target, len(n.args), repr(n.kwargs)) for n in family}) > 1:
            return None
        args: list[Any] = []
        for column in zip(*(n.args for n in family), strict=True):
            if not all(isinstance(a, fx.Node) for a in column):
                if any(a != column[0] for a in column):
                    return None
                args.append(column[0])
                continue
            nodes = cast("Family", column)
            batched = self.batch(nodes, alone or not self.is_deferred(nodes))
            if batched is None and alone:
                return None
            args.append(batched or self._stack(nodes))
        return self._call_batched(first, args, len(family))

    def _call_batched(self, like: fx.Node, args: list[Any], steps: int) -> fx.Node | None:
        """Return the call of a node for all steps, with batched arguments; None if its result differs."""
        value, rank = fake_value(like), fake_value(like).dim()
        if operation(like) == "aten.expand.default":
            batched = insert_call(like, like.target, (self._broadcast(args[0], rank), [steps, *value.shape]))
        elif is_view(like):
            batched = self._reshape(args[0], (fake_value(args[0]).shape[0], *value.shape))
        elif operation(like) in SUMS:
            dims = [d + 1 for d in reduced_dimensions(like)]
            keep = rank == fake_value(args[0]).dim() - 1
            batched = insert_call(like, aten.sum.dim_IntList, (args[0], dims, keep), like.kwargs)
        else:
            broadcast = tuple(self._broadcast(a, rank) if isinstance(a, fx.Node) else a for a in args)
            batched = insert_call(like, like.target, broadcast, like.kwargs)
        add_facts(batched, iteration=None)
        result = fake_value(batched)
        fits = result.dtype == value.dtype and result.shape[1:] == value.shape and result.shape[0] in (1, steps)
        return batched if fits else None

    def _broadcast(self, node: fx.Node, rank: int) -> fx.Node:
        """Return a tensor of all steps with `rank` dimensions for each of them."""
        own = fake_value(node).shape
        if len(own) > rank:
            return node
        return self._reshape(node, (own[0], *[1] * (rank + 1 - len(own)), *own[1:]))

    def _reshape(self, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
        """Return a node in another shape; a sum drops dimensions of size one itself."""
        base: Any = node.args[0] if operation(node) == "aten.reshape.default" else node
        if operation(base) in SUMS and _has_no_other_user(base, None if base is node else node):
            source: Any = base.args[0]
            ones = (d for d, size in enumerate(fake_value(source).shape) if size == 1)
            over = sorted({*reduced_dimensions(base), *ones})
            summed = insert_call(node, aten.sum.dim_IntList, (source, over, False), base.kwargs)
            if fake_value(summed).shape == shape:
                return summed
        return insert_call(node, aten.reshape.default, (base, shape))

    def _stack(self, family: Family) -> fx.Node:
        wide = [insert_call(n, aten.unsqueeze.default, (n, 0)) for n in family]
        return insert_call(family[0], aten.cat.default, (wide, 0), name=f"{family[0].name}_of_all")


def _is_input_or_result(node: fx.Node) -> bool:
    """Return True if a node is, or is a view of, an input or a result."""
    while aliases_first(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node.op != "call_function" or any(u.op == "output" for u in node.users)


def _has_no_other_user(node: fx.Node, user: fx.Node | None) -> bool:
    """Return True if a node has no other user."""
    return not set(node.users) - {user}


def _order_with_first_at(place: int, rank: int) -> list[int]:
    """Return the order of dimensions with the first one at a place."""
    return [*range(1, place + 1), 0, *range(place + 1, rank)]


def _call_key(node: fx.Node) -> Any:
    return node.target, repr(node.args), repr(node.kwargs)


MIN_BATCHED_STEPS = 4
"""The least number of steps."""

TILE_ELEMENTS = 1024
"""The number of elements of its state that a program of the loop holds, if it need not hold more."""

TILE_COLUMNS = 16
"""The number of adjacent elements if steps only sum over rows."""

Dims: TypeAlias = "tuple[int, ...]"


def batch_step_sums(graph: fx.Graph) -> None:
    """Finish sums that would prevent a program of a loop from holding a part of the state for all steps at once. Sums
    that do not depend on the state are computed for all steps before the loop.
    """
    stacks = _stacks(graph)
    free = _only_stacked(graph, stacks)
    sums = _sums_by_shape(graph, free)
    if not sums:
        return
    state = max(map(prod, sums))
    batching = StepBatching(graph)
    for shape, alike in sums.items():
        if prod(shape) < state:
            batching.deferred.update(n for sums_alike in alike.values() for n in sums_alike if n in free)
            continue
        _split_state_sums(graph, batching, shape, alike, free)
    for node, (dim, family) in stacks.items():
        if batching.is_deferred(family):
            batching.replace(node, dim, family)
    graph.eliminate_dead_code()
    for family in _slice_families(graph, state):
        StepBatching(graph).replace_each(family)
    batching = StepBatching(graph)
    for node, (dim, family) in _stacks(graph).items():
        if not any(True for n in family for _ in sums_behind(n)):
            batching.replace(node, dim, family, alone=True)
    graph.eliminate_dead_code()


def _split_state_sums(
    graph: fx.Graph,
    batching: StepBatching,
    shape: Dims,
    alike: Mapping[Dims, Sequence[fx.Node]],
    free: Collection[fx.Node],
) -> None:
    """Split sums over elements of a state, by their dimensions, into a part in the loop and the rest."""
    bound = {dims for dims, sums in alike.items() if len(set(sums) - set(free)) >= MIN_BATCHED_STEPS - 1}
    parts = _partial_dimensions(shape, alike, bound)
    for dims, sums in alike.items():
        for node in sums:
            if dims in parts:
                first, last = _split_sum(graph, node, *parts[dims])
                batching.partial.add(first)
                batching.deferred.add(last)
            elif prod(shape[d] for d in dims) <= MAX_TILE_ELEMENTS:
                plan_parts(node, 1)


def _stacks(graph: fx.Graph) -> dict[fx.Node, tuple[int, Family]]:
    """Return (dim, tensors) for each node that stacks one tensor of each step, on which no other step depends."""
    families: dict[fx.Node, tuple[int, Family]] = {}
    for node in graph.nodes:
        dim, parts = stacked_tensors(node) or (0, list[fx.Node]())
        if (
            len(parts) >= MIN_BATCHED_STEPS
            and parts[-1] not in _ancestors(parts[0])
            and parts[0] not in _ancestors(parts[-1])
        ):
            families[node] = dim, tuple(parts)
    return families


def _ancestors(node: fx.Node) -> set[fx.Node]:
    """Return a node and all nodes that it depends on."""
    stack, seen = [node], {node}
    while stack:
        new = [n for n in stack.pop().all_input_nodes if n not in seen]
        seen.update(new)
        stack.extend(new)
    return seen


def _only_stacked(graph: fx.Graph, stacks: Mapping[fx.Node, tuple[int, Family]]) -> set[fx.Node]:
    """Return the nodes that only lead to stacks, by operations that can be batched."""
    needed = set(stacks)
    for stack in stacks:
        joins = [n for n in stack.all_input_nodes if operation(n) == "aten.cat.default"] or [stack]
        needed.update(joins, (n for n in joins[0].all_input_nodes if operation(n) == "aten.unsqueeze.default"))
    for node in reversed(graph.nodes):
        can_batch = is_pointwise(node) or is_view(node) or operation(node) in SUMS
        if can_batch and node.users and all(u in needed and operation(u) not in SUMS for u in node.users):
            needed.add(node)
    return needed


def _sums_by_shape(graph: fx.Graph, free: Collection[fx.Node]) -> dict[Dims, dict[Dims, list[fx.Node]]]:
    """Return the sums that occur in every step, by the shape of their operand and their summed dimensions. Some of them
    are `free`, and some depend on a state.
    """
    sums_by_shape: dict[Dims, dict[Dims, list[fx.Node]]] = {}
    for node in [n for n in graph.nodes if operation(n) in SUMS]:
        shape: tuple[Any, ...] = tuple(fake_value(node.args[0]).shape)
        if all(isinstance(s, int) for s in shape):
            sums_by_shape.setdefault(shape, {}).setdefault(reduced_dimensions(node), []).append(node)
    often = {
        shape: {d: sums for d, sums in alike.items() if len(sums) >= MIN_BATCHED_STEPS}
        for shape, alike in sums_by_shape.items()
    }
    often = {s: alike for s, alike in often.items() if any(n in free for sums in alike.values() for n in sums)}
    return often if any(_grow(sums) for alike in often.values() for sums in alike.values()) else {}


def _grow(sums: Sequence[fx.Node]) -> bool:
    """Return True if each of some sums depends on more nodes than its predecessor, or than its successor, as with a
    state.
    """
    return abs(len(_ancestors(sums[-1])) - len(_ancestors(sums[0]))) >= len(sums) - 1


def _slice_families(graph: fx.Graph, state: int) -> list[Family]:
    """Return sums with fewer elements than a state, computed in the same way from consecutive slices."""
    keys: dict[fx.Node, tuple[int, int | None]] = {}
    numbers: dict[Any, int] = {}
    families: dict[int, dict[int, fx.Node]] = {}
    for node in graph.nodes:
        signature, steps = _slice_signature(node, keys)
        keys[node] = numbers.setdefault(signature, len(numbers)), next(iter(steps), None)
        if operation(node) in SUMS and steps and prod(fake_value(node.args[0]).shape) < state:
            number, step = keys[node]
            families.setdefault(number, {})[cast("int", step)] = node
    ordered = [tuple(family[step] for step in sorted(family)) for family in families.values()]
    whole = [max(f) - min(f) == len(f) - 1 for f in families.values()]
    return [
        family for family, is_whole in zip(ordered, whole, strict=True) if is_whole and len(family) >= MIN_BATCHED_STEPS
    ]


def _slice_signature(node: fx.Node, keys: Mapping[fx.Node, tuple[int, int | None]]) -> tuple[Any, set[int]]:
    """Return a key of the computation of `node` from slices with one number, and that number; other nodes are their own
    key.
    """
    if (part := slice_of(node)) is not None:
        return (node.target, *part[:2]), {part[2]}
    steps = {step for n in node.all_input_nodes if (step := keys[n][1]) is not None}
    if len(steps) != 1 or not (is_pointwise(node) or is_view(node) or operation(node) in SUMS):
        return node, set()
    args = tuple(keys[a][0] if isinstance(a, fx.Node) else repr(a) for a in node.args)
    return (node.target, args, repr(node.kwargs)), steps


def _partial_dimensions(
    shape: Dims, summed_dims: Collection[Dims], bound: Collection[Dims]
) -> dict[Dims, tuple[Dims, int]]:
    """Return, for the dimensions of sums that a program of the loop can only begin, the dimensions that it sums over,
    and how many elements of the first of them. `bound` are those of sums that the next step needs, which a program
    has to finish.
    """
    real = [d for d, size in enumerate(shape) if size != 1]
    ends = [dims for dims in summed_dims if dims and list(dims) == real[len(real) - len(dims) :]]
    columns = min(ends, key=len, default=())
    if not columns and len(summed_dims) > 1:
        return {}
    before = [d for d in real if d < columns[0]] if columns else real
    partial: dict[Dims, tuple[Dims, int]] = {}
    for dims in summed_dims:
        row = dims[-1] if not columns and dims else before[-1] if before else None
        if dims != columns and dims not in bound and row is not None:
            part = _partial_sum(shape, dims, columns, row)
            if part is not None:
                partial[dims] = part
    return partial


def _partial_sum(shape: Dims, dims: Dims, columns: Dims, row: int) -> tuple[Dims, int] | None:
    """Return the dimensions among `dims` that a program with some rows of all `columns` sums over, and how many
    elements of the first of them; None if nothing remains.
    """
    if columns and set(columns) < set(dims):
        return columns, shape[columns[0]]
    if row not in dims or set(columns) & set(dims):
        return None
    wide = prod(shape[d] for d in columns) if columns else TILE_COLUMNS
    rows = next(r for r in range(shape[row], 0, -1) if shape[row] % r == 0 and (r * wide <= TILE_ELEMENTS or r == 1))
    return ((row,), rows) if rows < shape[row] or len(dims) > 1 else None


def _split_sum(graph: fx.Graph, node: fx.Node, dims: Dims, rows: int) -> tuple[fx.Node, fx.Node]:
    """Split a sum into one over some dimensions, with that many elements of the first of them, and one of the rest.
    Returns both.
    """
    source: Any = node.args[0]
    value, result = fake_value(source), fake_value(node)
    wide = torch.promote_types(result.dtype, torch.float32) if result.dtype.is_floating_point else result.dtype
    with graph.inserting_before(node):
        if rows < value.shape[dims[0]]:
            (row,) = dims
            shape = [*value.shape[:row], value.shape[row] // rows, rows, *value.shape[row + 1 :]]
            source = insert_call(node, aten.reshape.default, (source, shape))
            args: tuple[Any, ...] = (source, [row + 1])
        else:
            args = (source, list(dims), True)
        first = insert_call(node, aten.sum.dim_IntList, args, {"dtype": wide}, f"{node.name}_partial")
        plan_parts(first, 1)
        over = list(reduced_dimensions(node))
        last = insert_call(node, aten.sum.dim_IntList, (first, over, result.dim() == value.dim()), {"dtype": wide})
        result_node = insert_cast(graph, node, last, result.dtype)
    replace_node(graph, node, result_node)
    return first, last
