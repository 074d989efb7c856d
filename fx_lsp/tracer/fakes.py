"""Objects that hold fake tensors, also where their constructor needs real ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensor, FakeTensorMode


def construct_fake(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)` with fake tensors; call it inside a fake mode.

    A module whose constructor reads the values of tensors is built from real ones, which are then replaced.
    """
    try:
        return cls(*args, **kwargs)
    except DATA_DEPENDENT:
        if not issubclass(cls, nn.Module):
            raise
    with unset_fake_temporarily() as mode:
        module = cls(*args, **kwargs)
    assert isinstance(mode, FakeTensorMode)
    _replace_tensors(module, mode)
    return module


def _replace_tensors(module: nn.Module, mode: FakeTensorMode) -> None:
    made: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in made:
            made[id(tensor)] = mode.from_tensor(tensor)
        return made[id(tensor)]

    for part in module.modules():
        stores: list[dict[str, Any]] = [part._parameters, part._buffers, part.__dict__]
        for store in stores:
            for name, value in list(store.items()):
                if isinstance(value, torch.Tensor):
                    store[name] = fake(value)
