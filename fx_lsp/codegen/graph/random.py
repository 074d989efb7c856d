"""Generate random numbers in kernels: by element, from a seed that forward generates once and passes to backward.

They differ from PyTorch's for the same generator, but have the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._inductor import inductor_prims as inductor_prims  # defines the operation
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.graph.edit import insert_call, replace_node
from fx_lsp.codegen.graph.query import is_saved
from fx_lsp.codegen.ir.lowerings import is_random, operation
from fx_lsp.codegen.ir.node_facts import add_facts

aten, prims = torch.ops.aten, torch.ops.prims
MIN_SEED, MAX_SEED = -(2**63), 2**63 - 1


def seed_random(graph: fx.Graph) -> None:
    """Replace random operations by functions of seeds; the remaining ones are never repeated in backward."""
    drawing = [n for n in graph.nodes if operation(n) in _REPLACEMENTS and _is_float32_enough(n)]
    by_device: dict[torch.device, list[fx.Node]] = {}
    for node in drawing:
        by_device.setdefault(node.meta["val"].device, []).append(node)
    for device, nodes in by_device.items():
        with graph.inserting_before(nodes[0]):
            options = {"dtype": torch.int64, "device": device}
            seeds = insert_call(nodes[0], aten.randint.low, (MIN_SEED, MAX_SEED, [len(nodes)]), options)
            seeds.name = "seeds"
            add_facts(seeds, seeds=True)
        for number, node in enumerate(nodes):
            with graph.inserting_before(node):
                seed = insert_call(node, aten.select.int, (seeds, 0, number))
                seed.name = f"seed_{number}" if number else "seed"
                replacement = _REPLACEMENTS[operation(node)](graph, node, seed)
            replace_node(graph, node, replacement)
    for node in graph.nodes:
        if is_random(node):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def undecided_random(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield random operations that neither use a seed nor are saved."""
    return (n for n in graph.nodes if is_random(n) and not is_saved(n))


def _is_float32_enough(node: fx.Node) -> bool:
    """Return True if float32 is precise enough for a node's random numbers."""
    value = node.meta["val"]
    return value.dtype.is_floating_point and value.dtype is not torch.float64 and value.itemsize > 1


def _uniform(graph: fx.Graph, node: fx.Node, seed: fx.Node, kind: str = "rand") -> fx.Node:
    """Return numbers from 0 to 1, exclusive, or from a normal distribution, as float32."""
    return insert_call(node, prims.inductor_random.default, (list(node.meta["val"].shape), seed, kind))


def _cast_to_declared(graph: fx.Graph, node: fx.Node, numbers: fx.Node) -> fx.Node:
    dtype = node.meta["val"].dtype
    if numbers.meta["val"].dtype == dtype:
        return numbers
    return insert_call(node, prims.convert_element_type.default, (numbers, dtype))


def _draw(kind: str) -> Callable[[fx.Graph, fx.Node, fx.Node], fx.Node]:
    return lambda graph, node, seed: _cast_to_declared(graph, node, _uniform(graph, node, seed, kind))


def _bernoulli(graph: fx.Graph, node: fx.Node, seed: fx.Node) -> fx.Node:
    less = insert_call(node, aten.lt.Scalar, (_uniform(graph, node, seed), _number(node, 1, "p", 0.5)))
    return _cast_to_declared(graph, node, less)


def _uniform_between(graph: fx.Graph, node: fx.Node, seed: fx.Node) -> fx.Node:
    low, high = _number(node, 1, "from", 0.0), _number(node, 2, "to", 1.0)
    return _scale_and_shift(graph, node, _uniform(graph, node, seed), high - low, low)


def _normal(graph: fx.Graph, node: fx.Node, seed: fx.Node) -> fx.Node:
    mean, deviation = _number(node, 1, "mean", 0.0), _number(node, 2, "std", 1.0)
    return _scale_and_shift(graph, node, _uniform(graph, node, seed, "randn"), deviation, mean)


def _scale_and_shift(graph: fx.Graph, node: fx.Node, numbers: fx.Node, factor: float, offset: float) -> fx.Node:
    for function, number, neutral in ((aten.mul.Tensor, factor, 1.0), (aten.add.Tensor, offset, 0.0)):
        if number != neutral:
            numbers = insert_call(node, function, (numbers, number))
    return _cast_to_declared(graph, node, numbers)


def _number(node: fx.Node, position: int, name: str, default: float) -> float:
    value: Any = node.args[position] if position < len(node.args) else node.kwargs.get(name, default)
    return float(value)


_REPLACEMENTS: dict[str, Callable[[fx.Graph, fx.Node, fx.Node], fx.Node]] = {
    "aten.rand.default": _draw("rand"),
    "aten.rand_like.default": _draw("rand"),
    "aten.randn.default": _draw("randn"),
    "aten.randn_like.default": _draw("randn"),
    "aten.bernoulli.p": _bernoulli,
    "aten.uniform.default": _uniform_between,
    "aten.normal_functional.default": _normal,
}
