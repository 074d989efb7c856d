"""What the layers of a module say about the parameters that `forward` hands to them."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from torch import nn

from fx_lsp.syntax import FunctionNode, axis_terms
from fx_lsp.tracer.inputs.evidence.patterns import take_term
from fx_lsp.tracer.inputs.plan.facts import Facts

MAX_DEPTH = 4
"""Into how many modules inside of each other a parameter is followed."""


def add_layer_facts(
    forward: FunctionNode | None, facts: dict[str, Facts], module: nn.Module, depth: int = MAX_DEPTH
) -> None:
    """Take in what parameters have to be that go into a layer as they are: `self.conv(images)` wants images.

    So do parts of the module that hand them to a layer of their own.
    """
    for call in _calls_with_parameters(forward) if forward is not None else ():
        layer = _layer(call.func, forward, module)
        for position, argument in enumerate(call.args):
            name = argument.id if isinstance(argument, ast.Name) else ""
            if name in facts and layer is not None:
                _add(facts[name], layer, position, depth)


def _calls_with_parameters(function: FunctionNode) -> Iterator[ast.Call]:
    """Yield the calls that read parameters before these are bound to something else, in the order of the code."""
    bound: dict[str, tuple[int, int]] = {}
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            place = (node.end_lineno or node.lineno, node.end_col_offset or 0)
            for name in (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)):
                bound[name] = min(bound.get(name, place), place)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
        names = [a.id for a in call.args if isinstance(a, ast.Name)]
        place = call.end_lineno or call.lineno, call.end_col_offset or 0
        if names and all(place <= bound.get(name, place) for name in names):
            yield call


def _layer(called: ast.expr, function: FunctionNode | None, module: nn.Module) -> Any:
    """Return the layer that is called: an attribute of the module, or the first that a loop goes over."""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "self":
        return getattr(module, called.attr, None)
    name = called.id if isinstance(called, ast.Name) else ""
    for node in ast.walk(function) if function is not None and name else ():
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
            layers = _layer(node.iter, None, module)
            return layers[0] if isinstance(layers, (nn.ModuleList, nn.Sequential)) and len(layers) else None
    return None


def _add(facts: Facts, layer: Any, position: int, depth: int) -> None:
    while isinstance(layer, nn.Sequential) and len(layer):
        layer = layer[0]
    kind = next((c.__name__ for c in type(layer).__mro__ if c.__module__.startswith("torch.nn.modules.")), "")
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        facts.dtype = facts.dtype or "i64"
        facts.likely_rank = facts.likely_rank or 2
    elif isinstance(layer, nn.RNNBase):
        facts.likely_rank = facts.likely_rank or 3
    elif isinstance(layer, nn.Linear) and layer.in_features:
        facts.sizes.setdefault(-1, layer.in_features)
    elif (spatial := re.search(r"([123])d$", kind)) and not kind.startswith(("BatchNorm1d", "InstanceNorm1d")):
        _add_images(facts, layer, int(spatial[1]))
    elif isinstance(layer, nn.Module) and kind == "Module":
        _add_pattern(facts, layer)
        _add_of_part(facts, layer, position, depth)


def _add_images(facts: Facts, layer: nn.Module, spatial: int) -> None:
    """Take in that a layer goes over images, signals or volumes."""
    facts.spatial, rank = spatial, spatial + 2
    if type(layer).__module__.startswith("torch."):
        facts.rank = facts.rank or rank
    else:  # it may bring a forward of its own
        facts.likely_rank = facts.likely_rank or rank
    channels = getattr(layer, "in_channels", None)
    if type(channels) is int and channels and facts.rank in (None, rank):
        facts.sizes.setdefault(1, channels)


def _add_of_part(facts: Facts, part: nn.Module, position: int, depth: int) -> None:
    """Take in what a part of the module does with a parameter that it is handed as its argument `position`."""
    forward = type(part).forward
    if depth == 0 or forward.__module__.startswith("torch."):
        return
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        return
    definition = tree.body[0]
    if isinstance(definition, ast.FunctionDef) and len(definition.args.args) > position + 1:
        name = definition.args.args[position + 1].arg
        add_layer_facts(definition, {name: facts}, part, depth - 1)


def _add_pattern(facts: Facts, layer: nn.Module) -> None:
    """A pattern of axes that a layer was made with, and the lengths of axes that it keeps."""
    kept = list(vars(layer).values())
    terms = next((found for text in kept if isinstance(text, str) and (found := axis_terms(text))), None)
    entries = [entry for held in kept if isinstance(held, dict) for entry in held.items()]
    if terms is not None:
        take_term(facts, terms[0], {k: n for k, n in entries if isinstance(k, str) and type(n) is int})
