"""Make the body of a loop that a program has reached the function of a training step.

The loop's iterable provides the inputs, if it can be evaluated on fake tensors.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import math
import re
import time
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from fx_lsp.messages.targets import LOOP_NOT_REACHED, NO_CALL_OF_STEP, STEP_CANNOT_RUN
from fx_lsp.model import Failure, TraceRequest
from fx_lsp.specs import TensorSpec
from fx_lsp.tracer.failures.exceptions import failure_of, kind_of, sentence
from fx_lsp.tracer.inputs.evidence.body import shaped_like
from fx_lsp.tracer.inputs.evidence.layers import object_of
from fx_lsp.tracer.inputs.evidence.named_numbers import IMAGE_SIZE
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.inputs.plan.plans import Plan, TensorPlan, plan_of_made
from fx_lsp.tracer.inputs.plan.values import TENSOR_ATTRIBUTES
from fx_lsp.tracer.inputs.task import Task
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.absences import AbsentError, absent_names
from fx_lsp.tracer.program.data.loaders import one_batch_each
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.program.load import syntax_of
from fx_lsp.tracer.program.time_limit import TimeUp, time_limit
from fx_lsp.tracer.run.call import tensors_in
from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.run.state import names_seen_by, unchanged, variables_around
from fx_lsp.training.draws import bound_from_data, draws_of
from fx_lsp.training.function import step_statements
from fx_lsp.training.statements import calls_by_name, path_to, without_effects_on
from fx_lsp.training.step import BATCHES

MODEL_SECONDS = 3.0
"""The time limit of the search for images that a model accepts, in seconds."""
IMAGE_SIZES = (32, 224, 28, 64, 128, 96, 256, 299, 84)
BATCH = 4
UNMAKABLE = "unmakable"
"""The attribute of a step's function with the exception raised in place of its first batch."""
IMAGES = "images"
"""The attribute of a step's function with images that its model accepts."""
FROM_MODEL = "the model accepts it"
BATCH_SECONDS = 1.5
"""The time limit of the first batch, in seconds."""


def step_function(request: TraceRequest, reached: FunctionType, inputs: tuple[str, ...] = ()) -> FunctionType | Failure:
    """Return the function for the step of a request, at whose loop a program is; call it inside the fake mode.

    `reached` reads the variables there. Absent values become parameters, except modules and functions, and so do
    `inputs`, and what the step draws from the program's iterators.
    """
    function = _with_inputs(request, reached, inputs) if inputs else reached
    absent = dict(absent_names(function))
    if absent:
        function = _with_inputs(request, reached, inputs, absent)
        absent = dict(absent_names(function))
    called = calls_by_name(_definition(request))
    missing = next((value for name, value in absent.items() if value.is_code or name in called), None)
    if missing is not None:
        return not_reached(request, sentence(missing.cause))
    if absent:
        from_data = (bound for name in absent for bound in _bound_from(request, name) or (name,))
        inputs = tuple(dict.fromkeys((*inputs, *from_data)))
        function = _with_inputs(request, reached, inputs, absent)
    return _with_images(_with_draws(request, reached, function, inputs), request)


def not_reached(request: TraceRequest, reason: str) -> Failure:
    """Return the failure of a step that no program gets to, for a `reason` if one is known."""
    around = request.name.rpartition(".")[0] or "the file"
    if request.kind == "function":
        return STEP_CANNOT_RUN.failure(name=request.name, error=reason)
    if not reason:
        return NO_CALL_OF_STEP.failure(function=around)
    return LOOP_NOT_REACHED.failure(function=around, error=reason)


def _with_inputs(
    request: TraceRequest, reached: FunctionType, inputs: Collection[str], absent: Collection[str] = ()
) -> FunctionType:
    """Return the function of a step in which reads of some names are parameters; it reads the same variables.

    What it does for its effect alone with names that are `absent` is left out.
    """
    tree = ast.parse(request.source, request.file)
    path = path_to(tree.body, request.step)
    statements = step_statements(path[-1][1], [node for _, node in path[:-1]], request.name, inputs)
    if isinstance(statements[0], ast.FunctionDef):
        statements[0].body = without_effects_on(statements[0].body, absent)
    batches = getattr(reached, BATCHES, None)
    of_batches = variables_around(batches) if isinstance(batches, FunctionType) else {}
    variables = {**of_batches, **variables_around(reached), **(reached.__kwdefaults__ or {})}
    (outer,) = ast.parse(f"def _({', '.join(variables)}): pass").body
    assert isinstance(outer, ast.FunctionDef)
    name = getattr(statements[0], "name", "")
    outer.body = [*statements, ast.Return(ast.Name(name, ast.Load()))]
    for part in ast.walk(outer):
        if "lineno" in getattr(part, "_attributes", ()) and not hasattr(part, "lineno"):
            ast.copy_location(part, path[-1][1])
    namespace: dict[str, Any] = {}
    module = ast.fix_missing_locations(ast.Module([outer], []))
    exec(compile(module, request.file, "exec", dont_inherit=True), reached.__globals__, namespace)
    return _renamed(namespace["_"](**variables))


