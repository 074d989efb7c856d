"""Transform the values saved for backward: the base in place of a view, and all steps of a loop in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import torch
import torch._functorch.config as functorch_config
from torch import fx
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

from fx_lsp.codegen.graph.edit import insert_call, replace_node, sort_graph
from fx_lsp.codegen.graph.query import argument, dimension, graph_results, is_tangent, is_view, symbolic_shape
from fx_lsp.codegen.ir.index import Index, count, expression
from fx_lsp.codegen.ir.lowerings import operation

aten = torch.ops.aten


@dataclass(frozen=True)
class StepFamilies:
    """Hold the nodes with the same computation in each step of a loop, in order: `families`, with None for a missing
    first or last step. `first` are all nodes of the first step.
    """

    families: tuple[tuple[fx.Node | None, ...], ...] = ()
    first: frozenset[fx.Node] = frozenset()

    def copied(self, copies: Mapping[fx.Node, fx.Node]) -> StepFamilies:
        """Return the families of copied nodes, with None for nodes without a copy."""
        families = tuple(tuple(copies.get(n) if n is not None else None for n in nodes) for nodes in self.families)
        return StepFamilies(families, frozenset(copies[n] for n in self.first if n in copies))


@dataclass
class SavedValues:
    """Map values of forward to inputs of backward: `inputs` of backward, in the order of the values after forward's
    first `outputs` results.

    `copies` are the nodes of backward with the value of a node of forward, by that node: inputs, and recomputed values.
    They are known until forward or backward is rewritten separately.
    """

    forward: fx.Graph
    backward: fx.Graph
    outputs: int
    inputs: list[fx.Node]
    copies: dict[fx.Node, fx.Node]

    def by_input(self, results: Sequence[fx.Node | None]) -> dict[fx.Node, fx.Node]:
        """Return the results of forward that backward takes, by its inputs."""
        pairs = zip(self.inputs, results[self.outputs :], strict=True)
        return {node: result for node, result in pairs if result is not None}


def disagreeing_inputs(saved: SavedValues) -> Iterator[fx.Node]:
    """Yield inputs of backward that are neither gradients nor forward's results in their places."""
    results = graph_results(saved.forward)[saved.outputs :]
    value_of = dict(zip(saved.inputs, results, strict=False))
    for node in [n for n in saved.backward.nodes if n.op == "placeholder"]:
        value = value_of.pop(node, None)
        if value is None and is_tangent(node):
            continue
        if value is None or _spec(value) != _spec(node):
            yield node
    yield from value_of
    yield from results[len(saved.inputs) :]


def _spec(node: fx.Node) -> Any:
    value = node.meta["val"]
    return (symbolic_shape(value), value.dtype) if isinstance(value, torch.Tensor) else type(value)


@dataclass(frozen=True)
class PartitionCall:
    """Hold AOTAutograd's arguments of a partitioner."""

    joint: fx.GraphModule
    inputs: Any
    options: Mapping[str, Any]


Partition: TypeAlias = "tuple[fx.Graph, fx.Graph, SavedValues, StepFamilies]"
"""Forward and backward, the values saved between them, and the steps of a loop in forward."""


def partition_recomputing(call: PartitionCall, steps: StepFamilies) -> Partition:
    """Split a graph; backward recomputes everything except matrix products, reductions and random values."""
    with functorch_config.patch({"aggressive_recomputation": True}):
        return _part(call, steps, min_cut_rematerialization_partition)


def partition_balancing(call: PartitionCall, steps: StepFamilies) -> Partition:
    """Split a graph as PyTorch does."""
    return _part(call, steps, min_cut_rematerialization_partition)


def partition_saving(call: PartitionCall, steps: StepFamilies) -> Partition:
    """Split a graph; backward recomputes nothing."""
    return _part(call, steps, default_partition)


_ORIGIN = "fx_lsp_origin"
"""The number of a node in the joint graph, during partitioning: a partitioner's copies keep it."""


def _part(
    call: PartitionCall, steps: StepFamilies, partitioner: Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
) -> Partition:
    nodes = list(call.joint.graph.nodes)
    for number, node in enumerate(nodes):
        node.meta[_ORIGIN] = number
    call.joint.recompile()
    forward, backward = (module.graph for module in partitioner(call.joint, call.inputs, **call.options))
    in_forward, in_backward = ({n.meta.get(_ORIGIN): n for n in graph.nodes} for graph in (forward, backward))
    outputs = call.options["num_fwd_outputs"]
    in_both = in_forward.keys() & in_backward.keys() - {None}
    copies = {in_forward[number]: in_backward[number] for number in in_both}
    saved = SavedValues(forward, backward, outputs, [copies[r] for r in graph_results(forward)[outputs:]], copies)
    steps = steps.copied({node: in_forward[number] for number, node in enumerate(nodes) if number in in_forward})
    for node in (*nodes, *forward.nodes, *backward.nodes):
        node.meta.pop(_ORIGIN, None)
    return forward, backward, saved, steps


def _tensor_kind(result: Any) -> Any:
    """Return a key shared by results that can be rows of one tensor."""
    value = result.meta["val"] if isinstance(result, fx.Node) else None
    return (value.dtype, value.shape, value.device) if isinstance(value, torch.Tensor) else None


