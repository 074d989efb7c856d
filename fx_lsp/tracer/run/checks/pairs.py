"""Find columns that meet rows, `[n, 1]` and `[n]`, and broadcast to all pairs of their elements.

Code that creates a column on purpose (`x[:, None]`, `unsqueeze`, `view`) means all pairs. A dimension that was merely
kept (`keepdim=True`, `x[:, 1:2]`) shows neither; then the use of the pairs decides: code that only sums them all means
a sum of n terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from fx_lsp.messages.findings import ALL_PAIRS
from fx_lsp.model import Related, Remark, Span
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.torch_calls import TorchCall

ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "true_divide", "__add__", "__radd__", "__mul__", "__rmul__", "__sub__", "__rsub__"}
    | {"__truediv__", "__rtruediv__", "where", "pow", "maximum", "minimum", "__iadd__", "__imul__"}
)
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_COMPARING = frozenset({*_COMPARISONS, *(f"__{name}__" for name in _COMPARISONS)})
_PAIRING = ELEMENTWISE | _COMPARING | {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "rsub", "max", "min"}
"""Calls that broadcast, and that seldom mean all pairs."""
_SHAPING = frozenset({"unsqueeze", "view", "reshape", "expand", "unflatten", "expand_dims", "view_as", "reshape_as"})
"""Calls that give a dimension the size 1 explicitly."""
_SELECTING = frozenset({"gather", "take_along_dim"})
"""Calls whose result has the shape of their index, independently of its use."""
_TOTALS = frozenset({"mean", "sum", "nanmean", "nansum"})


class Columns:
    """Track the tensors of one run: intended columns, and uses of pairs that may be intended."""

    def __init__(self) -> None:
        self._meant, self._kept = WeakTensorKeyDictionary(), WeakTensorKeyDictionary()
        self._doubtful = WeakTensorKeyDictionary()

    def __call__(self, call: TorchCall) -> Iterator[Remark]:
        """Yield a remark on a pairing that this call shows to be an accident."""
        pairing = self._pairing(call.name, call.args, call.kwargs, call.result, call.chain[0])
        if pairing is not None:
            yield pairing

    def pairing_of(self, tensors: Iterable[torch.Tensor]) -> Related | None:
        """Return where one of some tensors was paired, if the code may not mean all pairs; else None."""
        doubtful = (self._doubtful[tensor] for tensor in tensors if tensor in self._doubtful)
        pairing: Remark | None = next(doubtful, None) if len(self._doubtful) else None
        if pairing is None or pairing.span is None:
            return None
        return Related(pairing.span, "a column and a row broadcast here to all pairs of their elements")

    def _pairing(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, span: Span
    ) -> Remark | None:
        pairing = self._crossed(args, span) if name in _PAIRING else None
        is_doubtful = pairing is not None and any(isinstance(a, torch.Tensor) and a in self._kept for a in args[:2])
        if is_doubtful and isinstance(result, torch.Tensor) and result.dim() == 2:
            self._doubtful[result] = pairing
            return None
        self._note(name, args, kwargs, result)
        return pairing or self._added_up(name, args, kwargs, result)

    def _note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Record a result with a dimension of size 1 that the code created explicitly, or that derives from one."""
        if not isinstance(result, torch.Tensor) or not any(_is_size(size, 1) for size in result.shape):
            return
        operands = args[:1] if name in _SELECTING else args
        tensors = [a for a in operands if isinstance(a, torch.Tensor)]
        keeps = kwargs.get("keepdim") or any(a is True for a in args[2:]) or name == "__getitem__"
        if any(a in self._meant for a in tensors) or name in _SHAPING or (name == "__getitem__" and _adds_axis(args)):
            self._meant[result] = True
        elif keeps or any(a in self._kept for a in tensors):
            self._kept[result] = True

    def _added_up(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Remark | None:
        """Return the doubtful pairing that a call sums completely; results with the shape of the pairs are tracked."""
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        pairs = [a for a in tensors if a in self._doubtful]
        if not pairs or not isinstance(result, torch.Tensor):
            return None
        pairing: Remark = self._doubtful[pairs[0]]
        if name in _TOTALS:
            return pairing if len(args) == 1 and not {"dim", "axis"} & kwargs.keys() else None
        if result.shape == pairs[0].shape and all(a in self._doubtful or a.dim() < 2 for a in tensors):
            self._doubtful[result] = pairing
        return None

    def _crossed(self, args: tuple[Any, ...], span: Span) -> Remark | None:
        """Return the remark on a column `[n, 1]` and a row `[n]` that a call receives, if nothing shows that all pairs
        are meant.
        """
        tensors = [a for a in args[:2] if isinstance(a, torch.Tensor)]
        if len(tensors) < 2 or tensors[0].dim() == tensors[1].dim():
            return None
        row, column = sorted(tensors, key=lambda tensor: tensor.dim())
        sizes = column.shape
        if row.dim() != 1 or len(sizes) != 2 or not _is_size(sizes[1], 1):
            return None
        if not _is_size(sizes[0], row.shape[0]) or _is_size(sizes[0], 1):
            return None
        if column in self._meant:
            return None
        first, second = map(spec_of, tensors)
        return ALL_PAIRS.remark(span, first=first, second=second)


def _is_size(one: int | torch.SymInt, other: int | torch.SymInt) -> bool:
    """Return True for the same number, or the same symbol, without adding a guard."""
    first, second = (size.node.expr if isinstance(size, torch.SymInt) else size for size in (one, other))
    return bool(first == second)


def _adds_axis(args: tuple[Any, ...]) -> bool:
    """Return True for `x[:, None]`."""
    index = args[1] if len(args) > 1 else None
    return index is None or (isinstance(index, tuple) and any(part is None for part in index))
