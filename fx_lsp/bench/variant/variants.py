"""List the variants: how each is built from a generated file."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fx_lsp.bench.variant.comparison import Function, tensors_in
from fx_lsp.bench.variant.subject import BenchmarkSubject
from fx_lsp.measured import Rival


class NotHere(Exception):
    """A variant that this machine or function does not support; the message is a sentence."""


@dataclass(frozen=True)
class Variant:
    """Describe a variant: `build` returns its function for a subject, on a kind of device.

    `kernels` is True if it comes from the file's kernels. `captured` is True if its calls can be captured in a CUDA
    graph: not if they are CUDA graphs themselves. `strange` marks code that somebody wrote, which is checked more
    closely than PyTorch's; `compiles` marks torch.compile.
    """

    build: Callable[[BenchmarkSubject, str], Function]
    kernels: bool = False
    captured: bool = True
    strange: bool = False
    compiles: bool = False


def variant(name: str, rivals: tuple[Rival, ...]) -> Variant:
    """Return the row of that name, or of a rival. Raises NotHere."""
    rival = next((r for r in rivals if r.name == name), None)
    if rival is not None:
        return Variant(lambda subject, device: _imported(rival.target), strange=True)
    if name not in TABLE:
        raise NotHere(f"There is no variant {name}.")
    return TABLE[name]


def _eager(subject: BenchmarkSubject, device: str) -> Function:
    return subject.reference


def _kernels(subject: BenchmarkSubject, device: str) -> Function:
    assert subject.kernels is not None
    return subject.kernels


def _compiled(gpu: bool = False, **options: Any) -> Callable[[BenchmarkSubject, str], Function]:
    def build(subject: BenchmarkSubject, device: str) -> Function:
        if gpu and device != "cuda":
            raise NotHere("It needs a CUDA device.")
        settings: Any = importlib.import_module("torch._dynamo.config")
        for name in ("fail_on_recompile_limit_hit", "fail_on_cache_limit_hit"):  # newer versions, and older ones
            if hasattr(settings, name):
                setattr(settings, name, True)  # and not silently run eagerly
                break
        return torch.compile(subject.reference, **options)

    return build


def _symbolically_traced(subject: BenchmarkSubject, device: str) -> Function:
    """Build a GraphModule for each module that it is called on, or one for a function."""

    def trace(root: Any, bound: inspect.BoundArguments) -> fx.GraphModule:
        bound.apply_defaults()
        return fx.symbolic_trace(root, {n: v for n, v in bound.arguments.items() if not _has_tensors(v)})

    return _traced_once(subject, trace)


def _scripted(subject: BenchmarkSubject, device: str) -> Function:
    """Script the original if possible, else trace it."""

    def script(root: Any, bound: inspect.BoundArguments) -> Any:
        try:
            return torch.jit.script(root)
        except Exception as error:
            if not all(_has_tensors(v) for v in bound.arguments.values()):
                raise NotHere(f"It cannot be scripted: {first_line(error)}") from None
            return torch.jit.trace(root, bound.args, example_kwarg_inputs=bound.kwargs or None, check_trace=False)

    return _traced_once(subject, script)


def _traced_once(subject: BenchmarkSubject, make: Callable[[Any, inspect.BoundArguments], Any]) -> Function:
    """Return a function whose first call, for each module or in total, creates the function that it calls from
    then on.
    """
    traced_by_module: dict[int, tuple[Any, Any]] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        reference = next(iter(subject.outside.values()), subject.reference)
        kwargs = {name: value for name, value in kwargs.items() if name not in subject.outside}
        module = args[0] if args and isinstance(args[0], torch.nn.Module) else None
        rest = args if module is None else args[1:]
        root = reference if module is None else _bound(reference, module)
        signature = inspect.signature(root.forward if isinstance(root, torch.nn.Module) else root)
        key = id(module)
        if key not in traced_by_module:
            traced_by_module[key] = (make(root, signature.bind(*rest, **kwargs)), module)
        return traced_by_module[key][0](*rest, **kwargs)

    return call


def _bound(reference: Function, module: torch.nn.Module) -> Any:
    """Return the callable of a module: the module itself, or a method of it."""
    name = getattr(reference, "__name__", "")
    return getattr(module, name) if hasattr(type(module), name) and reference is not type(module).__call__ else module


def _has_tensors(value: Any) -> bool:
    return any(True for _ in tensors_in(value, ""))


def _imported(target: str) -> Function:
    name, _, attribute = target.partition(":")
    try:
        value: Any = importlib.import_module(name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        raise NotHere(f"{target} cannot be imported: {first_line(error)}") from None
    return value


def first_line(error: BaseException) -> str:
    """Return an exception as one short sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0].rstrip(':')}" if lines else type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


TABLE = {
    "eager": Variant(_eager),
    "symbolic_trace": Variant(_symbolically_traced),
    "torchscript": Variant(_scripted),
    "compile": Variant(_compiled(), compiles=True),
    "compile reduce-overhead": Variant(_compiled(gpu=True, mode="reduce-overhead"), captured=False, compiles=True),
    "compile max-autotune": Variant(_compiled(mode="max-autotune-no-cudagraphs"), compiles=True),
    "compile cudagraphs": Variant(_compiled(gpu=True, backend="cudagraphs"), captured=False, compiles=True),
    "kernels": Variant(_kernels, kernels=True, strange=True),
}
