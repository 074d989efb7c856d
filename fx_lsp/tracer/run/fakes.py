"""Provide the mode of fake tensors, and construct objects with fake tensors even if their constructor needs
real ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.parameter import is_lazy

from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensor, FakeTensorMode
from fx_lsp.tracer.run.dtype_checks import ask_kernels
from fx_lsp.tracer.run.operations import grouped_mm
from fx_lsp.tracer.run.operations.lengths import take_lengths
from fx_lsp.tracer.run.values.constants import keep_values

grouped_mm.register()


def fake_mode() -> FakeTensorMode:
    """Return the single mode of all fake tensors of a trace, including copies of modules.

    It is not a subclass: higher-order operators dispatch on a mode's exact class.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.__dict__["__deepcopy__"] = lambda memo: mode  # pyright: ignore[reportUnknownLambdaType]
    keep_values(mode)
    take_lengths(mode)
    ask_kernels(mode)
    return mode


@contextmanager
def movable_modules() -> Generator[None, None, None]:
    """Make `module.to(…)`, `.half()` and the like work inside on modules with fake parameters, which torch cannot swap.

    A tensor that a module holds twice is converted once. Replaced tensors are kept until the end, because a new one
    could get the id of an old one.
    """
    original = nn.Module._apply
    done: dict[int, tuple[torch.Tensor, torch.Tensor]] | None = None

    def apply(self: nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        nonlocal done
        if done is None:
            done = {}
            try:
                return apply(self, fn, recurse)
            finally:
                done = None
        for child in self.children() if recurse else ():
            child._apply(fn)
        stores: list[dict[str, Any]] = [self._parameters, self._buffers]
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None:
                    if id(tensor) not in done:
                        changed = _changed(tensor, fn)
                        done[id(tensor)] = tensor, changed
                        done[id(changed)] = changed, changed
                    _, store[name] = done[id(tensor)]
        return self

    nn.Module._apply = apply
    try:
        yield
    finally:
        nn.Module._apply = original


@contextmanager
def copied_tensors() -> Generator[None, None, None]:
    """Allow pickling and deep copies of fake tensors inside, including those of a captured graph.

    They have no bytes to write or to copy. Both return a copy without gradient flow.
    """

    def reduce(tensor: torch.Tensor, protocol: Any) -> tuple[Callable[..., Any], tuple[int]]:
        _PICKLED.append(tensor)
        return _unpickled, (len(_PICKLED) - 1,)

    kinds: tuple[Any, ...] = (FakeTensor, FunctionalTensor)
    for kind in kinds:
        kind.__reduce_ex__, kind.__deepcopy__ = reduce, _deep_copy
    try:
        yield
    finally:
        for kind in kinds:
            del kind.__reduce_ex__, kind.__deepcopy__
        _PICKLED.clear()


_PICKLED: list[torch.Tensor] = []


def _deep_copy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    if isinstance(tensor, FakeTensor) and not tensor.is_leaf:
        return torch.Tensor.__deepcopy__(tensor, memo)  # raises: PyTorch only copies leaves
    if id(tensor) not in memo:
        memo[id(tensor)] = _copy_of(tensor)
    return memo[id(tensor)]


def _unpickled(number: int) -> torch.Tensor:
    return _copy_of(_PICKLED[number])


@contextmanager
def formatted_numbers() -> Generator[None, None, None]:
    """Format a tensor of one number as a number inside, `f"{loss:.4f}"`, also a fake one."""
    plain = torch.Tensor.__format__

    def formatted(self: torch.Tensor, spec: str) -> str:
        is_number = isinstance(self, FakeTensor) and self.dim() == 0
        return format(self.item(), spec) if is_number and spec else plain(self, spec)

    with mock.patch.object(torch.Tensor, "__format__", formatted):
        yield


def _copy_of(original: torch.Tensor) -> torch.Tensor:
    copied = original.detach().clone()
    if isinstance(original, nn.Parameter):
        copied = nn.Parameter(copied, requires_grad=original.requires_grad)
    else:
        copied.requires_grad_(original.requires_grad)
    vars(copied).update({name: value for name, value in vars(original).items() if name not in vars(copied)})
    return copied


def _changed(tensor: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return the converted tensor of a module. A parameter remains the same object, which optimizers may hold, unless
    its new values are of another kind, as on the device "meta".
    """
    with torch.no_grad():
        changed = fn(tensor)
    if is_lazy(tensor):
        kind: Any = type(tensor)
        return kind(tensor.requires_grad, device=changed.device, dtype=changed.dtype)
    if changed is tensor or not isinstance(tensor, nn.Parameter):
        return changed
    is_alike: bool = torch._has_compatible_shallow_copy_type(tensor, changed)
    if is_alike and isinstance(tensor, FakeTensor) and isinstance(changed, FakeTensor):
        tensor.data, tensor.fake_device = changed, changed.fake_device
        return tensor
    return nn.Parameter(changed, requires_grad=tensor.requires_grad)


def construct_fake(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return `cls(*args, **kwargs)` with fake tensors; call it inside a fake mode.

    A module whose constructor reads the values of tensors is built from real ones, which are then replaced. An abstract
    class is instantiated with its abstract methods as they are.
    """
    cls = _concrete(cls)
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


def _concrete(cls: type) -> type:
    if not inspect.isabstract(cls):
        return cls
    concrete = type(cls)(cls.__name__, (cls,), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})
    concrete.__abstractmethods__ = frozenset()  # pyright: ignore[reportAttributeAccessIssue]
    return concrete


def _replace_tensors(module: nn.Module, mode: FakeTensorMode) -> None:
    fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in fakes:
            fakes[id(tensor)] = tensor, mode.from_tensor(tensor)
        return fakes[id(tensor)][1]

    for part in module.modules():
        stores: list[dict[str, Any]] = [part._parameters, part._buffers, part.__dict__]
        for store in stores:
            for name, value in list(store.items()):
                if isinstance(value, torch.Tensor):
                    store[name] = fake(value)
