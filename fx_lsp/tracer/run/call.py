"""Convert a call of the target for AOTAutograd: a function of a flat list of tensors."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from fx_lsp.model import CallContext, SavedKind
from fx_lsp.tracer.run.callables import finished
from fx_lsp.tracer.run.context import entered
from fx_lsp.tracer.run.lru_caches import forget_results
from fx_lsp.tracer.run.state import Held, held_tensors, replaced, surroundings, unchanged


@dataclass
class Call:
    """Hold the target with its arguments.

    `modules` are those whose parameters are inputs of the graph, by name prefix; so are the tensors with the ids
    `touched` that the function reads itself. `created` names the parameters that the last run added to the modules. It
    is called in `context`; None where it is called in whatever is there.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, nn.Module] = field(default_factory=dict)
    parameter_names: tuple[str, ...] = ()
    touched: frozenset[int] = frozenset()
    created: list[str] = field(default_factory=list[str])
    context: CallContext | None = None

    def held(self) -> list[Held]:
        """Return the tensors that the call reads besides its arguments, each once."""
        inside = [held for prefix, module in self.modules.items() for held in held_tensors(module, prefix)]
        held_inside = [held for held in inside if not held.plain or id(held.tensor) in self.touched]
        ids = {id(held.tensor) for held in held_inside} | {id(tensor) for _, tensor in self.arguments()}
        return held_inside + surroundings(self.function, self.touched - ids, self.modules.values(), self._named())

    def arguments(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors among the arguments, each with its path."""
        for name, value in self._named():
            yield from tensors_in(value, name)

    def with_tensors(self, replacement: Callable[[str, torch.Tensor], torch.Tensor]) -> Call:
        """Return the call with another tensor for each tensor among the arguments, by its path."""
        supply = iter([replacement(path, tensor) for path, tensor in self.arguments()])
        args = tuple(substitute(value, supply) for value in self.args)
        kwargs = {name: substitute(value, supply) for name, value in self.kwargs.items()}
        return dataclasses.replace(self, args=args, kwargs=kwargs)

    def _named(self) -> list[tuple[str, Any]]:
        return [*((_argument_name(self, i), a) for i, a in enumerate(self.args)), *self.kwargs.items()]

    def run(self) -> Any:
        """Call the target with empty caches; its assignments to attributes of the modules are undone."""
        forget_results()
        with entered(self.context), unchanged(self.modules.values()) as before:
            result = finished(self.function(*self.args, **self.kwargs))
            self.created[:] = before.created()
            return result

    def run_for_good(self) -> None:
        """Call the target; its changes to the modules are kept."""
        with entered(self.context):
            finished(self.function(*self.args, **self.kwargs))


RUN_CODE: CodeType = Call.run.__code__
"""Stack frames outside the frame that runs this code are fx-lsp's, not the user's."""


@dataclass(frozen=True)
class FlatInput:
    """Hold one tensor among a call's inputs: its name in source notation, and its kind."""

    name: str
    tensor: torch.Tensor
    kind: SavedKind


def flat_inputs(call: Call) -> list[FlatInput]:
    """Return all tensors that the call reads: parameters and buffers first, then arguments in order."""
    held = [FlatInput(item.name, item.tensor, item.kind) for item in call.held()]
    return held + [FlatInput(path, tensor, "input") for path, tensor in call.arguments()]


def flat_function(
    call: Call, wrap: Callable[[], Any], outputs: list[str], function: Callable[..., Any] | None = None
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return the call as a function from the tensors of `flat_inputs(call)`, in that order, to a tuple of tensors.

    `wrap()` returns the context managers to run it in; `outputs` is filled with a name for each result. `function` runs
    in place of the call's own.
    """

    held, called = call.held(), call.function if function is None else function

    def flat(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        supply = iter(tensors)
        with ExitStack() as stack:
            stack.enter_context(replaced(held, supply))
            args = tuple(substitute(a, supply) for a in call.args)
            kwargs = {k: substitute(v, supply) for k, v in call.kwargs.items()}
            stack.enter_context(wrap())
            result = dataclasses.replace(call, function=called, args=args, kwargs=kwargs).run()
        results = list(tensors_in(result, "out"))
        outputs[:] = [name for name, _ in results]
        return tuple(tensor for _, tensor in results)

    return flat


def tensors_in(value: Any, path: str, depth: int = 6) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors inside containers and objects, each with its path: `x`, `xs[0]`, `out['a']`, `out.loss`."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > 0:
        for key, item in children(value):
            yield from tensors_in(item, f"{path}{key}", depth - 1)


def children(value: Any) -> list[tuple[str, Any]]:
    """Return the parts of a container or an object with the text that selects each; empty for anything else."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        fields: tuple[str, ...] | None = getattr(value, "_fields", None)
        return [(f".{fields[i]}" if fields else f"[{i}]", item) for i, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, nn.Module)):
        return [(f".{f.name}", getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    if is_users_object(value):
        return [(f".{name}", item) for name, item in vars(value).items()]
    return []


def is_users_object(value: Any) -> bool:
    """Return True if a value is an instance of a user-defined class, such as a batch or a tensor with its mask."""
    kind = type(value)
    if kind is SimpleNamespace:
        return True
    if isinstance(value, (nn.Module, FunctionType, type)) or kind.__module__.partition(".")[0] in _NOT_USERS:
        return False
    return isinstance(getattr(value, "__dict__", None), dict)


_NOT_USERS = {"torch", "builtins", "fx_lsp", *sys.stdlib_module_names}


def substitute(value: Any, supply: Iterator[torch.Tensor], depth: int = 6) -> Any:
    """Return a copy of `value` whose tensors are taken from `supply`, in the order of `tensors_in`."""
    if isinstance(value, torch.Tensor):
        return next(supply)
    if depth == 0 or not any(True for _ in tensors_in(value, "", depth)):
        return value
    parts = [substitute(item, supply, depth - 1) for _, item in children(value)]
    if isinstance(value, Mapping):
        return type(value)(zip(value.keys(), parts, strict=True))  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*parts)
    if isinstance(value, (list, tuple)):
        return type(value)(parts)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (f.name for f in dataclasses.fields(value))
        return dataclasses.replace(value, **dict(zip(names, parts, strict=True)))
    copied: Any = copy.copy(value)
    copied.__dict__.update(zip(vars(copied), parts, strict=True))
    return copied


def _argument_name(call: Call, index: int) -> str:
    names = call.parameter_names
    if index < len(names):
        return names[index]
    return f"args[{index - len(names)}]" if names else f"arg{index}"
