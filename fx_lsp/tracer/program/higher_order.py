"""Handle calls of `torch.compile`: user-compiled functions are traced as written, those of PyTorch are compiled.

PyTorch compiles the function arguments of higher-order operations (`cond`, `scan`, FlexAttention): Dynamo turns the
closure variables that they read into operands, without which AOTAutograd cannot trace them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch.overrides import handle_torch_function

from fx_lsp.tracer.compat import FakeTensorMode, ShapeEnv
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.run.conditions import with_shape_env

_compile = torch.compile


def as_written(model: Any = None, **options: Any) -> Any:
    """Replace `torch.compile`."""
    if model is None:
        return lambda function: as_written(function, **options)
    caller: str = sys._getframe(1).f_globals.get("__name__", "")
    if caller.partition(".")[0] != "torch" or caller == nn.Module.__module__:  # that is `Module.compile`
        return model
    compiled = _compile(model, **options)

    def lifted(*args: Any, **kwargs: Any) -> Any:
        if torch._C._is_torch_function_mode_enabled():  # one after the other, as Dynamo would trace them
            return handle_torch_function(lifted, (), *args, **kwargs)
        try:
            with _symbols():
                return compiled(*args, **kwargs)
        except TorchDynamoException as error:
            raise _origin(error) from None

    return lifted


def _origin(error: TorchDynamoException) -> BaseException:
    """Return the exception of the code that Dynamo ran; its own exception if there is no other."""
    cause: BaseException | None = error
    while isinstance(cause, TorchDynamoException):
        cause = cause.__cause__ or cause.__context__
    return cause or error


@contextmanager
def _symbols() -> Generator[None, None, None]:
    """Allow symbolic sizes of fake tensors inside: loop-carried values have some while they are traced."""
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    lacks = isinstance(mode, FakeTensorMode) and mode.shape_env is None
    with with_shape_env(mode, ShapeEnv()) if lacks else nullcontext():
        yield


@contextmanager
def differentiable_attention() -> Generator[None, None, None]:
    """Allow differentiating FlexAttention on the CPU inside.

    The operation and its backward are the same on every device; the CPU only lacks the kernel.
    """
    try:
        from torch.nn.attention import flex_attention
    except ImportError:
        yield
        return
    original: Callable[..., None] | None = getattr(flex_attention, "_validate_device", None)

    def validate(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        assert original is not None
        if key.shape[:-1] != value.shape[:-1]:  # kernels would silently read out of bounds
            raise ValueError(f"key and value are of different sizes: {list(key.shape)} and {list(value.shape)}")
        if query.device.type == "cpu" and any(t.requires_grad for t in (query, key, value)):
            notes().add("FlexAttention has no backward on the CPU: its backward is shown as a GPU runs it")
            return
        original(query, key, value)

    with mock.patch.object(flex_attention, "_validate_device", validate) if original is not None else nullcontext():
        yield
