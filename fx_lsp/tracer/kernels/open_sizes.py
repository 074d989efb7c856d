"""Trace a call again with sizes that its code leaves open, so that kernels take any batch and any length.

Each open size is a symbol. Sizes that the code fixes, or finds equal to others, are found by a run with a symbol for
each; what else the code asks about a symbol is a condition of the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch

from fx_lsp.tracer.compat import sympy
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.run.call import Call, tensors_in
from fx_lsp.tracer.run.conditions import Conditions, under
from fx_lsp.tracer.run.values.symbols import Symbols, expressions, with_sizes
from fx_lsp.tracer.source.names import identifier

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

T = TypeVar("T")

Dimension: TypeAlias = "tuple[str, int]"
"""The path of an argument, and the number of a dimension."""


def with_open_sizes(traced: TracedCall, accept: Callable[[TracedCall], tuple[T | None, Collection[str]]]) -> T | None:
    """Return what `accept` returns for the call with as many open sizes as it accepts, None if it accepts none.

    It is asked for every batch and length together first, and returns as well the names of the sizes that it refuses:
    those are fixed then. If it returns nothing and refuses none, or if the code needs numbers, only the batch stays
    open. It is not asked about a call whose comment names sizes.
    """
    names = {} if traced.symbolic else _chosen(traced.call)
    while names:
        free, equal = _freed(traced, names)
        result, refused = (None, ()) if free is None else accept(free)
        if result is not None and not refused:
            return result
        kept = {place: name for place, name in names.items() if place in equal and equal[place] not in refused}
        if not refused:
            first = min(kept, key=lambda place: place[1], default=None)
            kept = {place: name for place, name in kept.items() if first and equal[place] == equal[first]}
        names = kept if kept.keys() < names.keys() else {}
    return None


def _lengths(tensor: torch.Tensor) -> range:
    """Return the dimensions that may be a batch or a length: not the last one of features, which kernels tile."""
    has_features = tensor.dim() > 1 and (tensor.is_floating_point() or tensor.is_complex())
    return range(tensor.dim() - has_features)


def _chosen(call: Call) -> dict[Dimension, str]:
    """Return a name for each dimension that may be a symbol: a batch or a length of more than one element."""
    names: dict[Dimension, str] = {}
    for path, tensor in call.arguments():
        names.update({(path, dim): f"{identifier(path)}_{dim}" for dim in _lengths(tensor) if tensor.shape[dim] > 1})
    return names


def _freed(traced: TracedCall, names: Mapping[Dimension, str]) -> tuple[TracedCall | None, dict[Dimension, str]]:
    """Return the call with these sizes open, as far as its code allows, and the names of those that are; None if it
    does not run so, or fixes all.
    """
    equal = dict(names)
    try:
        equal = _equal_sizes(traced, names)
        hints = {name: _size_of(traced.call, place) for place, name in names.items() if name in equal.values()}
        free = _run_on_symbols(traced, equal, hints)
    except Exception:  # the code's own, or PyTorch's: it needs numbers
        return None, equal
    symbols = free.conditions.symbols
    assert symbols is not None
    if not hints:
        return None, equal
    refused = [name for name in hints if not _allows_one(traced, free, equal, {**hints, name: 1})]
    symbols.not_one += [sympy.Ne(sympy.Symbol(name, integer=True, positive=True), 1) for name in refused]
    return free, equal


def _equal_sizes(traced: TracedCall, names: Mapping[Dimension, str]) -> dict[Dimension, str]:
    """Return one name for the dimensions that the code finds equal, and none for those that it fixes.

    Code fixes a size that has to be at least what it is: the code reads all of that dimension at constant places.
    """
    hints = {name: _size_of(traced.call, place) for place, name in names.items()}
    symbols = _run_on_symbols(traced, names, hints).conditions.symbols
    assert symbols is not None
    conditions = list(symbols.conditions())
    values = {place: symbols.value_of(name) for place, name in names.items()}
    names_of: dict[str, str] = {}
    for place, value in values.items():
        if not value.isdigit() and not _is_least(names[place], hints[names[place]], conditions):
            names_of.setdefault(value, names[place])
    return {place: names_of[value] for place, value in values.items() if value in names_of}


def _is_least(name: str, size: int, conditions: Iterable[sympy.Basic]) -> bool:
    """Return True if a condition allows larger sizes than this one, and no smaller ones."""
    symbol = sympy.Symbol(name, integer=True, positive=True)
    asked = [c for c in conditions if c.free_symbols == {symbol}]
    others = (size - 1, size + 1, 3 * size + 1)
    return [False, True, True] in ([bool(c.xreplace({symbol: sympy.Integer(n)})) for n in others] for c in asked)


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
