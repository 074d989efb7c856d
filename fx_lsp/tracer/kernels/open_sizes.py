"""Trace a call again with sizes that its code leaves open, so that kernels take any batch and any length.

Each open size is a symbol. Sizes that the code fixes, or finds equal to others, are found by a run with a symbol for
each; what else the code asks about a symbol is a condition of the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import torch

from fx_lsp.tracer.compat import sympy
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.run.call import Call, tensors_in
from fx_lsp.tracer.run.conditions import Conditions, under
from fx_lsp.tracer.run.values.symbols import Symbols, expressions, with_sizes
from fx_lsp.tracer.source.names import identifier

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

Dimension: TypeAlias = "tuple[str, int]"
"""The path of an argument, and the number of a dimension."""


def open_sizes(traced: TracedCall) -> Iterator[TracedCall]:
    """Yield the call with open sizes: first with every batch and length, then with the batch alone.

    Yields nothing for a call whose comment names sizes, or whose code needs numbers.
    """
    before = 0
    for choose in (_lengths, _batch) if not traced.symbolic else ():
        free = _freed(traced, _chosen(traced.call, choose))
        symbols = free.conditions.symbols if free is not None else None
        if free is not None and symbols is not None and symbols.hints and len(symbols.hints) != before:
            before = len(symbols.hints)
            yield free


def _lengths(tensor: torch.Tensor) -> range:
    """Return the dimensions that may be a batch or a length: not the last one of features, which kernels tile."""
    has_features = tensor.dim() > 1 and (tensor.is_floating_point() or tensor.is_complex())
    return range(tensor.dim() - has_features)


def _batch(tensor: torch.Tensor) -> range:
    """Return the first dimension. No offset in a contiguous tensor is computed from its size."""
    return range(min(1, len(_lengths(tensor))))


def _chosen(call: Call, choose: Callable[[torch.Tensor], range]) -> dict[Dimension, str]:
    """Return a name for each dimension that is chosen, and may be a symbol: that has more than one element."""
    names: dict[Dimension, str] = {}
    for path, tensor in call.arguments():
        names.update({(path, dim): f"{identifier(path)}_{dim}" for dim in choose(tensor) if tensor.shape[dim] > 1})
    return names


def _freed(traced: TracedCall, names: Mapping[Dimension, str]) -> TracedCall | None:
    """Return the call with these sizes open, as far as its code allows; None if it does not run so."""
    hints = {name: _size_of(traced.call, place) for place, name in names.items()}
    try:
        symbols = _run_on_symbols(traced, names, hints).conditions.symbols
        assert symbols is not None
        names_of: dict[str, str] = {}
        values = {place: symbols.value_of(name) for place, name in names.items()}
        equal = {
            place: names_of.setdefault(value, names[place]) for place, value in values.items() if not value.isdigit()
        }
        hints = {name: hints[name] for name in equal.values()}
        free = _run_on_symbols(traced, equal, hints)
    except Exception:  # the code's own, or PyTorch's: it needs numbers
        return None
    symbols = free.conditions.symbols
    assert symbols is not None
    symbols.not_one += [_is_not_one(name) for name in hints if not _allows_one(traced, free, equal, {**hints, name: 1})]
    return free


def _allows_one(traced: TracedCall, free: TracedCall, names: Mapping[Dimension, str], sizes: Mapping[str, int]) -> bool:
    """Return True if results for these numbers have the shapes that those for symbols have.

    PyTorch removes and expands dimensions of size 1, but a symbol is larger.
    """
    numbers = {sympy.Symbol(name, integer=True, positive=True): sympy.Integer(size) for name, size in sizes.items()}
    try:
        expected = [[s.xreplace(numbers) for s in expressions(t.shape)] for _, t in tensors_in(free.result, "out")]
        plain = _run(traced, names, sizes, traced.conditions)
    except Exception:  # the code does not allow it
        return False
    return expected == [expressions(t.shape) for _, t in tensors_in(plain.result, "out")]


def _is_not_one(name: str) -> sympy.Basic:
    return sympy.Ne(sympy.Symbol(name, integer=True, positive=True), 1)


def _size_of(call: Call, place: Dimension) -> int:
    path, dim = place
    return next(tensor.shape[dim] for name, tensor in call.arguments() if name == path)


def _run_on_symbols(traced: TracedCall, names: Mapping[Dimension, str], hints: Mapping[str, int]) -> TracedCall:
    """Run the call with symbols of these names as sizes, and return it with its result."""
    symbols = Symbols(traced.sources, traced.request.source.splitlines(), {}, unbacked=False)
    conditions = dataclasses.replace(traced.conditions, symbols=symbols)
    with under(traced.mode, conditions):
        sizes = symbols.sizes(hints)
    return _run(traced, names, sizes, conditions)


def _run(
    traced: TracedCall, names: Mapping[Dimension, str], sizes: Mapping[str, int | torch.SymInt], conditions: Conditions
) -> TracedCall:
    """Run the call with other sizes, by their names, and return it with its result."""
    with under(traced.mode, conditions), forbid_effects(), traced.mode:
        call = _SizedCall(names, sizes).call(traced.call)
        result = call.run()
    return dataclasses.replace(traced, call=call, conditions=conditions, result=result)


@dataclass
class _SizedCall:
    """Replace sizes of a call: each dimension with a name has the size of that name."""

    names: Mapping[Dimension, str]
    sizes: Mapping[str, int | torch.SymInt]
    tensors: dict[int, torch.Tensor] = field(default_factory=dict[int, torch.Tensor])

    def call(self, call: Call) -> Call:
        """Return the call with other sizes."""
        return call.with_tensors(self._tensor)

    def _tensor(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with other sizes; the same one for a tensor that is passed twice."""
        if id(tensor) not in self.tensors:
            self.tensors[id(tensor)] = with_sizes(tensor, lambda dim: self._size(path, dim, tensor.shape[dim]))
        return self.tensors[id(tensor)]

    def _size(self, path: str, dim: int, size: int) -> int | torch.SymInt:
        name = self.names.get((path, dim))
        return size if name is None else self.sizes[name]