def _renamed(function: FunctionType) -> FunctionType:
    """Return the function of a step, renamed for users."""
    function.__name__, function.__qualname__ = function.__name__.strip(), function.__qualname__.replace(" ", "")
    return function


def _with_draws(
    request: TraceRequest, reached: FunctionType, function: FunctionType, inputs: Collection[str]
) -> FunctionType:
    """Return a step whose draws from the program's iterators are parameters: each iterator can only be consumed once,
    and its items are the batch.
    """
    seen = {**names_seen_by(reached), **(reached.__kwdefaults__ or {})}
    draws = draws_of(ast.parse(request.source, request.file), request.step)
    draws = [draw for draw in draws if _is_iterator(draw.iterator, seen)]
    if not draws:
        return _renamed(function)
    drawing = _with_inputs(request, reached, (*inputs, *(name for draw in draws for name in draw.bound)))
    of_loop = _first_batch(drawing) or {}

    def batches() -> Iterator[Mapping[str, Any]]:
        namespace = {**seen}
        for draw in draws:
            statement = ast.fix_missing_locations(ast.Module([draw.statement], []))
            exec(compile(statement, request.file, "exec"), namespace)
        yield {**of_loop, **{name: namespace[name] for draw in draws for name in draw.bound}}

    vars(drawing)[BATCHES] = batches
    return drawing


def _is_iterator(expression: ast.expr, names: Mapping[str, Any]) -> bool:
    """Return True for an iterator of the program, and for `iter(batches)` of its data."""
    match expression:
        case ast.Call(ast.Name("iter"), [source]):
            return isinstance(object_of(source, names), (DataLoader, list))
        case _:
            return hasattr(type(object_of(expression, names)), "__next__")


def inputs_from_data(request: TraceRequest, error: BaseException | None) -> tuple[str, ...]:
    """Return the names that a step was about to get from missing data when it stopped with an error.

    They become inputs of the step, like names that its loop binds.
    """
    if not isinstance(error, (AbsentError, OSError, EffectBlocked)):
        return ()
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = [line for code, line in frames if code.co_filename == request.file]

    def is_stop(node: ast.stmt) -> bool:
        return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)

    return bound_from_data(ast.parse(request.source, request.file), request.step, is_stop)


def _bound_from(request: TraceRequest, name: str) -> tuple[str, ...]:
    """Return the names that a step draws from the object of a variable: `x`, `y` of `x, y = next(batches)`."""
    tree = ast.parse(request.source, request.file)
    return bound_from_data(tree, request.step, lambda node: any(_draws(part, name) for part in ast.walk(node)))


def _draws(node: ast.AST, name: str) -> bool:
    """Return True for `next(batches)`, and for a call of a method of `batches` that tensors do not have."""
    if not isinstance(node, ast.Call):
        return False
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr not in TENSOR_ATTRIBUTES
    is_next = isinstance(node.func, ast.Name) and node.func.id in ("next", "iter")
    whole = [node.func] if is_method else node.args if is_next else []
    return any(isinstance(part, ast.Name) and part.id == name for expression in whole for part in ast.walk(expression))


def lacks_data(function: Any) -> bool:
    """Return True if a function reads a value that is absent."""
    return isinstance(function, FunctionType) and any(True for _ in absent_names(function))


def cannot_run(request: TraceRequest, function: Any) -> Failure | None:
    """Return the failure of a function that is a step by itself, if a value that it reads is absent; else None."""
    plain = innermost(function)
    absent = absent_names(plain) if isinstance(plain, FunctionType) else ()
    missing = next((value for _, value in absent), None)
    return None if missing is None else STEP_CANNOT_RUN.failure(name=request.name, error=sentence(missing.cause))


def _with_images(function: FunctionType, request: TraceRequest) -> FunctionType:
    """Return the function with images that its model accepts, if there is no batch."""
    offers = _images_for_models(function, _definition(request)) if _first_batch(function) is None else ()
    vars(function)[IMAGES] = tuple(offers)
    return function


def _definition(request: TraceRequest) -> ast.AST:
    tree = syntax_of(request, request.source)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.lineno == request.step)
    return next(functions, tree)


def offers_of_step(function: Any) -> Iterator[Offer]:
    """Yield the first batch of a function's loop, if available, or else images that its model accepts."""
    batch, defaults = _first_batch(function), function.__kwdefaults__ or {}
    detail = f"line {function.__code__.co_firstlineno}"
    before = {n: plan_of_made(v, "call site", detail) for n, v in defaults.items() if any(tensors_in(v, n))}
    if batch is not None:
        plans = {name: plan_of_made(value, "call site", detail) for name, value in batch.items()}
        yield Offer({**before, **plans}, guessed=bool(notes().sizes))
    for images in getattr(function, IMAGES, ()):
        yield replace(images, args={**before, **images.args}, final=True)
    if before:
        yield Offer(before, guessed=batch is None)


