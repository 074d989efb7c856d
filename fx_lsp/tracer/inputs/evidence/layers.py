"""What the layers of a module say about the parameters that `forward` hands to them."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from fx_lsp.syntax import FunctionNode, axis_terms
from fx_lsp.tracer.inputs.evidence.body import rebound_lines
from fx_lsp.tracer.inputs.evidence.patterns import take_term
from fx_lsp.tracer.inputs.plan.facts import Facts


def add_layer_facts(forward: FunctionNode | None, facts: Mapping[str, Facts], module: nn.Module) -> None:
    """Ranks and dtypes of parameters that go straight into a layer: `self.conv(images)` wants a batch of images."""
    rebound = rebound_lines(forward, facts) if forward is not None else {}
    for node in ast.walk(forward) if forward is not None else ():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        owner, argument = node.func.value, node.args[0]
        if isinstance(owner, ast.Name) and owner.id == "self" and isinstance(argument, ast.Name):
            found = facts.get(argument.id)
            if found is not None and node.lineno <= rebound.get(argument.id, node.lineno):
                _add(found, getattr(module, node.func.attr, None))


def _add(facts: Facts, layer: Any) -> None:
    while isinstance(layer, nn.Sequential) and len(layer):
        layer = layer[0]
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        facts.dtype = facts.dtype or "i64"
        facts.likely_rank = facts.likely_rank or 2
    elif isinstance(layer, nn.RNNBase):
        facts.likely_rank = facts.likely_rank or 3
    elif (rank := _rank_of_images(type(layer))) is not None:
        facts.rank = facts.rank or rank
    elif isinstance(layer, nn.Module):
        bases = (rank for base in type(layer).__mro__ if (rank := _rank_of_images(base)) is not None)
        facts.likely_rank = facts.likely_rank or next(bases, None)
        _add_pattern(facts, layer)


def _rank_of_images(kind: type) -> int | None:
    """Return the rank of what a class of PyTorch's layers takes that counts spatial dimensions in its name."""
    spatial = re.search(r"([123])d$", kind.__name__)
    takes_fewer = kind.__name__.startswith(("BatchNorm1d", "InstanceNorm1d"))
    is_torch = kind.__module__.startswith("torch.nn.")
    return int(spatial[1]) + 2 if spatial and is_torch and not takes_fewer else None


def _add_pattern(facts: Facts, layer: nn.Module) -> None:
    """A pattern of axes that a layer was made with, and the lengths of axes that it keeps."""
    kept = list(vars(layer).values())
    terms = next((found for text in kept if isinstance(text, str) and (found := axis_terms(text))), None)
    entries = [entry for held in kept if isinstance(held, dict) for entry in held.items()]
    if terms is not None:
        take_term(facts, terms[0], {k: n for k, n in entries if isinstance(k, str) and type(n) is int})
