"""What stands in for values, and for what would compute with them, while a script is rehearsed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensor
from fx_lsp.tracer.program.absences import AbsentError

NUMBER = 0.5
"""What a floating-point number is taken for that a tensor would have."""


class NumberOfData(float):
    """A number that depends on data: it is computed with and shown, and is no number of elements."""

    def _no_count(self, *args: Any) -> Any:
        raise AbsentError(ValueError("the value of a tensor is not known"))

    __int__ = __trunc__ = __floor__ = __ceil__ = _no_count

    def __round__(self, digits: Any = None) -> Any:
        return self._no_count() if digits is None else self


def _computed(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def compute(self: float, *others: Any) -> Any:
        result = plain(self, *others)
        return NumberOfData(result) if isinstance(result, float) else result

    return compute


NumberOfData.__name__ = float.__name__  # what errors call it
for _operation in ("add", "sub", "mul", "truediv", "pow", "mod", "floordiv"):
    for _name in (f"__{_operation}__", f"__r{_operation}__"):
        setattr(NumberOfData, _name, _computed(_name))
for _name in ("__neg__", "__abs__", "__pos__"):
    setattr(NumberOfData, _name, _computed(_name))


@contextmanager
def numbers_of_data(forget: Callable[[], None]) -> Generator[None, None, None]:
    """Inside, a tensor without values gives a number where its own is asked for, and is not true.

    Integers count things, so that they stay unknown. `forget` is called where a number was given.
    """

    def number_of(original: Callable[[Any], Any], of_kind: Callable[[torch.Tensor], Any]) -> Callable[[Any], Any]:
        def number(self: torch.Tensor) -> Any:
            try:
                return original(self)
            except DATA_DEPENDENT:
                value = of_kind(self) if self.numel() == 1 else None
                if value is None:
                    raise
                forget()
                return value

        return number

    with ExitStack() as stack:
        for name, of_kind in (("item", _item), ("__float__", _item), ("__bool__", _truth)):
            replacement = number_of(getattr(torch.Tensor, name), of_kind)
            stack.enter_context(patch.object(FakeTensor, name, replacement, create=True))
        yield


def _item(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bool:
        return False
    return NumberOfData(NUMBER) if tensor.dtype.is_floating_point else None


def _truth(tensor: torch.Tensor) -> Any:
    return False


@contextmanager
def plain_steps() -> Generator[None, None, None]:
    """Inside, PyTorch's optimizers change each parameter by its gradient, in place, and compute no more."""
    with ExitStack() as stack:
        kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type) and issubclass(kind, Optimizer)]
        for kind in kinds:
            if "step" in vars(kind) and kind is not Optimizer:
                stack.enter_context(patch.object(kind, "step", _plain_step))
        yield


@contextmanager
def no_remote_calls() -> Generator[None, None, None]:
    """Inside, there are no other processes that a script could wait for."""
    if not dist.is_available():
        yield
        return
    rpc: Any = importlib.import_module("torch.distributed.rpc")

    def init_rpc(*args: Any, **kwargs: Any) -> Any:
        raise AbsentError(NotImplementedError("the other processes are not there"))

    with patch.object(rpc, "init_rpc", init_rpc):
        yield


def _plain_step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    with torch.no_grad():
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    parameter.add_(parameter.grad)
    return loss
