"""The same operation in each step of a loop over time, as one operation for all steps at once.

Sums in the steps, over more than a program of the loop holds, are finished behind the loop. A step sums, say, over the
columns of its state for one result and over the rows for another. A program holds some rows with all columns: what each
of them sums is stacked, and added up for all steps at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias, cast

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import converted, inserted, replaced
from fx_lsp.codegen.graph.loops import in_parts
from fx_lsp.codegen.graph.query import reduced_dimensions, slice_of, value_of
from fx_lsp.codegen.graph.slices import stacked
from fx_lsp.codegen.ir.ops import aliases_first, is_random, operation
from fx_lsp.codegen.ir.tile import AT_ONCE

aten = torch.ops.aten

SUMS = ("aten.sum.dim_IntList", "aten.sum.default")

_VIEWS = ("alias", "squeeze", "unsqueeze", "view", "_unsafe_view", "reshape", "expand")
"""What leaves elements in their order, or repeats them."""

Family: TypeAlias = "tuple[fx.Node, ...]"
"""A node of each step, in their order."""


def sums_in(node: fx.Node) -> Iterator[fx.Node]:
    """The sums that a node is made of by what can be done for all steps at once."""
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        if operation(current) in SUMS:
            yield current
        elif is_pointwise(current) or is_view(current):
            stack.extend(n for n in current.all_input_nodes if n not in seen)
            seen.update(current.all_input_nodes)


def is_pointwise(node: fx.Node) -> bool:
    """Whether a node computes element by element, the same each time."""
    tags: Any = getattr(node.target, "tags", ())
    known = torch.Tag.pointwise in tags or operation(node) == "prims.convert_element_type.default"
    return known and not is_random(node)


def is_view(node: fx.Node) -> bool:
    """Whether a node shows elements in their order, some of them repeatedly perhaps."""
    return operation(node).startswith(("aten.", "prims.")) and operation(node).split(".")[1] in _VIEWS


@dataclass
class Lifting:
    """Puts operations for all steps, along the first dimension, in the place of those of each: of the `late` sums and
    what is made of them. Those that are `begun` are left to the steps. What is known stands before what comes next."""

    graph: fx.Graph
    begun: set[fx.Node] = field(default_factory=set["fx.Node"])
    late: set[fx.Node] = field(default_factory=set["fx.Node"])
    known: dict[tuple[Family, bool], fx.Node | None] = field(default_factory=dict[Any, Any])

    def is_late(self, family: Family) -> bool:
        """Whether a family is made of late sums."""
        return any(s in self.late for node in family for s in sums_in(node))

    def replace(self, stack: fx.Node, dim: int, family: Family, alone: bool = False) -> None:
        """Put what is computed for all steps at once in the place of what stacks a family along a dimension, unless, if
        it is to be `alone`, there is nothing of the kind. A stack never becomes a view of an input or a result."""
        with self.graph.inserting_before(stack):
            found = self.lifted(family, alone) or (None if alone else self._stacked(family))
            if found is None or value_of(found).shape[0] != len(family) or _is_elsewhere(found):
                return
            found = self._moved(found, dim)
        replaced(self.graph, stack, found)

    def replace_each(self, family: Family) -> None:
        """Put what is computed for all steps at once in the place of each of a family that takes nothing of a state,
        unless some of them are results."""
        if any(u.op == "output" for n in family for u in n.users):
            return
        order = {n: k for k, n in enumerate(self.graph.nodes)}
        with self.graph.inserting_before(min(family, key=lambda n: order[n])):
            found = self.lifted(family, alone=True)
        if found is None or value_of(found).shape[0] != len(family):
            return
        for step, node in enumerate(family):
            with self.graph.inserting_before(node):
                replaced(self.graph, node, inserted(self.graph, node, aten.select.int, (found, 0, step)))

    def _moved(self, node: fx.Node, dim: int, user: fx.Node | None = None) -> fx.Node:
        """What a node, which is for `user`, is with its first dimension in another place."""
        source: Any = node.args[0] if dim and _is_for(node, user) and node.args else None
        if source is not None and operation(node) == "prims.convert_element_type.default":
            return converted(self.graph, node, self._moved(source, dim, node), value_of(node).dtype)
        if source is not None and operation(node) in SUMS:
            dims, rank = reduced_dimensions(node), value_of(source).dim()
            keep = value_of(node).dim() == rank
            order = _first_to(dim if keep else [d for d in range(rank) if d not in dims][dim], rank)
            source = inserted(self.graph, node, aten.permute.default, (source, order))
            over = [order.index(d) for d in dims]
            return inserted(self.graph, node, aten.sum.dim_IntList, (source, over, keep), node.kwargs)
        order = _first_to(dim, value_of(node).dim())
        return inserted(self.graph, node, aten.permute.default, (node, order)) if dim else node

    def lifted(self, family: Family, alone: bool = False) -> fx.Node | None:
        """A family along a new first dimension, which has one element where all are the same. None where there is no
        operation that makes it, or, if it is to be `alone`, where something would have to be stacked for that."""
        key = family, alone
        if key not in self.known:
            self.known[key] = self._shared(family) or self._selected(family) or self._applied(family, alone)
        return self.known[key]

    def _shared(self, family: Family) -> fx.Node | None:
        first = family[0]
        constant = first.op == "call_function" and not first.all_input_nodes and not is_random(first)
        if not all(n is first or (constant and _call(n) == _call(first)) for n in family):
            return None
        return inserted(self.graph, first, aten.unsqueeze.default, (first, 0))

    def _selected(self, family: Family) -> fx.Node | None:
        """What a family selects the elements of, one after the other."""
        found = [slice_of(n) for n in family]
        if found[0] is None:
            return None
        source, dim, at = found[0]
        size: Any = value_of(source).shape[dim]
        if not isinstance(size, int) or found != [(source, dim, at + k) for k in range(len(family))]:
            return None
        order = [dim, *(d for d in range(value_of(source).dim()) if d != dim)]
        if len(family) < size:
            source = inserted(self.graph, family[0], aten.slice.Tensor, (source, dim, at, at + len(family)))
        return inserted(self.graph, family[0], aten.permute.default, (source, order)) if dim else source

    def _applied(self, family: Family, alone: bool) -> fx.Node | None:
        """The operation that all of a family are, for all steps."""
        first = family[0]
        known = is_pointwise(first) or is_view(first) or operation(first) in SUMS
        if not known or first in self.begun or len({(n.target, len(n.args), repr(n.kwargs)) for n in family}) > 1:
            return None
        args: list[Any] = []
        for column in zip(*(n.args for n in family), strict=True):
            if not all(isinstance(a, fx.Node) for a in column):
                if any(a != column[0] for a in column):
                    return None
                args.append(column[0])
                continue
            nodes = cast("Family", column)
            made = self.lifted(nodes, alone or not self.is_late(nodes))
            if made is None and alone:
                return None
            args.append(made or self._stacked(nodes))
        return self._called(first, args, len(family))

    def _called(self, like: fx.Node, args: list[Any], steps: int) -> fx.Node | None:
        """What a node does, done for all steps with arguments for all of them; None where that gives something else."""
        value, rank = value_of(like), value_of(like).dim()
        if operation(like) == "aten.expand.default":
            found = inserted(self.graph, like, like.target, (self._wide(args[0], rank), [steps, *value.shape]))
        elif is_view(like):
            found = self._reshaped(args[0], (value_of(args[0]).shape[0], *value.shape))
        elif operation(like) in SUMS:
            dims = [d + 1 for d in reduced_dimensions(like)]
            keep = rank == value_of(args[0]).dim() - 1
            found = inserted(self.graph, like, aten.sum.dim_IntList, (args[0], dims, keep), like.kwargs)
        else:
            wide = tuple(self._wide(a, rank) if isinstance(a, fx.Node) else a for a in args)
            found = inserted(self.graph, like, like.target, wide, like.kwargs)
        made = value_of(found)
        fits = made.dtype == value.dtype and made.shape[1:] == value.shape and made.shape[0] in (1, steps)
        return found if fits else None

    def _wide(self, node: fx.Node, rank: int) -> fx.Node:
        """What is made for all steps, with as many dimensions for each of them."""
        own = value_of(node).shape
        if len(own) > rank:
            return node
        return self._reshaped(node, (own[0], *[1] * (rank + 1 - len(own)), *own[1:]))

    def _reshaped(self, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
        """A node in another shape; a sum drops what has one element itself."""
        known: Any = node.args[0] if operation(node) == "aten.reshape.default" else node
        if operation(known) in SUMS and _is_for(known, None if known is node else node):
            source: Any = known.args[0]
            ones = (d for d, size in enumerate(value_of(source).shape) if size == 1)
            over = sorted({*reduced_dimensions(known), *ones})
            found = inserted(self.graph, node, aten.sum.dim_IntList, (source, over, False), known.kwargs)
            if value_of(found).shape == shape:
                return found
        return inserted(self.graph, node, aten.reshape.default, (known, shape))

    def _stacked(self, family: Family) -> fx.Node:
        wide = [inserted(self.graph, n, aten.unsqueeze.default, (n, 0)) for n in family]
        return inserted(self.graph, family[0], aten.cat.default, (wide, 0), name=f"{family[0].name}_of_all")


def _is_elsewhere(node: fx.Node) -> bool:
    """Whether a node is, or is a view of, an input or a result."""
    while aliases_first(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node.op != "call_function" or any(u.op == "output" for u in node.users)


def _is_for(node: fx.Node, user: fx.Node | None) -> bool:
    """Whether nothing else takes a node."""
    return not set(node.users) - {user}


def _first_to(place: int, rank: int) -> list[int]:
    """The order of dimensions that has the first one at a place."""
    return [*range(1, place + 1), 0, *range(place + 1, rank)]


def _call(node: fx.Node) -> Any:
    return node.target, repr(node.args), repr(node.kwargs)


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
