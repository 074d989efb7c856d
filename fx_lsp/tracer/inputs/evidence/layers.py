"""Read facts on the parameters of `forward` from the layers that receive them."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from fx_lsp.syntax import FunctionNode, axis_terms
from fx_lsp.tracer.inputs.evidence.body import body_facts, rebound_lines
from fx_lsp.tracer.inputs.evidence.patterns import take_term
from fx_lsp.tracer.inputs.plan.dims import shapes_in
from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.program.paths import is_installed

MAX_DEPTH = 4
"""The depth of nested modules to which a parameter is followed."""


def add_layer_facts(
    function: FunctionNode | None, facts: Mapping[str, Facts], names: Mapping[str, Any], depth: int = MAX_DEPTH
) -> None:
    """Record the requirements of layers on parameters that they receive unchanged: `self.conv(images)` needs images.

    Submodules that pass them to their own layers are followed. `names` are the objects that the function refers to: its
    module as `self`, or the models and losses around a training step.
    """
    if function is None:
        return
    rebound = rebound_lines(function, facts)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        layer, method = _layer(call.func, function, names), _method(call.func, names)
        for place, argument in _arguments(call):
            name = argument.id if isinstance(argument, ast.Name) else ""
            if name in facts and call.lineno <= rebound.get(name, call.lineno):
                if method is not None:
                    _add_of_method(facts[name], *method, place, depth)
                elif layer is not None:
                    _add(facts[name], layer, place, depth)
        _add_of_spread(call, layer, facts)


def _add_of_spread(call: ast.Call, layer: Any, facts: Mapping[str, Facts]) -> None:
    """Record the number of items in a parameter that is spread over the arguments of a module: `model(*batch)`."""
    spread = [argument.value for argument in call.args if isinstance(argument, ast.Starred)]
    name = spread[0].id if len(spread) == 1 and isinstance(spread[0], ast.Name) else ""
    if name in facts and isinstance(layer, nn.Module):
        parameters = list(inspect.signature(_unwrapped(layer).forward).parameters.values())
        required = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        facts[name].length = facts[name].length or max(len(required) - len(call.args) + 1, 0) or None


def add_documented_images(definition: ast.ClassDef | None, facts: Mapping[str, Facts]) -> None:
    """Record the size of images in the docstring of a class, `(3 x 32 x 32)`, if it takes one input with that many
    channels.
    """
    images = [held for held in facts.values() if held.spatial]
    docstring = ast.get_docstring(definition) if definition is not None else None
    if len(images) != 1 or images[0].shape is not None:
        return
    count, channels = images[0].spatial + 1, images[0].sizes.get(1)
    for shape in shapes_in(docstring or ""):
        image = shape[-count:]
        if len(shape) in (count, count + 1) and all(isinstance(n, int) for n in image) and image[0] == channels:
            images[0].shape = ("batch", *image)
            return


def add_facts_of_functions(facts: Mapping[str, Facts], module: ModuleType, depth: int = MAX_DEPTH) -> None:
    """Record the requirements of the program's functions and constructors on parameters, or on their elements, that
    they receive unchanged.
    """
    for held in [part for whole in facts.values() for part in (whole, whole.element) if part is not None]:
        for path, place in held.handed if depth > 0 else ():
            function: Any = module
            for name in path.split("."):
                function = getattr(function, name, None)
            is_class = isinstance(function, type)
            function = function.__init__ if is_class else function
            if isinstance(function, FunctionType) and not is_installed(function.__code__.co_filename):
                definition, names = definition_of(function), list(inspect.signature(function).parameters)[is_class:]
                name = place if isinstance(place, str) else names[place] if place < len(names) else ""
                inside = body_facts(definition) if definition is not None else {}
                if name in inside:
                    of_one = {name: inside[name]}
                    add_facts_of_functions(of_one, sys.modules.get(function.__module__, module), depth - 1)
                    held.take(of_one[name])


def definition_of(function: Callable[..., Any]) -> FunctionNode | None:
    """Return the syntax of a function, None if its source is unavailable."""
    try:
        node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    return node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def _arguments(call: ast.Call) -> Iterator[tuple[int | str, ast.expr]]:
    """Yield the arguments of a call, each with its position or its name."""
    yield from enumerate(call.args)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg is not None)


def _layer(called: ast.expr, function: FunctionNode, names: Mapping[str, Any]) -> Any:
    """Return the called layer, or the first one that a loop iterates over; None for any other."""
    name = called.id if isinstance(called, ast.Name) else ""
    for node in ast.walk(function) if name else ():
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
            layers = object_of(node.iter, names)
            return next(iter(layers), None) if isinstance(layers, (nn.ModuleList, nn.Sequential)) else None
    return object_of(called, names)


def object_of(expression: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the object of a name or an attribute, and of layers in a list the one at a number, or the first; None for
    any other expression.
    """
    match expression:
        case ast.Name(name):
            return names.get(name)
        case ast.Attribute(owner, name):
            return getattr(object_of(owner, names), name, None)
        case ast.Subscript(owner, index):
            layers = object_of(owner, names)
            number = index.value if isinstance(index, ast.Constant) and isinstance(index.value, int) else 0
            is_there = isinstance(layers, (nn.ModuleList, nn.Sequential)) and number < len(layers)
            return layers[number] if is_there else None
        case _:
            return None


