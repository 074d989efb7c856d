"""What forward saves for backward: what a view shows in its place, and all steps of a loop in one tensor."""

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
    """The nodes that compute the same in each step of a loop, in the order of steps: `families`, with None where the
    first or the last step has none. `first` are all nodes of the first step."""

    families: tuple[tuple[fx.Node | None, ...], ...] = ()
    first: frozenset[fx.Node] = frozenset()

    def copied(self, copies: Mapping[fx.Node, fx.Node]) -> StepFamilies:
        """Return the same of copies of the nodes, as far as there are such."""
        families = tuple(tuple(copies.get(n) if n is not None else None for n in nodes) for nodes in self.families)
        return StepFamilies(families, frozenset(copies[n] for n in self.first if n in copies))


@dataclass
class SavedValues:
    """Which value of forward is which input of backward: `inputs` of backward, in the order in which forward returns
    what they are, behind its first `outputs` results.

    `copies` are the nodes of backward that have the value of a node of forward, by that: inputs, and what is computed
    again. They are known until forward or backward is rewritten apart from the other.
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
    """Yield inputs of backward that are neither gradients nor what forward returns in their places."""
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
    """What AOTAutograd gives a partitioner."""

    joint: fx.GraphModule
    inputs: Any
    options: Mapping[str, Any]


Partition: TypeAlias = "tuple[fx.Graph, fx.Graph, SavedValues, StepFamilies]"
"""Forward and backward, what they agree on, and the steps of a loop as forward has them."""


def partition_recomputing(call: PartitionCall, steps: StepFamilies) -> Partition:
    """Part a graph; backward computes again whatever is neither a product of matrices, a reduction nor random."""
    with functorch_config.patch({"aggressive_recomputation": True}):
        return _part(call, steps, min_cut_rematerialization_partition)


def partition_balancing(call: PartitionCall, steps: StepFamilies) -> Partition:
    """Part a graph as PyTorch does."""
    return _part(call, steps, min_cut_rematerialization_partition)


def partition_saving(call: PartitionCall, steps: StepFamilies) -> Partition:
    """Part a graph; backward computes nothing again."""
    return _part(call, steps, default_partition)


_ORIGIN = "fx_lsp_origin"
"""The number of a node in the joint graph, while that is parted: what a partitioner copies keeps it."""


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


def stack_saved(saved: SavedValues, steps: StepFamilies) -> None:
    """Have forward save in one tensor what it saves of each step, and backward take it from there."""
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
                part = insert_call(saved.backward, stacked, function, (stacked, *where))
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
    """Return what forward saves of the steps, or None where it does not save all. The last step may save nothing, and
    the first something else of the `first` step that is alike."""
    begin, *others = nodes if nodes[-1] in saved else nodes[:-1]
    family = [n for n in others if n is not None and n in saved]
    if len(family) < len(others):
        return None
    if begin not in saved:
        kind = _tensor_kind(family[0])
        begin = next((n for n in saved if n in first and _tensor_kind(n) == kind), None)
    family = [begin, *family] if begin is not None else family
    return family if len(family) >= len(nodes) - 2 else None


def _stack_of(parts: Sequence[fx.Node], forward: fx.Graph, output: fx.Node) -> tuple[fx.Node, list[tuple[Any, ...]]]:
    """Return the tensor that has all parts, which forward joins if it does not yet, and its slices that they are."""
    stack, slices = _existing_stack(parts)
    if stack is None:
        with forward.inserting_before(output):
            wide = [insert_call(forward, p, aten.unsqueeze.default, (p, 0)) for p in parts]
            stack = insert_call(forward, parts[-1], aten.cat.default, (wide, 0))
        stack.name = f"{parts[0].name}_of_all"
        slices = [(aten.select.int, 0, step) for step in range(len(parts))]
    return stack, slices


def _stack_input(saved: SavedValues, stack: fx.Node, first: fx.Node) -> fx.Node:
    """Insert the input of backward that a stack is, before the one for what is stacked `first`."""
    with saved.backward.inserting_before(first):
        stacked = saved.backward.placeholder(stack.name)
    stacked.meta = {**first.meta, "val": stack.meta["val"]}
    stacked.name = stack.name
    return stacked


def save_bases(saved: SavedValues) -> None:
    """Have forward save what a view shows in its place, and backward make the view."""
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
