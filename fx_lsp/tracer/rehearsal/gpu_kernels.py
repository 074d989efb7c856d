"""Run operations on fake tensors as a GPU runs them: what C++ computes in several operations where it sees no GPU is
one there, with what it saves for backward.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import torch.optim.optimizer as optimizers
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fx_lsp.tracer.compat import FakeTensor
from fx_lsp.tracer.program.gpu.tensors import gpu_attention

_VF: Any = vars(torch)["_VF"]
_FUSED = "silu_backward", "mish_backward"
"""Operations with one kernel on a GPU that C++ computes in several where it sees none."""
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_STATES = {"lstm": 2, "gru": 2, "rnn_tanh": 0, "rnn_relu": 0}
"""The numbers for each element of the hidden states that cuDNN saves for backward, where it allocates one more for each
gate. Both are guesses, which agree with the peak of an LSTM on an H200: only on a GPU does cuDNN tell the sizes
(`cudnnGetRNNTempSpaceSizes`).
"""


@contextmanager
def kernels_of_gpu() -> Generator[None, None, None]:
    """Inside, operations, optimizers and gradient scalers allocate what they do on a GPU."""
    kernels: Any = torch.library.Library("aten", "IMPL")
    supported: Any = vars(optimizers).get("_foreach_supported_types", [])
    with ExitStack() as stack:
        stack.callback(kernels._destroy)
        for name in _FUSED:
            kernels.impl(name, _whole(getattr(torch.ops.aten, name).default), "AutogradCUDA")
        stack.enter_context(patch.object(_VF, "dropout", _dropout))
        for name in _GATES:
            stack.enter_context(patch.object(_VF, name, _recurrent(name, getattr(_VF, name))))
        stack.enter_context(patch.object(F, "scaled_dot_product_attention", _attention))
        stack.enter_context(patch.object(torch.amp.GradScaler, "_maybe_opt_step", _step_of_scaler))
        stack.enter_context(patch.object(optimizers, "_foreach_supported_types", [*supported, FakeTensor]))
        yield


def is_on_gpu(tensor: Any) -> bool:
    """Return True for a fake tensor on a GPU."""
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"


def _dropout(tensor: Tensor, p: float, train: bool) -> Tensor:
    """Call the dropout of a GPU, which saves a mask of bools."""
    is_fused = is_on_gpu(tensor) and train and 0 < p < 1
    return torch.native_dropout(tensor, p, train)[0] if is_fused else torch.dropout(tensor, p, train)


def _attention(query: Tensor, *args: Any, **options: Any) -> Tensor:
    """Call the attention of a GPU, also inside of PyTorch's own functions."""
    return (gpu_attention if is_on_gpu(query) else scaled_dot_product_attention)(query, *args, **options)


def _whole(operation: Any) -> Callable[..., Tensor]:
    """Return a function that calls an operation as one, without its parts, and does not differentiate it."""

    def call(*args: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return operation(*args)

    return call


def _step_of_scaler(self: Any, optimizer: Any, state: Any, *args: Any, **options: Any) -> Any:
    """Step as a `GradScaler` does if no gradient has overflowed."""
    return optimizer.step(*args, **options)


class _RecurrentLayers(torch.autograd.Function):
    """Allocate what cuDNN does for all steps of recurrent layers: the output, and what backward needs."""

    @staticmethod
    def forward(ctx: Any, name: str, sizes: tuple[int, ...], data: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        states = rest[: 2 if name == "lstm" else 1]
        ctx.name, ctx.elements = name, (states[0].shape[0], *sizes[:-1], states[-1].shape[-1])
        output, reserve = data.new_empty(sizes), data.new_empty(_GATES[name] + _STATES[name], *ctx.elements)
        ctx.save_for_backward(data, output, reserve, *rest)
        return output, *map(torch.empty_like, states)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        data, _, _, *rest = ctx.saved_tensors
        workspace = data.new_empty(_GATES[ctx.name], *ctx.elements)
        tensors = zip(ctx.needs_input_grad[2:], (data, *rest), strict=True)
        results = (*(torch.empty_like(tensor) if needs else None for needs, tensor in tensors),)
        del workspace
        return None, None, *results


def _recurrent(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of recurrent layers that runs them as one operation on a GPU: of a batch, or of a packed one,
    whose second argument are the sizes of its batches.
    """

    def call(data: Tensor, *args: Any) -> Any:
        if not is_on_gpu(data):
            return plain(data, *args)
        is_packed = isinstance(args[2], (list, tuple))
        states, weights = (args[1], args[2]) if is_packed else (args[0], args[1])
        tensors = [data, *(states if isinstance(states, (list, tuple)) else [states]), *weights]
        if torch.is_autocast_enabled("cuda"):
            tensors = [tensor.to(torch.get_autocast_dtype("cuda")) for tensor in tensors]
        directions = 2 if args[7 if is_packed else 6] else 1
        apply: Any = _RecurrentLayers.apply
        return apply(name, (*data.shape[:-1], tensors[1].shape[-1] * directions), *tensors)

    return call
