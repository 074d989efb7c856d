"""Replace real tensors that traced code reads itself, such as constants of a closure, by fake ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.source.provenance import METADATA

_VALUES = frozenset(
    getattr(torch.Tensor, name)
    for name in ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__complex__")
)


class StandIns(TorchFunctionMode):
    """Pass a fake tensor to torch calls for each real one, so that none is computed with or written into.

    `touched` are the ids of those real tensors. Calls that only read a value get it. Unless `writable`, raises
    ValueError if the code writes into one, because a graph cannot express that for a constant. A `rehearsed` call is
    known not to write into them, and real tensors stay: AOTAutograd takes those as constants.
    """

    def __init__(self, mode: FakeTensorMode, rehearsed: bool) -> None:
        super().__init__()
        self._mode = mode
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._reals: dict[int, torch.Tensor] = {}
        self.touched: set[int] = set()
        self.writable = False
        self.rehearsed = rehearsed

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _VALUES and args and _is_real(args[0]):
            with _disable_current_modes():
                return func(args[0].detach(), *args[1:], **kwargs)
        if self.rehearsed or func in METADATA:
            return func(*args, **kwargs)
        used: list[torch.Tensor] = []
        args = tuple(self._swapped(a, used) for a in args)
        kwargs = {name: self._swapped(a, used) for name, a in kwargs.items()}
        versions = [fake._version for fake in used]
        result = func(*args, **kwargs)
        if not self.writable and [fake._version for fake in used] != versions:
            name = getattr(func, "__name__", "an operation")
            raise ValueError(
                f"no graph was captured: `{name}` writes into a tensor that is not an input; pass that tensor "
                "as an input, or pass the module that holds it instead of a function around it"
            )
        return self._reals.get(id(result), result)

    def _swapped(self, value: Any, used: list[torch.Tensor]) -> Any:
        if _is_real(value):
            used.append(self._fake(value))
            return used[-1]
        if type(value) in (list, tuple):
            return type(value)(self._swapped(item, used) for item in value)
        return value

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in self._fakes:
            with _disable_current_modes(), torch.no_grad():
                fake = self._mode.from_tensor(tensor, static_shapes=True).detach()
            self._fakes[id(tensor)] = tensor, fake
            self._reals[id(fake)] = tensor
            self.touched.add(id(tensor))
        return self._fakes[id(tensor)][1]


def _is_real(value: Any) -> bool:
    """Return True for data, False for a tensor of a trace or of `torch.func`."""
    return type(value) in (torch.Tensor, nn.Parameter) and not is_functorch_wrapped_tensor(value)
