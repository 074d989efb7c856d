"""Make the sizes of a call symbolic: those of its tensors, and the numbers in its arguments and modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import nn

from fx_lsp.tracer.compat import sympy
from fx_lsp.tracer.inputs.plan.signatures import signature_of
from fx_lsp.tracer.inputs.solve.path_conditions import PathConditions
from fx_lsp.tracer.run.call import Call, is_users_object
from fx_lsp.tracer.run.values.symbols import with_sizes

Sizes: TypeAlias = "tuple[Any, ...]"
"""The sizes of a tensor as expressions of symbols."""


def expression_of(size: int | torch.SymInt) -> Any:
    """Return a size as an expression."""
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(int(size))


def sizes_of(tensor: torch.Tensor) -> Sizes:
    """Return the sizes of a tensor as expressions."""
    return tuple(map(expression_of, tensor.shape))


@dataclass
class SymbolicCall:
    """Create symbols for the sizes of a call's tensors, and with `numbers` also for its integers.

    `paths` are the inputs of symbols that are sizes, `attributes` the names of numbers that modules store, and `inputs`
    the sizes of each input.
    """

    conditions: PathConditions
    numbers: bool
    paths: dict[sympy.Symbol, str] = field(default_factory=dict[sympy.Symbol, str])
    attributes: dict[sympy.Symbol, str] = field(default_factory=dict[sympy.Symbol, str])
    inputs: dict[str, Sizes] = field(default_factory=dict[str, Sizes])
    _tensors: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])
    _numbers: dict[tuple[str, int], torch.SymInt] = field(default_factory=dict["tuple[str, int]", torch.SymInt])

    def call(self, call: Call) -> Call:
        """Return the call with symbols as the sizes of its tensors; numeric defaults are passed as symbols."""
        symbolic = call.with_tensors(self._tensor)
        args = tuple(self._argument(i, value) for i, value in enumerate(symbolic.args))
        kwargs = {name: self._argument(name, value) for name, value in symbolic.kwargs.items()}
        return dataclasses.replace(call, args=args, kwargs={**self._defaults(call), **kwargs})

    def _defaults(self, call: Call) -> dict[str, Any]:
        signature = signature_of(getattr(call.function, "forward", call.function))
        if not self.numbers or signature is None:
            return {}
        rest = list(signature.parameters.values())[len(call.args) :]
        passed = [p for p in rest if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and _is_number(p.default)]
        return {p.name: self._number(p.name, p.default) for p in passed}

    def _argument(self, place: int | str, value: Any) -> Any:
        return self._number(f"argument {place}", value) if self.numbers and _is_number(value) else value

    def _number(self, name: str, value: int) -> torch.SymInt:
        if (name, value) not in self._numbers:
            self._numbers[name, value] = self.conditions.size(f"{name}={value}", value)
        return self._numbers[name, value]

    def _tensor(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = self._symbolic(tensor, path)
        self.inputs[path] = sizes_of(self._tensors[id(tensor)])
        return self._tensors[id(tensor)]

    def _symbolic(self, tensor: torch.Tensor, path: str) -> torch.Tensor:
        def size(dim: int) -> int | torch.SymInt:
            if tensor.shape[dim] <= 1:
                return tensor.shape[dim]
            symbol = self.conditions.size(f"{path}.{dim}", tensor.shape[dim])
            self.paths[symbol.node.expr] = path
            return symbol

        return with_sizes(tensor, size)

    @contextmanager
    def in_modules(self, modules: Iterable[nn.Module]) -> Generator[None, None, None]:
        """Replace numbers in the user's modules and their configurations by symbols inside."""
        replaced: list[tuple[dict[str, Any], str, int]] = []
        for owner in _owners(modules) if self.numbers else ():
            fields = vars(owner)
            for name, value in list(fields.items()):
                if _is_number(value) and not name.startswith("_"):
                    replaced.append((fields, name, value))
                    fields[name] = number = self._number(name, value)
                    self.attributes[number.node.expr] = name
        try:
            yield
        finally:
            for fields, name, value in replaced:
                fields[name] = value


def _is_number(value: Any) -> bool:
    """Return True for an integer that can be a generic size."""
    return type(value) is int and value > 1


def _owners(modules: Iterable[nn.Module]) -> Iterator[Any]:
    """Yield the user's modules, and user objects that they store."""
    seen: set[int] = set()
    for module in (part for whole in modules for part in whole.modules()):
        if type(module).__module__.partition(".")[0] == "torch":
            continue
        yield module
        for value in list(vars(module).values()):
            if id(value) not in seen and is_users_object(value):
                seen.add(id(value))
                yield value
