"""What the layers of a module say about the parameters that `forward` hands to them."""

from __future__ import annotations

import ast
import re
from typing import Any

from torch import nn

from fx_lsp.tracer.inputs.body import Facts


def add_layer_facts(forward: ast.FunctionDef | None, facts: dict[str, Facts], module: nn.Module) -> None:
    """Ranks and dtypes of parameters that go straight into a layer: `self.conv(images)` wants a batch of images."""
    for node in ast.walk(forward) if forward is not None else ():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        owner, argument = node.func.value, node.args[0]
        if isinstance(owner, ast.Name) and owner.id == "self" and isinstance(argument, ast.Name):
            found = facts.get(argument.id)
            if found is not None:
                _add(found, getattr(module, node.func.attr, None))


def _add(facts: Facts, layer: Any) -> None:
    while isinstance(layer, nn.Sequential) and len(layer):
        layer = layer[0]
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        facts.dtype = facts.dtype or "i64"
        facts.rank = facts.rank or 2
    elif isinstance(layer, nn.RNNBase):
        facts.rank = facts.rank or 3
    elif spatial := re.search(r"([123])d$", type(layer).__name__):
        is_torch = type(layer).__module__.startswith("torch.nn.")
        if is_torch and not type(layer).__name__.startswith(("BatchNorm1d", "InstanceNorm1d")):
            facts.rank = facts.rank or int(spatial[1]) + 2
