"""The same operation in each step of a loop over time, as one operation for all steps at once."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch
from torch import fx

from fx_lsp.codegen.edits import converted, inserted, replaced
from fx_lsp.codegen.lowerings.reductions import reduced_dimensions
from fx_lsp.codegen.lowerings.views import argument
from fx_lsp.codegen.registry import aliases_first, is_random, operation

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


def slice_of(node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """Of what a node is a slice, along which dimension, and which; None where it is none whose number is known."""
    taken: Any = node.args[0] if node.target is operator.getitem else None
    if operation(node) == "aten.select.int":
        source, dim, index = cast("tuple[fx.Node, int, Any]", node.args)
    elif isinstance(taken, fx.Node) and operation(taken) == "aten.unbind.int":
        source, index = cast("tuple[fx.Node, int]", (taken.args[0], node.args[1]))
        dim = argument(taken, 1, "dim", 0)
    else:
        return None
    size: Any = value_of(source).shape[dim]
    if not isinstance(index, int) or (index < 0 and not isinstance(size, int)):
        return None
    return source, dim % value_of(source).dim(), index if index >= 0 else index + size


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


def value_of(node: Any) -> torch.Tensor:
    """The tensor that a node is, as it was traced."""
    return node.meta["val"]


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
