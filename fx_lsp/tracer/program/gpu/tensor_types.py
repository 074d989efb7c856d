"""Simulate the tensor types of a missing GPU: `torch.cuda.FloatTensor(4, 8)`, `x.type(torch.cuda.LongTensor)`."""

from __future__ import annotations

from typing import Any

import torch

_PREFIX = "torch.cuda."


class TensorType:
    """A tensor type: it creates tensors, and tensors may be instances of it."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.name, self.dtype = name, dtype

    def __call__(self, *arguments: Any) -> torch.Tensor:
        """Return a tensor of those sizes, or of that data."""
        data = arguments[0] if len(arguments) == 1 else arguments
        is_sizes = isinstance(data, torch.Size) or (data is arguments and all(isinstance(n, int) for n in arguments))
        if is_sizes or isinstance(data, int):
            return torch.empty(data, dtype=self.dtype, device="cuda")
        return torch.as_tensor(data, dtype=self.dtype, device="cuda")

    def __instancecheck__(self, value: Any) -> bool:
        """Return True for a tensor on the GPU of that dtype."""
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is self.dtype

    def __repr__(self) -> str:
        """Return PyTorch's name of the type."""
        return f"<class '{_PREFIX}{self.name}'>"


_KIND = type(torch.FloatTensor)
TYPES = {name: TensorType(name, kind.dtype) for name, kind in vars(torch.cuda).items() if type(kind) is _KIND}


def named_type(kind: Any) -> TensorType | None:
    """Return the type of GPU tensors for it or its name; None for any other."""
    if isinstance(kind, str) and kind.startswith(_PREFIX):
        return TYPES.get(kind.removeprefix(_PREFIX))
    return kind if isinstance(kind, TensorType) else None


def name_of_type(tensor: torch.Tensor) -> str:
    """Return the name of the type of a tensor on a GPU."""
    return _PREFIX + next((t.name for t in TYPES.values() if t.dtype is tensor.dtype), "FloatTensor")