def _method(called: ast.expr, names: Mapping[str, Any]) -> tuple[nn.Module, Callable[..., Any]] | None:
    """Return the called method and its owner: `self.attend`, `self.cache.update`; None for any other."""
    if not isinstance(called, ast.Attribute):
        return None
    owner = _unwrapped(object_of(called.value, names))
    method = inspect.getattr_static(type(owner), called.attr, None)
    return (owner, method) if isinstance(owner, nn.Module) and inspect.isfunction(method) else None


def _add(facts: Facts, layer: Any, place: int | str, depth: int) -> None:
    while isinstance(layer, (nn.Sequential, *_WRAPPERS)):
        layer = _unwrapped(layer) if isinstance(layer, _WRAPPERS) else next(iter(layer), None)
    if isinstance(layer, nn.modules.loss._Loss):
        _add_of_body(facts, layer, type(layer).forward, place, 1)  # it is the function of the same name
        return
    kind = next((c.__name__ for c in type(layer).__mro__ if c.__module__.startswith("torch.nn.modules.")), "")
    if place != 0 and kind not in ("", "Module"):
        _add_besides(facts, layer, _parameter(type(layer).forward, place))
    elif isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        facts.dtype = facts.dtype or "i64"
        facts.likely_rank = facts.likely_rank or 2
    elif isinstance(layer, (nn.RNNBase, nn.Linear, nn.LayerNorm)):
        _add_features(facts, layer)
    elif (spatial := re.search(r"([123])d$", kind)) and not kind.startswith(("BatchNorm1d", "InstanceNorm1d")):
        _add_images(facts, layer, int(spatial[1]))
    elif isinstance(layer, nn.Module) and kind == "Module":
        _add_pattern(facts, layer)
        _add_of_method(facts, layer, type(layer).forward, place, depth)


def _add_features(facts: Facts, layer: nn.RNNBase | nn.Linear | nn.LayerNorm) -> None:
    """Record the width of the features that a layer accepts, and that a recurrent layer takes sequences."""
    if isinstance(layer, nn.RNNBase):
        facts.likely_rank = facts.likely_rank or 3
        sizes: tuple[int, ...] = (layer.input_size,)
    else:
        sizes = (layer.in_features,) if isinstance(layer, nn.Linear) else tuple(layer.normalized_shape)
    for index, size in enumerate(reversed(sizes)):
        if size:  # a lazy layer has none yet
            facts.sizes.setdefault(-1 - index, size)


_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
"""Modules that call the single module that they contain."""


def _unwrapped(layer: Any) -> Any:
    """Return the module inside of wrappers."""
    while isinstance(layer, _WRAPPERS):
        layer = layer.module
    return layer


def _parameter(function: Callable[..., Any], place: int | str) -> str:
    """Return the name of a method's parameter for an argument, "" without one."""
    names = list(inspect.signature(function).parameters)[1:]
    return place if isinstance(place, str) else names[place] if place < len(names) else ""


def _add_besides(facts: Facts, layer: nn.Module, parameter: str) -> None:
    """Record the further arguments of PyTorch's layers: one or two states, and masks."""
    if isinstance(layer, nn.RNNBase) and parameter == "hx":
        state = facts
        if isinstance(layer, nn.LSTM):
            facts.length, state = 2, Facts()
            facts.element = state
        state.rank = state.rank or 3
        state.sizes |= {0: layer.num_layers * (1 + layer.bidirectional), 2: layer.proj_size or layer.hidden_size}
    elif parameter.endswith("padding_mask"):
        facts.likely_rank, facts.dtype = facts.likely_rank or 2, facts.dtype or "b8"
    elif parameter.endswith("mask"):
        facts.likely_rank = facts.likely_rank or 2


def _add_images(facts: Facts, layer: nn.Module, spatial: int) -> None:
    """Record that a layer takes images, signals or volumes."""
    facts.spatial, rank = spatial, spatial + 2
    if type(layer).__module__.startswith("torch.") and "Pad" not in type(layer).__name__:
        facts.rank = facts.rank or rank
    else:  # it may have its own forward, and padding applies to the last dimensions of any tensor
        facts.likely_rank = facts.likely_rank or rank
    channels = getattr(layer, "in_channels", None)
    if type(channels) is int and channels and facts.rank in (None, rank):
        facts.sizes.setdefault(1, channels)


def _add_of_method(facts: Facts, part: nn.Module, method: Callable[..., Any], place: int | str, depth: int) -> None:
    """Record the uses of a parameter in a method of the module, or of a submodule, that receives it."""
    if depth > 0 and not method.__module__.startswith("torch."):
        _add_of_body(facts, part, method, place, depth)


def _add_of_body(facts: Facts, part: nn.Module, method: Callable[..., Any], place: int | str, depth: int) -> None:
    definition, name = definition_of(method), _parameter(method, place)
    if definition is not None and name in {argument.arg for argument in definition.args.args}:
        inside = {name: body_facts(definition)[name]}
        add_facts_of_functions(inside, sys.modules[method.__module__], depth)
        facts.take(inside[name])
        add_layer_facts(definition, {name: facts}, {"self": part}, depth - 1)


def _add_pattern(facts: Facts, layer: nn.Module) -> None:
    """Record a pattern of axes that a layer was constructed with, and the lengths of axes that it stores."""
    kept = list(vars(layer).values())
    terms = next((axes for text in kept if isinstance(text, str) and (axes := axis_terms(text))), None)
    entries = [entry for held in kept if isinstance(held, dict) for entry in held.items()]
    if terms is not None:
        take_term(facts, terms[0], {k: n for k, n in entries if isinstance(k, str) and type(n) is int})
