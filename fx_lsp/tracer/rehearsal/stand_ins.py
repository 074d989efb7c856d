"""What stands in for what would compute with values, while a script is rehearsed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from fx_lsp.tracer.program.absences import AbsentError


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