def _existing_stack(parts: Sequence[fx.Node]) -> tuple[fx.Node | None, list[tuple[Any, ...]]]:
    """Return a tensor in which forward joins all parts, and their slices of it; None if there is no such tensor."""
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


def stack_saved(saved: SavedValues, steps: StepFamilies) -> None:
    """Save the values of all steps in one tensor in forward, and read slices of it in backward."""
    output = next(n for n in reversed(saved.forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] | None = list(output.meta["desc"]) if "desc" in output.meta else None
    first = steps.first - {node for nodes in steps.families for node in nodes}
    for nodes in steps.families:
        of_backward = set(results[saved.outputs :])
        places = {r: k for k, r in enumerate(results) if r in of_backward}
        family = _saved_family(nodes, places, first)
        if family is None:
            continue
        stack, slices = _stack_of(family, saved.forward, output)
        if stack not in places:
            saved.copies[stack] = _stack_input(saved, stack, saved.copies[family[0]])
        stacked, place = saved.copies[stack], min(places[family[0]], places.get(stack, len(results)))
        results[place], saved.inputs[place - saved.outputs] = stack, stacked
        for node, (function, *where) in zip(family, slices, strict=True):
            with saved.backward.inserting_after(saved.copies[node]):
                part = insert_call(stacked, function, (stacked, *where))
            replace_node(saved.backward, saved.copies[node], part)
            saved.copies[node] = part
        gone = {places[node] for node in (*family, stack) if node in places} - {place}
        results = _without(results, gone)
        saved.inputs = _without(saved.inputs, {k - saved.outputs for k in gone})
        described = _without(described, gone) if described is not None else None
    output.args = (tuple(results),)
    if described is not None:
        output.meta["desc"] = described
    sort_graph(saved.backward)


T = TypeVar("T")


def _without(values: Sequence[T], places: Collection[int]) -> list[T]:
    """Return values without those at some places."""
    return [value for place, value in enumerate(values) if place not in places]


def _saved_family(
    nodes: Sequence[fx.Node | None], saved: Collection[fx.Node], first: Collection[fx.Node]
) -> list[fx.Node] | None:
    """Return the values of the steps that forward saves, or None if it does not save all. The last two steps may save
    nothing, and the first another, similar value of the `first` step.
    """
    begin, *others = nodes
    while others and others[-1] not in saved:
        others.pop()
    family = [n for n in others if n is not None and n in saved]
    if len(family) < max(len(others), 1):
        return None
    if begin not in saved:
        kind = _tensor_kind(family[0])
        begin = next((n for n in saved if n in first and _tensor_kind(n) == kind), None)
    family = [begin, *family] if begin is not None else family
    return family if len(family) >= len(nodes) - 3 else None


def _stack_of(parts: Sequence[fx.Node], forward: fx.Graph, output: fx.Node) -> tuple[fx.Node, list[tuple[Any, ...]]]:
    """Return the tensor with all parts, which forward joins if necessary, and their slices of it."""
    stack, slices = _existing_stack(parts)
    if stack is None:
        with forward.inserting_before(output):
            wide = [insert_call(p, aten.unsqueeze.default, (p, 0)) for p in parts]
            stack = insert_call(parts[-1], aten.cat.default, (wide, 0))
        stack.name = f"{parts[0].name}_of_all"
        slices = [(aten.select.int, 0, step) for step in range(len(parts))]
    return stack, slices


def _stack_input(saved: SavedValues, stack: fx.Node, first: fx.Node) -> fx.Node:
    """Insert the input of backward for a stack, before the input for its `first` part."""
    with saved.backward.inserting_before(first):
        stacked = saved.backward.placeholder(stack.name)
    stacked.meta = {**first.meta, "val": stack.meta["val"]}
    return stacked


def save_bases(saved: SavedValues) -> None:
    """Save the base of a view in forward, and create the view in backward."""
    backward, copies = saved.backward, saved.copies
    output = next(n for n in reversed(saved.forward.nodes) if n.op == "output")
    results: list[Any] = list(output.args[0])  # pyright: ignore[reportArgumentType]
    described: list[Any] = list(output.meta.get("desc", ()))
    for view in [r for r in results if r in copies]:
        base, *chain = _saved_chain(view)
        place = copies[view]
        if not chain or place.op != "placeholder" or copies.get(base, place).op != "placeholder":
            continue
        at = max(k for k, r in enumerate(results) if r is view)
        if base in copies:
            del results[at], described[at : at + 1], saved.inputs[at - saved.outputs]
        else:
            with backward.inserting_before(place):
                copies[base] = _with_identity(backward.placeholder(base.name), base)
            results[at], saved.inputs[at - saved.outputs] = base, copies[base]
        copy, first = copies[base], next(n for n in backward.nodes if n.op != "placeholder")
        with backward.inserting_before(first):
            for each in chain:
                copy = backward.node_copy(each, lambda _, source=copy: source)
        place.replace_all_uses_with(copy)
        backward.erase_node(place)
        copies[view] = _with_identity(copy, view)
    output.args = (tuple(results),)
    if described:
        output.meta["desc"] = described


def _saved_chain(view: fx.Node) -> list[fx.Node]:
    """Return the base that takes no more memory than `view`, the views between them, and `view`."""
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
