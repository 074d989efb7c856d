"""Find parameters without a gradient from any result."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fx_lsp.tracer.capture.graphs import Names


@dataclass(frozen=True)
class Untrained:
    """Hold a parameter that requires a gradient and gets none; `is_used` is True if something is computed from it
    anyway.
    """

    name: str
    is_used: bool


def untrained_parameters(joint: torch.fx.Graph, names: Names, num_outputs: int) -> list[Untrained]:
    """Return the parameters that require a gradient but have none in a joint graph."""
    inputs = [node for node in joint.nodes if node.op == "placeholder" and node.name.startswith("primals")]
    results = next(n for n in reversed(joint.nodes) if n.op == "output").args[0]
    gradients = results[num_outputs:] if isinstance(results, (list, tuple)) else ()
    untrained: list[Untrained] = []
    for node, gradient in zip(inputs, gradients, strict=False):
        item = names.inputs.get(node.name)
        if gradient is None and item is not None and item.kind == "parameter" and item.tensor.requires_grad:
            untrained.append(Untrained(item.name, bool(node.users)))
    return untrained
