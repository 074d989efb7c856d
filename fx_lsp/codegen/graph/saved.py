"""What forward saves for backward: what a view shows in its place, and all steps of a loop in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.graph.edit import inserted, tidied
from fx_lsp.codegen.graph.query import argument, dimension, is_view
from fx_lsp.codegen.ir.index import Index, count, expression
from fx_lsp.codegen.ir.ops import operation

aten = torch.ops.aten


@dataclass(frozen=True)
class Families:
    """The names of nodes that are the same in each step, in their order, or "" where the first or the last has none.

    `first` are the names of all nodes of the first step.
    """

    names: tuple[tuple[str, ...], ...]
    first: frozenset[str]


def _kind(result: Any) -> Any:
    """What two results have in common that may be rows of one tensor."""
    value = result.meta["val"] if isinstance(result, fx.Node) else None
    return (value.dtype, value.shape, value.device) if isinstance(value, torch.Tensor) else None


def _joined(parts: Sequence[fx.Node]) -> tuple[fx.Node | None, list[tuple[Any, ...]]]:
    """A tensor that forward joins all parts in, and the slices of it that they are; None where there is no such."""
    for user in parts[0].users:
        unsqueezed = operation(user) == "aten.unsqueeze.default"
        for cat in [u for u in user.users if operation(u) == "aten.cat.default"] if unsqueezed else [user]:
            if operation(cat) != "aten.cat.default":
                continue
            given: Any = cat.args[0]
            dim = dimension(argument(cat, 1, "dim", 0), cat.meta["val"].dim())
            start, slices = 0, dict[fx.Node, tuple[Any, ...]]()
            for each in given:
                size = each.meta["val"].shape[dim]
                if operation(each) == "aten.unsqueeze.default" and each.args[1] % each.meta["val"].dim() == dim:
                    slices[each.args[0]] = aten.select.int, dim, start
                slices[each] = aten.slice.Tensor, dim, start, start + size
                start += size
            if all(p in slices for p in parts):
                return cat, [slices[p] for p in parts]
    return None, []


def stack_saved(forward: fx.Graph, backward: fx.Graph, families: Families) -> None:
    """Have forward save in one tensor what it saves of each step, and backward take it from there."""
    output = next(n for n in reversed(forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] | None = list(output.meta["desc"]) if "desc" in output.meta else None
    taken = {n.name: n for n in backward.nodes if n.op == "placeholder"}
    first = families.first - {name for family in families.names for name in family}
    for named in families.names:
        at = {r.name: k for k, r in enumerate(results) if isinstance(r, fx.Node) and r.name in taken}
        family = named if named[-1] in at else named[:-1]
        if not all(name in at for name in family[1:]):
            continue
        if family[0] not in at:
            wanted = _kind(results[at[family[1]]])
            like = [n for n in at if n in first and _kind(results[at[n]]) == wanted]
            family = (*like[:1], *family[1:])
        if len(family) < len(named) - 2:
            continue
        parts = [results[at[name]] for name in family]
        saved, slices = _joined(parts)
        if saved is None:
            with forward.inserting_before(output):
                wide = [inserted(forward, p, aten.unsqueeze.default, (p, 0)) for p in parts]
                saved = inserted(forward, parts[-1], aten.cat.default, (wide, 0))
            saved.name = f"{family[0]}_of_all"
            slices = [(aten.select.int, 0, step) for step in range(len(parts))]
        stacked = taken.get(saved.name)
        if stacked is None:
            with backward.inserting_before(taken[family[0]]):
                stacked = backward.placeholder(saved.name)
            stacked.meta = {**taken[family[0]].meta, "val": saved.meta["val"]}
            stacked.name = saved.name
        for name, (function, *where) in zip(family, slices, strict=True):
            with backward.inserting_after(taken[name]):
                part = inserted(backward, stacked, function, (stacked, *where))
            taken[name].replace_all_uses_with(part)
            backward.erase_node(taken[name])
            part.name = name
        first_at, gone = at[family[0]], {at[name] for name in family[1:]}
        results[first_at] = saved
        results = [r for k, r in enumerate(results) if k not in gone]
        described = [d for k, d in enumerate(described) if k not in gone] if described is not None else None
        taken = {n.name: n for n in backward.nodes if n.op == "placeholder"}
    output.args = (tuple(results),)
    if described is not None:
        output.meta["desc"] = described
    tidied(backward)


def save_bases(forward: fx.Graph, backward: fx.Graph) -> None:
    """Have forward save what a view shows in its place, and backward make the view.

    Forward returns what backward takes under the same names.
    """
    output = next(n for n in reversed(forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] = list(output.meta.get("desc", ()))
    known = {n.name: n for n in backward.nodes}
    for view in [r for r in results if isinstance(r, fx.Node) and r.name in known]:
        base, *chain = _chain(view)
        place = known[view.name]
        if not chain or place.op != "placeholder" or known.get(base.name, place).op != "placeholder":
            continue
        at = max(k for k, r in enumerate(results) if r is view)
        if base.name in known:
            del results[at], described[at : at + 1]
        else:
            results[at] = base
            with backward.inserting_before(place):
                known[base.name] = _as(backward.placeholder(base.name), base)
        made, first = known[base.name], next(n for n in backward.nodes if n.op != "placeholder")
        with backward.inserting_before(first):
            for each in chain:
                made = backward.node_copy(each, lambda _, source=made: source)
        place.replace_all_uses_with(made)
        backward.erase_node(place)
        known[view.name] = _as(made, view)
    output.args = (tuple(results),)
    if described:
        output.meta["desc"] = described


def _chain(view: fx.Node) -> list[fx.Node]:
    """What a node is a view of that takes no more memory, the views on the way to it, and the node."""
    found, kept = [view], 1
    while len(found[-1].all_input_nodes) == 1 and (
        is_view(found[-1]) or operation(found[-1]) == "aten.reshape.default"
    ):
        base = found[-1].all_input_nodes[0]
        found.append(base)
        if base.op == "placeholder" or (_takes(view) - _takes(base)).is_nonnegative:
            kept = len(found)
    return found[:kept][::-1]


def _as(node: fx.Node, other: fx.Node) -> fx.Node:
    """A node with the name and the properties of one of another graph."""
    node.meta, node.name = dict(other.meta), other.name
    return node


def _takes(node: fx.Node) -> Index:
    """How many elements a node has."""
    return count([expression(s) for s in node.meta["val"].shape])
