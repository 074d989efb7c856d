"""Capture recurrent layers as one operation each, that of cuDNN, on any device.

Elsewhere PyTorch unrolls them: an LSTM over 512 steps would be an unreadable graph of thousands of nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.overrides import TorchFunctionMode

from fx_lsp.tracer.run.operations.lengths import check_examples, pad_packed

aten = torch.ops.aten

MODES: dict[str, int] = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""Functions of torch that run a whole recurrent layer, with cuDNN's number for each."""

MAX_MODES = 8
"""The most frames of other modes that a call may have passed through."""

NOTE = (
    "recurrent layers are shown as the single operation that cuDNN runs (its reserve space is not counted as saved); "
    "without cuDNN, PyTorch loops over the steps"
)


class OneOperation(TorchFunctionMode):
    """Call `aten._cudnn_rnn` for every recurrent layer; `used` is True once there was one."""

    def __init__(self) -> None:
        super().__init__()
        self.used = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "_pad_packed_sequence":
            return pad_packed(*args)
        if name == "index_select" and _is_packing():
            check_examples(*args)
        if name == "as_tensor" and _is_packing() and any(isinstance(n, torch.SymInt) for n in args[0]):
            return torch.empty(len(args[0]), dtype=torch.int64)  # data-dependent lengths: they are unknown
        if name not in MODES or not args or len(args) != 9 or kwargs or func is not getattr(torch, name, None):
            return func(*args, **(kwargs or {}))
        self.used = True
        return _layer(MODES[name], args)


def _is_packing() -> bool:
    """Return True for a call in `pack_padded_sequence`, below the frames of other modes."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(MAX_MODES):
        if frame is None or frame.f_code is pack_padded_sequence.__code__:
            break
        frame = frame.f_back
    return frame is not None and frame.f_code is pack_padded_sequence.__code__


def _layer(mode: int, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    packed = isinstance(args[3], (list, tuple))
    if packed:
        data, sizes, hidden, weights, biased, layers, dropout, train, both = args
        batch_sizes, batch_first = [int(size) for size in sizes.tolist()], False
    else:
        data, hidden, weights, biased, layers, dropout, train, both, batch_first = args
        batch_sizes = list[int]()
    is_lstm = mode == MODES["lstm"]
    hx, cx = (hidden[0], hidden[1]) if is_lstm else (hidden, None)
    size = (cx if cx is not None else hx).size(2)
    projected = hx.size(2) if hx.size(2) != size else 0
    per_layer = (4 if biased else 2) + (1 if projected else 0)
    # as in the operation, so that the result has its memory layout
    steps = data.transpose(0, 1) if batch_first else data
    output, *states = aten._cudnn_rnn(
        steps, weights, per_layer, weights[0].detach(), hx, cx, mode, size, projected, layers,
        False, dropout, train, both, batch_sizes, None,
    )  # fmt: skip
    return (output.transpose(0, 1) if batch_first else output, *states[: 2 if is_lstm else 1])


def _backward_specs(
    input: torch.Tensor,
    weight: Sequence[torch.Tensor],
    weight_stride0: int,
    weight_buf: torch.Tensor,
    hx: torch.Tensor,
    cx: torch.Tensor | None,
    *rest: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Return the specs of `aten._cudnn_rnn_backward`: a gradient like each of its inputs."""
    return (
        torch.empty_like(input, memory_format=torch.contiguous_format),
        torch.empty_like(hx),
        torch.empty_like(cx) if cx is not None else input.new_empty(0),
        [torch.empty_like(w) for w in weight],
    )


_META = torch.library.Library("aten", "IMPL", "Meta")
with suppress(RuntimeError):  # once torch has its own
    _META.impl("_cudnn_rnn_backward", _backward_specs)
