"""Provide the graphs of a target for passes: whole graph modules, with the names of the trace."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from fx_lsp.tracer.capture.aot import CaptureOptions, capture
from fx_lsp.tracer.capture.decompositions import find_table
from fx_lsp.tracer.capture.graphs import Names, value_spec
from fx_lsp.tracer.capture.node_values import value_of
from fx_lsp.tracer.capture.torch_graph import named, symbolic_graph
from fx_lsp.tracer.compat import FakeTensorMode, min_cut_partition
from fx_lsp.tracer.program.effects import forbid_effects

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall


@dataclass(frozen=True)
class PassGraph:
    """Hold an independent graph module, and the `title` of its stage."""

    module: fx.GraphModule
    names: Names
    title: str


class NoGraph(ValueError):
    """A target has no such graph; the message says so."""


GRAPHS: dict[str, Callable[[TracedCall], PassGraph]] = {}
"""The graphs that a pass can run on, by the name of the stage."""


def pass_graph(traced: TracedCall, name: str) -> PassGraph:
    """Return the graph `name` of a target. Raises NoGraph if there is none, and the errors of its capture."""
    make = GRAPHS.get(name)
    if make is None:
        raise NoGraph(f"there is no graph {name!r} to run a pass on; there are {', '.join(GRAPHS)}")
    with forbid_effects():
        return make(traced)


def _graph(name: str) -> Callable[[Callable[[TracedCall], PassGraph]], Callable[[TracedCall], PassGraph]]:
    def register(make: Callable[[TracedCall], PassGraph]) -> Callable[[TracedCall], PassGraph]:
        GRAPHS[name] = make
        return make

    return register


@_graph("inference")
def _inference(traced: TracedCall) -> PassGraph:
    return _captured(traced, "AOTAutograd without differentiation: the ATen graph", None)


@_graph("core")
def _core(traced: TracedCall) -> PassGraph:
    return _captured(traced, "the ATen graph in core ATen operations", find_table("core"))


@_graph("torch")
def _torch(traced: TracedCall) -> PassGraph:
    module = symbolic_graph(traced.call, traced.mode, traced.sources)
    return PassGraph(module, named(module.graph, (), traced.new_names()), "as written: torch.fx.symbolic_trace")


@_graph("joint")
def _joint(traced: TracedCall) -> PassGraph:
    return _part(traced, "joint", "AOTAutograd: forward and backward in one graph")


@_graph("forward")
def _forward(traced: TracedCall) -> PassGraph:
    return _part(traced, "forward", "AOTAutograd: min-cut partition, forward")


@_graph("backward")
def _backward(traced: TracedCall) -> PassGraph:
    return _part(traced, "backward", "AOTAutograd: min-cut partition, backward")


def _captured(traced: TracedCall, title: str, decompositions: dict[Any, Callable[..., Any]] | None) -> PassGraph:
    names = traced.new_names()
    captured = capture(traced.call, traced.sources, names, CaptureOptions(False, traced.symbolic, decompositions))
    assert captured.inference is not None
    return PassGraph(copied_module(captured.inference), names, title)


def _part(traced: TracedCall, which: str, title: str) -> PassGraph:
    """Return a graph of the differentiated target. Raises NoGraph if nothing is differentiable."""
    if traced.captured.inference is not None:
        why = "cannot be differentiated" if traced.captured.refused else "has nothing to differentiate"
        raise NoGraph(f"there is no {which} graph: {traced.request.name} {why}")
    seen: list[fx.GraphModule] = []

    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        seen.append(copied_module(joint))
        return min_cut_partition(joint, inputs, **options)

    names = traced.new_names()
    how = CaptureOptions(symbolic=traced.symbolic, partition_fn=partition)
    captured = capture(traced.call, traced.sources, names, how)
    module = {"joint": seen[0], "forward": captured.forward, "backward": captured.backward}[which]
    assert module is not None
    return PassGraph(copied_module(module), names, title)


def copied_module(module: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph module whose nodes have the same names, values and marks."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(module.graph, copies)
    last = next(n for n in reversed(module.graph.nodes) if n.op == "output")
    copied = graph.output(output)
    copied.meta = dict(last.meta)
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
        copy.name = node.name
    return fx.GraphModule(module, graph)


def example_values(graph: fx.Graph) -> list[Any]:
    """Return the example values of the placeholders of a graph."""
    return [value_of(n) for n in graph.nodes if n.op == "placeholder"]


class CannotRun(Exception):
    """Running `node` raised `__cause__`."""

    def __init__(self, node: fx.Node) -> None:
        super().__init__(f"{node} cannot be run")
        self.node = node


def fill_values(module: fx.GraphModule, inputs: list[Any], mode: FakeTensorMode, same: Collection[fx.Node]) -> None:
    """Set the values of the nodes in a rewritten graph, except of the `same` ones that read the same values.

    Raises CannotRun if running a node on fake tensors raises.
    """
    with torch.no_grad():
        _Values(module, mode, same).propagate_dont_convert_inputs(*inputs)


class _Values(FakeTensorProp):
    """Run only the changed part of a graph."""

    def __init__(self, module: fx.GraphModule, mode: FakeTensorMode, same: Collection[fx.Node]) -> None:
        super().__init__(module, mode)
        self._same, self._other = same, set[fx.Node]()

    def run_node(self, n: fx.Node) -> Any:
        old = value_of(n)
        if old is not None and n in self._same and n.op != "output" and self._other.isdisjoint(n.all_input_nodes):
            return old
        try:
            result = super().run_node(n)
        except Exception as error:
            raise CannotRun(n) from error
        new = value_of(n)
        if old is None or (value_spec(new) or str(new)) != (value_spec(old) or str(old)):
            self._other.add(n)
        return result
