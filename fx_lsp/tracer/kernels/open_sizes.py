"""Trace a call again with sizes that its code leaves open, so that kernels take any batch and any length.

Each open size is a symbol. Sizes that the code fixes, or finds equal to others, are found by a run with a symbol for
each; what else the code asks about a symbol is a condition of the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
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


MAX_GROUPS = 4
"""The most sizes that are tried one by one: each of them takes a generation."""


def with_open_sizes(traced: TracedCall, accept: Callable[[TracedCall], T | None]) -> T | None:
    """Return what `accept` returns for the call with as many open sizes as it accepts, None if it accepts none.

    It is asked for every batch and length together first; else for the batch, and for the lengths one by one. It is not
    asked about a call whose comment names sizes, or whose code needs numbers.
    """
    names = _chosen(traced.call) if not traced.symbolic else {}
    every = _freed(traced, names)
    result = accept(every) if every is not None else None
    if result is not None or not names:
        return result
    opened, tried = dict[Dimension, str](), {_open_names(every)}
    for group in _groups(traced, names)[:MAX_GROUPS]:
        wider = {**opened, **group}
        free = _freed(traced, wider)
        if free is None or _open_names(free) in tried:
            continue
        tried.add(_open_names(free))
        accepted = accept(free)
        if accepted is not None:
            opened, result = wider, accepted
    return result


def _groups(traced: TracedCall, names: Mapping[Dimension, str]) -> list[dict[Dimension, str]]:
    """Return dimensions of equal size together, as groups; the first dimensions of tensors come first."""
    try:
        equal = _equal_sizes(traced, names)
    except Exception:  # the code's own, or PyTorch's: it needs numbers
        equal = names
    order = sorted(equal, key=lambda place: place[1])
    return [
        {place: names[place] for place in order if equal[place] == name}
        for name in dict.fromkeys(equal[place] for place in order)
    ]


def _open_names(free: TracedCall | None) -> frozenset[str]:
    """Return the names of the open sizes of a call."""
    symbols = free.conditions.symbols if free is not None else None
    return frozenset(symbols.hints) if symbols is not None else frozenset()


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


def _freed(traced: TracedCall, names: Mapping[Dimension, str]) -> TracedCall | None:
    """Return the call with these sizes open, as far as its code allows; None if it does not run so, or fixes all."""
    try:
        equal = _equal_sizes(traced, names)
        hints = {name: _size_of(traced.call, place) for place, name in names.items() if name in equal.values()}
        free = _run_on_symbols(traced, equal, hints)
    except Exception:  # the code's own, or PyTorch's: it needs numbers
        return None
    symbols = free.conditions.symbols
    assert symbols is not None
    if not hints:
        return None
    symbols.not_one += [_is_not_one(name) for name in hints if not _allows_one(traced, free, equal, {**hints, name: 1})]
    return free


def _equal_sizes(traced: TracedCall, names: Mapping[Dimension, str]) -> dict[Dimension, str]:
    """Return one name for the dimensions that the code finds equal, and none for those that it fixes."""
    hints = {name: _size_of(traced.call, place) for place, name in names.items()}
    symbols = _run_on_symbols(traced, names, hints).conditions.symbols
    assert symbols is not None
    names_of: dict[str, str] = {}
    values = {place: symbols.value_of(name) for place, name in names.items()}
    return {place: names_of.setdefault(value, names[place]) for place, value in values.items() if not value.isdigit()}


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