def _first_batch(function: Any) -> Mapping[str, Any] | None:
    """Return the variables of a loop's first iteration; None if that needs missing data. Cached."""
    batches: Any = getattr(function, BATCHES, None)
    if not isinstance(batches, FunctionType):
        return batches
    batch = None
    try:
        with forbid_effects(), time_limit(BATCH_SECONDS), one_batch_each():
            batch = next(iter(batches()), None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        vars(function)[UNMAKABLE] = error
    setattr(function, BATCHES, batch)
    return batch


def wrong_batch(function: Any, task: Task) -> Failure | None:
    """Return the failure of a batch whose samples do not fit together in sizes or dtypes, or None."""
    error = getattr(function, UNMAKABLE, None)
    if error is None or kind_of(error) not in ("shape", "dtype"):
        return None
    failure = failure_of(error, task.sources, None, task.lines, "error")
    return failure if failure.span is not None else None


def _images_for_models(function: Any, definition: ast.AST) -> Iterator[Offer]:
    """Yield images of a size that the models called by a step accept."""
    parameters, images = inspect.signature(function).parameters, dict[str, Plan]()
    renamed = {name: name for name in parameters}
    seen = names_seen_by(function)
    numbers = _image_numbers(seen)
    until = time.monotonic() + MODEL_SECONDS
    for node in ast.walk(definition):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            renamed.setdefault(node.targets[0].id, renamed.get(shaped_like(node.value), ""))
    for node in ast.walk(definition):
        if not isinstance(node, ast.Call) or not node.args or node.keywords:
            continue
        names = [renamed.get(shaped_like(argument), "") for argument in node.args]
        model = object_of(node.func, seen)
        if not _is_module(model) or not all(names) or images.keys() >= set(names) or time.monotonic() > until:
            continue
        shape = _shape_for(model, numbers, len(names))
        if shape is not None:
            images |= dict.fromkeys(names, TensorPlan(TensorSpec("f32", (BATCH, *shape)), "search", FROM_MODEL))
    if images:
        yield Offer(images, guessed=True)


@dataclass(frozen=True)
class _ImageNumbers:
    """Hold a program's numbers for its images: their channels, and heights with widths."""

    channels: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]


_CHANNELS = re.compile(r"^(n_?)?((image|img|input|in)_?)?channels$|^nc$")
_SIZE = re.compile(rf"{IMAGE_SIZE.pattern}|^((image|img|input)_?)?height$|^size$")
_WIDTH = ("height", "width")
_SHAPE = re.compile(r"^(image|img|input)_?(shape|dims?)$")
"""Names for channels, heights (with widths of the same name) and both together."""


def _image_numbers(values_by_name: Mapping[str, Any]) -> _ImageNumbers:
    """Return the image numbers among the names that a function refers to, and the options of its program."""
    named = [{n: v for n, v in values_by_name.items() if type(v) in (int, tuple)}]
    named += [vars(value) for value in values_by_name.values() if isinstance(value, argparse.Namespace)]
    channels, sizes = list[int](), list[tuple[int, int]]()
    for values in named:
        for name, value in values.items():
            if _SHAPE.search(name) and isinstance(value, tuple) and list(map(type, value)) == [int, int, int]:
                channels.append(value[0])
                sizes.append((value[1], value[2]))
            elif type(value) is int and _CHANNELS.search(name):
                channels.append(value)
            elif type(value) is int and _SIZE.search(name):
                width = values.get(name.replace(*_WIDTH))
                sizes.append((value, width if type(width) is int else value))
    return _ImageNumbers(tuple(dict.fromkeys(channels)), tuple(dict.fromkeys(sizes)))


def _first_layer(model: nn.Module) -> nn.Module | None:
    """Return the first layer with weights in a module, which receives its input; None without one."""
    layers = (layer for layer in model.modules() if next(layer.children(), None) is None)
    return next((layer for layer in layers if isinstance(layer, (nn.Conv2d, nn.Linear, nn.Embedding))), None)


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def _shapes_for(layer: nn.Module | None, numbers: _ImageNumbers, count: int) -> Iterator[tuple[int, int, int]]:
    """Yield image shapes that a layer may accept: those with numbers from the program first.

    If there are `count` inputs, they may be stacked on top of each other.
    """
    if isinstance(layer, nn.Conv2d):
        sizes = dict.fromkeys((*numbers.sizes, *((size, size) for size in IMAGE_SIZES)))
        channels = dict.fromkeys((layer.in_channels, max(layer.in_channels // count, 1)))
        yield from ((number, *size) for number in channels for size in sizes)
    elif isinstance(layer, nn.Linear):
        shapes = ((channels, *size) for channels in numbers.channels for size in numbers.sizes)
        yield from (shape for shape in shapes if math.prod(shape) == layer.in_features)


def _shape_for(model: nn.Module, numbers: _ImageNumbers, count: int) -> tuple[int, int, int] | None:
    """Return the channels, height and width that a model accepts for `count` inputs, or None."""
    with unchanged([model]), torch.no_grad(), suppress(TimeUp), time_limit(MODEL_SECONDS):
        for shape in _shapes_for(_first_layer(model), numbers, count):
            with suppress(Exception):
                model(*(torch.empty(BATCH, *shape) for _ in range(count)))
                return shape
    return None
