"""Describe calls of PyTorch functions during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch._C._functorch import is_functorch_wrapped_tensor

from fx_lsp.model import Related
from fx_lsp.tracer.source.provenance import Chain


@dataclass
class FailedCall:
    """Hold the torch call that raised: its function, its arguments, and the user's expressions around it.

    `pairing` is the place where an operand was broadcast to all pairs of a column and a row, perhaps by accident.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    chain: Chain
    pairing: Related | None = None

    @property
    def is_repeatable(self) -> bool:
        """Return True if it can be repeated: a tensor wrapped by `torch.func` is invalid after its transformation."""
        return not any(is_functorch_wrapped_tensor(tensor) for tensor in tensors_among(self.args, self.kwargs))


Caller = Literal["code", "layer", "library"]
"""The caller of a torch call: the code of the target's file, a layer of `torch.nn`, or another library."""


@dataclass
class TorchCall:
    """Hold a torch call that returned, with its result, and the user's expressions around it."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    chain: Chain
    caller: Caller = "code"

    @property
    def name(self) -> str:
        """Return the name of the function: `softmax`, `__add__`."""
        return getattr(self.func, "__name__", "")

    def argument(self, place: int, name: str, default: Any = None) -> Any:
        """Return the argument at a position or with a name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)


def tensors_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among the arguments of a torch call, also those in its lists."""
    for a in (*args, *kwargs.values()):
        if isinstance(a, torch.Tensor):
            yield a
        elif isinstance(a, (list, tuple)):
            yield from (item for item in a if isinstance(item, torch.Tensor))
