"""Finish AOTAutograd's graphs for the library: readable names, no `detach`, and a module with their constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.fx.node import map_arg

from fx_lsp.tracer.capture.aot import Captured
from fx_lsp.tracer.run.call import FlatInput
from fx_lsp.tracer.source.names import identifier
from fx_lsp.tracer.source.provenance import KEY

aten = torch.ops.aten


def inference_graph(captured: Captured) -> torch.fx.Graph:
    """Return the inference graph of a capture."""
    assert captured.inference is not None
    _without_detach(captured.inference.graph)
    _complete(captured.inference.graph, captured.inputs)
    return _copied(captured.inference, captured, {})


def forward_and_backward_graphs(captured: Captured, apart: Collection[int]) -> tuple[torch.fx.Graph, torch.fx.Graph]:
    """Return the two graphs of a capture: the last results of forward are the first inputs of backward, in that order.

    `apart` are the positions of the results that were cloned for the trace.
    """
    assert captured.forward is not None and captured.backward is not None
    forward, backward = captured.forward.graph, captured.backward.graph
    saved = [n for n in backward.find_nodes(op="placeholder") if not n.name.startswith("tangents")]
    _reorder_saved(forward, saved)
    first = len(_results(forward)) - len(saved)
    _unclone(forward, first - len(captured.outputs), apart)
    _without_detach(forward)
    _without_detach(backward)
    _complete(forward, captured.inputs, backward)
    names = captured.names
    assert names is not None
    wishes = {p.name: names[v] for p, v in zip(saved, _results(forward)[first:], strict=True)}
    for gradient, item in zip(_results(backward), captured.inputs, strict=True):
        if isinstance(gradient, torch.fx.Node):  # a torch without descriptors does not describe it
            wishes.setdefault(gradient.name, f"grad_{identifier(item.name)}")
    return _copied(captured.forward, captured, {}), _copied(captured.backward, captured, wishes)


def _results(graph: torch.fx.Graph) -> list[Any]:
    return list(graph.output_node().args[0])  # type: ignore[arg-type]


def _return(graph: torch.fx.Graph, results: Sequence[Any]) -> None:
    graph.output_node().args = (tuple(results),)


def _reorder_saved(forward: torch.fx.Graph, saved: Sequence[torch.fx.Node]) -> None:
    """Reorder the saved values in forward's results to the order of backward's inputs (sizes come first there)."""
    results = _results(forward)
    first = len(results) - len(saved)
    by_name = {value.name: value for value in results[first:]}
    if set(by_name) == {node.name for node in saved}:
        _return(forward, [*results[:first], *(by_name[node.name] for node in saved)])


def _unclone(forward: torch.fx.Graph, offset: int, apart: Collection[int]) -> None:
    """Return the originals in place of clones that were added for the trace."""
    results = _results(forward)
    for index in apart:
        clone = results[offset + index]
        if isinstance(clone, torch.fx.Node) and clone.target is aten.clone.default:
            results[offset + index] = clone.args[0]
    _return(forward, results)
    for node in forward.find_nodes(op="call_function", target=aten.clone.default):
        if not node.users:
            forward.erase_node(node)


def _without_detach(graph: torch.fx.Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=aten.detach.default):
        node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
        graph.erase_node(node)


def _complete(graph: torch.fx.Graph, inputs: Sequence[FlatInput], backward: torch.fx.Graph | None = None) -> None:
    """Add placeholders if AOTAutograd has one for an input that is passed twice and written into.

    The other has no separate gradient.
    """
    present = graph.find_nodes(op="placeholder")
    if len(present) == len(inputs):
        return
    order = [id(item.tensor) for item in inputs]
    assert len(present) == len(dict.fromkeys(order)), "AOTAutograd has merged inputs that share memory"
    gradients = _results(backward) if backward is not None else []
    remaining = iter(present)
    last: torch.fx.Node | None = None
    for index, key in enumerate(order):
        if key not in order[:index]:
            last = next(remaining)
            continue
        assert last is not None
        with graph.inserting_after(last):
            last = graph.placeholder(identifier(inputs[index].name))
        last.meta["val"] = inputs[index].tensor
        gradients.insert(index, None)
    if backward is not None:
        _return(backward, gradients)


def _copied(module: torch.fx.GraphModule, captured: Captured, wishes: Mapping[str, str]) -> torch.fx.Graph:
    """Return the graph of `module` with the names of the source, in a new module with its attributes.

    `wishes` are the names of the nodes that backward takes.
    """
    names = captured.names
    assert names is not None
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in module.graph.nodes:
        args, kwargs = (map_arg(a, copies.__getitem__) for a in (node.args, node.kwargs))
        wish = wishes.get(node.name) or names[node]
        copy = copies[node] = graph.create_node(node.op, node.target, args, kwargs, wish, node.type)
        copy.meta = {**node.meta, "spans": names.chain(node)}
        custom = {k: v for k, v in copy.meta.pop("custom", {}).items() if k != KEY}
        if custom:
            copy.meta["custom"] = custom
        if node.op == "placeholder":
            copy.target = copy.name
            copy.meta["kind"], copy.meta["input"] = _origin(node, len(copies) - 1, captured, wish)
    attributes = {n.target: _attribute(module, n.target) for n in graph.find_nodes(op="get_attr")}
    torch.fx.GraphModule(attributes, graph, "Graph")
    return graph


def _origin(node: torch.fx.Node, position: int, captured: Captured, name: str) -> tuple[str, str]:
    """Return the kind of a placeholder, and its name in source notation."""
    if captured.backward is None or node.graph is not captured.backward.graph:
        return captured.inputs[position].kind, captured.inputs[position].name
    return "tangent" if node.name.startswith("tangents") else "saved", name


def _attribute(module: torch.nn.Module, path: Any) -> Any:
    value: Any = module
    for part in str(path).split("."):
        value = getattr(value, part)
    return value
