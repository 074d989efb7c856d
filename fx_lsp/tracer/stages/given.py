"""The graphs of a target that a pass can be given: whole graph modules, under the names of the trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from fx_lsp.tracer.capture import capture
from fx_lsp.tracer.compat import min_cut_partition
from fx_lsp.tracer.graphs import Names
from fx_lsp.tracer.guards import forbid_effects
from fx_lsp.tracer.stages.written import named, symbolic_graph

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.works import Traced


@dataclass(frozen=True)
class Given:
    """A graph module of its own, that nothing else uses, and what made it."""

    module: fx.GraphModule
    names: Names
    title: str


GRAPHS: dict[str, Callable[[Traced], Given]] = {}
"""What a pass can be run on, by the name of the stage."""


def given(traced: Traced, name: str) -> Given:
    """The graph `name` of a target. Raises ValueError where there is none, and whatever making it raises."""
    make = GRAPHS.get(name)
    if make is None:
        raise ValueError(f"a pass runs on {', '.join(GRAPHS)}; there is no graph {name!r} to run it on")
    with forbid_effects():
        return make(traced)


def _graph(name: str) -> Callable[[Callable[[Traced], Given]], Callable[[Traced], Given]]:
    def register(make: Callable[[Traced], Given]) -> Callable[[Traced], Given]:
        GRAPHS[name] = make
        return make

    return register


@_graph("inference")
def _inference(traced: Traced) -> Given:
    return _captured(traced, "AOTAutograd without differentiation: the ATen graph", None)


@_graph("core")
def _core(traced: Traced) -> Given:
    from torch._decomp import core_aten_decompositions

    return _captured(traced, "the ATen graph in core ATen operations", dict(core_aten_decompositions()))


@_graph("torch")
def _torch(traced: Traced) -> Given:
    module = symbolic_graph(traced.call, traced.mode, traced.sources)
    return Given(module, named(module.graph, (), traced.new_names()), "as written: torch.fx.symbolic_trace")


@_graph("joint")
def _joint(traced: Traced) -> Given:
    return _part(traced, "joint", "AOTAutograd: forward and backward in one graph")


@_graph("forward")
def _forward(traced: Traced) -> Given:
    return _part(traced, "forward", "AOTAutograd: min-cut partition, forward")


@_graph("backward")
def _backward(traced: Traced) -> Given:
    return _part(traced, "backward", "AOTAutograd: min-cut partition, backward")


def _captured(traced: Traced, title: str, decompositions: dict[Any, Callable[..., Any]] | None) -> Given:
    names = traced.new_names()
    captured = capture(traced.call, traced.sources, names, False, traced.symbolic, decompositions)
    assert captured.inference is not None
    return Given(own(captured.inference), names, title)


def _part(traced: Traced, which: str, title: str) -> Given:
    """A graph of the differentiated target. Raises ValueError where there is nothing to differentiate."""
    if traced.captured.inference is not None:
        raise ValueError(f"there is no {which} graph: {traced.request.name} has nothing to differentiate")
    seen: list[fx.GraphModule] = []

    def partition(joint: fx.GraphModule, inputs: Any, **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        seen.append(own(joint))
        return min_cut_partition(joint, inputs, **options)

    names = traced.new_names()
    captured = capture(traced.call, traced.sources, names, True, traced.symbolic, partition_fn=partition)
    found = {"joint": seen[0], "forward": captured.forward, "backward": captured.backward}[which]
    assert found is not None
    return Given(own(found), names, title)


def own(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a graph module whose nodes have the same names, values and marks."""
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
    """What the placeholders of a graph hold."""
    return [n.meta.get("val", n.meta.get("example_value")) for n in graph.nodes if n.op == "placeholder"]


def fill_values(module: fx.GraphModule, before: list[Any]) -> None:
    """Give every node of a rewritten graph its value again; `before` are those of the inputs. Raises what running it
    on fake tensors raises."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    if all("val" in n.meta or "example_value" in n.meta for n in module.graph.nodes if n.op.startswith("call_")):
        return
    mode = next((v.fake_mode for v in before if isinstance(v, FakeTensor)), None)
    with torch.no_grad():
        FakeTensorProp(module, mode).propagate_dont_convert_inputs(*before)
