"""Run operations on sequences of several lengths on fake tensors: packing, unpacking, and CTC loss.

These operations need the values of lengths. They are known if the code computed them from numbers. Otherwise every
sequence is assumed to be as long as the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch._C import DispatchKey
from torch.utils._mode_utils import no_dispatch

from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensorMode
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.run.values.constants import fake_of, known_list

aten = torch.ops.aten

_ASSUMPTION = "the lengths of packed sequences are unknown; assumed: each is as long as the padded batch"

Dispatch = Callable[..., Any]


def take_lengths(mode: FakeTensorMode) -> None:
    """Make a mode run operations that need lengths."""
    run: Dispatch = mode.dispatch

    def dispatch(func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        operation = _OPERATIONS.get(func)
        return run(func, types, args, kwargs) if operation is None else operation(mode, *args, **(kwargs or {}))

    mode.__dict__["dispatch"] = dispatch


def _packed(mode: FakeTensorMode, padded: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    """Run `aten._pack_padded_sequence`: return the data, and the number of sequences at each step."""
    batch: int | torch.SymInt = padded.size(0 if batch_first else 1)
    steps: int | torch.SymInt = padded.size(1 if batch_first else 0)
    if lengths.dim() != 1:
        raise RuntimeError(f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D")
    if lengths.size(0) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {lengths.size(0)} and {batch}")
    if lengths.device.type != "cpu":
        raise RuntimeError("'lengths' argument should be a 1D CPU int64 tensor, but got one on another device")
    if isinstance(batch, torch.SymInt) or isinstance(steps, torch.SymInt):
        raise DATA_DEPENDENT[0](aten._pack_padded_sequence.default)
    values = known_list(lengths)
    if values is None:
        notes().add(_ASSUMPTION)
        values = [steps] * batch
    if min(values) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0")
    if values != sorted(values, reverse=True):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True")
    if max(values) > steps:
        raise RuntimeError(f"Expected lengths of at most {steps}, but got {max(values)}")
    going_on = [sum(length > step for length in values) for step in range(max(values))]
    with mode:
        data = padded.new_empty([sum(values), *padded.shape[2:]])
    with no_dispatch(), torch._C.DisableTorchFunction():
        sizes = torch.tensor(going_on)
    return data, fake_of(sizes, mode)


def check_examples(examples: torch.Tensor, dim: int, order: torch.Tensor) -> None:
    """Raise RuntimeError if the number of lengths differs from the number of sequences to sort."""
    if order.size(0) != examples.size(dim):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {order.size(0)} and {examples.size(dim)}"
        )


def pad_packed(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding: float, total_length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return padded sequences from packed ones, and the length of each, as `torch._pad_packed_sequence` does."""
    sizes: list[int] = batch_sizes.tolist()
    batch, start = sizes[0], 0
    parts: list[torch.Tensor] = []
    for going_on, steps in ((size, len(list(same))) for size, same in groupby(sizes)):
        part = data[start : start + going_on * steps].unflatten(0, (steps, going_on))
        start += going_on * steps
        parts.append(_padded(part, 1, batch - going_on, padding))
    padded = parts[0] if len(parts) == 1 else torch.cat(parts)
    if total_length > 0:
        if total_length < len(sizes):
            raise RuntimeError(f"total_length ({total_length}) is less than the {len(sizes)} steps of the sequences")
        padded = _padded(padded, 0, total_length - len(sizes), padding)
    lengths = torch.tensor([sum(size > sequence for size in sizes) for sequence in range(batch)])
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _padded(tensor: torch.Tensor, dim: int, count: int, value: float) -> torch.Tensor:
    return tensor if count == 0 else F.pad(tensor, (0, 0) * (tensor.dim() - 1 - dim) + (0, count), value=value)


def _gradient_of_padded(grad: torch.Tensor, size: Sequence[int], batch_sizes: torch.Tensor, batch_first: bool) -> Any:
    """Return the result of `aten._pack_padded_sequence_backward`, whose kernel reads the sizes of batches from
    memory.
    """
    steps = size[1 if batch_first else 0]
    return pad_packed(grad, batch_sizes, batch_first, 0.0, int(steps))[0]


def _ctc_losses(
    mode: FakeTensorMode,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """Run `aten._ctc_loss` with lengths in tensors: return the loss of each example, and the values saved for
    backward.
    """
    steps, batch, labels = log_probs.shape
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if lengths.is_floating_point():
            raise RuntimeError(f"{name} must be integral")
        if lengths.numel() != batch:
            raise RuntimeError(f"{name} must be of size batch_size")
    if targets.dim() == 2 and targets.size(0) != batch:
        raise RuntimeError(f"Expected targets for {batch} examples, but got {targets.size(0)}")
    if not -labels < blank < labels:
        raise RuntimeError("blank must be in label range")
    counts = known_list(target_lengths)
    if (times := known_list(input_lengths)) and max(times) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(times)}")
    longest = max(counts) if counts else targets.size(1) if targets.dim() == 2 else targets.size(0) // batch
    with mode:
        return log_probs.new_empty([batch]), log_probs.new_empty([batch, steps, 2 * longest + 1])


def _gradient_of_ctc(mode: FakeTensorMode, grad: torch.Tensor, log_probs: torch.Tensor, *rest: Any) -> torch.Tensor:
    with mode:
        return torch.empty_like(log_probs)


_OPERATIONS: dict[Any, Callable[..., Any]] = {
    aten._pack_padded_sequence.default: _packed,
    aten._use_cudnn_ctc_loss.Tensor: lambda mode, *args: False,
    aten._use_cudnn_ctc_loss.default: lambda mode, *args: False,
    aten._ctc_loss.Tensor: _ctc_losses,
    aten._ctc_loss_backward.Tensor: _gradient_of_ctc,
    aten._ctc_loss_backward.default: _gradient_of_ctc,
}

with suppress(RuntimeError):  # once torch has its own
    aten._pack_padded_sequence_backward.default.py_impl(DispatchKey.CompositeImplicitAutograd)(_gradient_of_padded)
