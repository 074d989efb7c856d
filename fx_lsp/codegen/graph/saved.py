"""What forward saves for backward: what a view shows in its place, and all steps of a loop in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch import fx
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

from fx_lsp.codegen.graph.edit import insert_call, sort_graph
from fx_lsp.codegen.graph.query import argument, dimension, is_view
from fx_lsp.codegen.ir.index import Index, count, expression
from fx_lsp.codegen.ir.ops import operation

aten = torch.ops.aten


@dataclass(frozen=True)
class StepFamilies:
    """The names of nodes that are the same in each step, in their order, or "" where the first or the last has none.

    `first` are the names of all nodes of the first step.
    """

    names: tuple[tuple[str, ...], ...] = ()
    first: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PartitionCall:
    """What AOTAutograd gives a partitioner."""

    joint: fx.GraphModule
    inputs: Any
    options: Mapping[str, Any]


def partition_recomputing(call: PartitionCall) -> tuple[fx.Graph, fx.Graph]:
    """Part a graph; backward computes again whatever is neither a product of matrices, a reduction nor random."""
    with functorch_config.patch({"aggressive_recomputation": True}):
        return _parts(call, min_cut_rematerialization_partition)


def partition_balancing(call: PartitionCall) -> tuple[fx.Graph, fx.Graph]:
    """Part a graph as PyTorch does."""
    return _parts(call, min_cut_rematerialization_partition)


def partition_saving(call: PartitionCall) -> tuple[fx.Graph, fx.Graph]:
    """Part a graph; backward computes nothing again."""
    return _parts(call, default_partition)


def _parts(call: PartitionCall, partitioner: Callable[..., Sequence[fx.GraphModule]]) -> tuple[fx.Graph, fx.Graph]:
    call.joint.recompile()
    forward, backward = partitioner(call.joint, call.inputs, **call.options)
    return forward.graph, backward.graph


def _tensor_kind(result: Any) -> Any:
    """Return a key that results have in common which may be rows of one tensor."""
    value = result.meta["val"] if isinstance(result, fx.Node) else None
    return (value.dtype, value.shape, value.device) if isinstance(value, torch.Tensor) else None


def _existing_stack(parts: Sequence[fx.Node]) -> tuple[fx.Node | None, list[tuple[Any, ...]]]:
    """Return a tensor that forward joins all parts in, and the slices of it that they are; None where there is no
    such."""
    for user in parts[0].users:
        unsqueezed = operation(user) == "aten.unsqueeze.default"
        for cat in [u for u in user.users if operation(u) == "aten.cat.default"] if unsqueezed else [user]:
            if operation(cat) != "aten.cat.default":
                continue
            joined: Any = cat.args[0]
            dim = dimension(argument(cat, 1, "dim", 0), cat.meta["val"].dim())
            start, slices = 0, dict[fx.Node, tuple[Any, ...]]()
            for each in joined:
                size = each.meta["val"].shape[dim]
                if operation(each) == "aten.unsqueeze.default" and each.args[1] % each.meta["val"].dim() == dim:
                    slices[each.args[0]] = aten.select.int, dim, start
                slices[each] = aten.slice.Tensor, dim, start, start + size
                start += size
            if all(p in slices for p in parts):
                return cat, [slices[p] for p in parts]
    return None, []


def stack_saved(forward: fx.Graph, backward: fx.Graph, families: StepFamilies) -> None:
    """Have forward save in one tensor what it saves of each step, and backward take it from there."""
    output = next(n for n in reversed(forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] | None = list(output.meta["desc"]) if "desc" in output.meta else None
    placeholders = {n.name: n for n in backward.nodes if n.op == "placeholder"}
    first = families.first - {name for family in families.names for name in family}
    for names in families.names:
        at = {r.name: k for k, r in enumerate(results) if isinstance(r, fx.Node) and r.name in placeholders}
        family = _saved_family(names, at, first, results)
        if family is None:
            continue
        saved, slices = _stack_of([results[at[name]] for name in family], forward, output)
        _take_from_stack(backward, placeholders, saved, list(zip(family, slices, strict=True)))
        first_at, gone = at[family[0]], {at[name] for name in family[1:]}
        results[first_at] = saved
        results = _without(results, gone)
        described = _without(described, gone) if described is not None else None
        placeholders = {n.name: n for n in backward.nodes if n.op == "placeholder"}
    output.args = (tuple(results),)
    if described is not None:
        output.meta["desc"] = described
    sort_graph(backward)


def _without(values: Sequence[Any], places: Collection[int]) -> list[Any]:
    """Return values without those at some places."""
    return [value for place, value in enumerate(values) if place not in places]


def _saved_family(
    names: tuple[str, ...], at: Mapping[str, int], first: Collection[str], results: Sequence[Any]
) -> tuple[str, ...] | None:
    """Return the names of what forward saves of the steps, or None where it does not save all. The last step may save
    nothing, and the first something else of the `first` step that is alike. `at` are the places of results."""
    family = names if names[-1] in at else names[:-1]
    if not all(name in at for name in family[1:]):
        return None
    if family[0] not in at:
        kind = _tensor_kind(results[at[family[1]]])
        like = [n for n in at if n in first and _tensor_kind(results[at[n]]) == kind]
        family = (*like[:1], *family[1:])
    return family if len(family) >= len(names) - 2 else None


def _stack_of(parts: list[fx.Node], forward: fx.Graph, output: fx.Node) -> tuple[fx.Node, list[tuple[Any, ...]]]:
    """Return the tensor that has all parts, which forward joins if it does not yet, and its slices that they are."""
    saved, slices = _existing_stack(parts)
    if saved is None:
        with forward.inserting_before(output):
            wide = [insert_call(forward, p, aten.unsqueeze.default, (p, 0)) for p in parts]
            saved = insert_call(forward, parts[-1], aten.cat.default, (wide, 0))
        saved.name = f"{parts[0].name}_of_all"
        slices = [(aten.select.int, 0, step) for step in range(len(parts))]
    return saved, slices


def _take_from_stack(
    backward: fx.Graph,
    placeholders: Mapping[str, fx.Node],
    saved: fx.Node,
    slices: Sequence[tuple[str, tuple[Any, ...]]],
) -> None:
    """Have backward take slices, by the name of what each stands for, of a tensor that forward saves."""
    first = placeholders[slices[0][0]]
    stacked = placeholders.get(saved.name)
    if stacked is None:
        with backward.inserting_before(first):
            stacked = backward.placeholder(saved.name)
        stacked.meta = {**first.meta, "val": saved.meta["val"]}
        stacked.name = saved.name
    for name, (function, *where) in slices:
        with backward.inserting_after(placeholders[name]):
            part = insert_call(backward, stacked, function, (stacked, *where))
        placeholders[name].replace_all_uses_with(part)
        backward.erase_node(placeholders[name])
        part.name = name


def save_bases(forward: fx.Graph, backward: fx.Graph) -> None:
    """Have forward save what a view shows in its place, and backward make the view.

    Forward returns what backward takes under the same names.
    """
    output = next(n for n in reversed(forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] = list(output.meta.get("desc", ()))
    backward_nodes = {n.name: n for n in backward.nodes}
    for view in [r for r in results if isinstance(r, fx.Node) and r.name in backward_nodes]:
        base, *chain = _saved_chain(view)
        place = backward_nodes[view.name]
        if not chain or place.op != "placeholder" or backward_nodes.get(base.name, place).op != "placeholder":
            continue
        at = max(k for k, r in enumerate(results) if r is view)
        if base.name in backward_nodes:
            del results[at], described[at : at + 1]
        else:
            results[at] = base
            with backward.inserting_before(place):
                backward_nodes[base.name] = _with_identity(backward.placeholder(base.name), base)
        copy, first = backward_nodes[base.name], next(n for n in backward.nodes if n.op != "placeholder")
        with backward.inserting_before(first):
            for each in chain:
                copy = backward.node_copy(each, lambda _, source=copy: source)
        place.replace_all_uses_with(copy)
        backward.erase_node(place)
        backward_nodes[view.name] = _with_identity(copy, view)
    output.args = (tuple(results),)
    if described:
        output.meta["desc"] = described


def _saved_chain(view: fx.Node) -> list[fx.Node]:
    """Return the base that takes no more memory than `view`, the views on the way, and `view`."""
    chain, length = [view], 1
    while len(chain[-1].all_input_nodes) == 1 and (
        is_view(chain[-1]) or operation(chain[-1]) == "aten.reshape.default"
    ):
        base = chain[-1].all_input_nodes[0]
        chain.append(base)
        if base.op == "placeholder" or (_element_count(view) - _element_count(base)).is_nonnegative:
            length = len(chain)
    return chain[:length][::-1]


def _with_identity(node: fx.Node, other: fx.Node) -> fx.Node:
    """Return a node with the name and the properties of one of another graph."""
    node.meta, node.name = dict(other.meta), other.name
    return node


def _element_count(node: fx.Node) -> Index:
    """Return the number of elements of a node."""
    return count([expression(s) for s in node.meta["val"].shape])
