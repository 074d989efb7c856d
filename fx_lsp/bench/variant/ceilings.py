"""Measure the best rates of a GPU, and compute the least cost of a function."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.fx.graph import dtype_abbrs
from torch.utils.flop_counter import FlopCounterMode

from fx_lsp.bench.variant.calls import Arguments, bytes_of, described, leaves_of, outputs_of
from fx_lsp.bench.variant.devices import Device, elapsed, event, now, record
from fx_lsp.bench.variant.subject import BenchmarkSubject
from fx_lsp.measured import Ceilings, Cost, What

_LARGEST = 1 << 30
_SIDE = 8192
_WAKING_SECONDS = 0.3
_MULTIPLIED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def ceilings(where: Device, subject: BenchmarkSubject) -> Ceilings | None:
    """Measure the rates of copying and of multiplying matrices of the function's dtype; None without a GPU."""
    if where.kind != "cuda":
        return None
    args, kwargs = subject.make(1)
    tensors = [t for t in leaves_of(subject, args, kwargs).values() if t.dtype in _MULTIPLIED]
    dtype = max(tensors, key=lambda t: t.nbytes).dtype if tensors else torch.float32
    del args, kwargs, tensors
    rates = Ceilings(_copying(where), _multiplying(where, dtype), dtype_abbrs[dtype])
    torch.cuda.empty_cache()
    return rates


def _copying(where: Device) -> float:
    """Return the bytes per second that a kernel that only negates numbers reads and writes."""
    free, _ = torch.cuda.mem_get_info()
    source = torch.ones(min(_LARGEST, free // 8) // 2, dtype=torch.bfloat16, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / _seconds(where, lambda: torch.neg(source, out=target))


def _multiplying(where: Device, dtype: torch.dtype) -> float:
    """Return the operations per second of a product of large matrices."""
    side = _SIDE if dtype.itemsize <= 2 else _SIDE // 2
    left, right = (torch.randn(side, side, device="cuda").to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    return 2 * side**3 / _seconds(where, lambda: torch.mm(left, right, out=product))


def _seconds(where: Device, run: Callable[[], object]) -> float:
    begin = now()
    while now() - begin < _WAKING_SECONDS * 1e9:
        run()
        where.synchronize()
    marks = [(event(), event()) for _ in range(30)]
    for start, end in marks:
        record(start)
        run()
        record(end)
    where.synchronize()
    return median(elapsed(*pair) for pair in marks) / 1e3


def costs(subject: BenchmarkSubject, label: str, wanted: tuple[What, ...]) -> list[Cost]:
    """Return the bytes and operations that a case needs, for those of `wanted` that it supports."""
    arguments = described(subject, *subject.make(1))
    specs = tuple(f"{name}: {_spec(t)}" for name, t in leaves_of(subject, arguments.args, arguments.kwargs).items())
    read = bytes_of(arguments.tensors)
    with torch.no_grad(), FlopCounterMode(display=False) as forward_operations:
        outputs = outputs_of(subject, subject.reference, arguments)
    own = {t.data_ptr() for t in arguments.tensors}
    forward = read + bytes_of(t for t in outputs if t.data_ptr() not in own)
    forward_flops = forward_operations.get_total_flops()
    needs = [Cost(label, "forward", forward, forward_flops, specs)]
    if arguments.leaves:
        backward, flops = _backward(subject, arguments)
        needs.append(Cost(label, "backward", backward, flops, specs))
        needs.append(Cost(label, "both", forward + backward, forward_flops + flops, specs))
    return [cost for cost in needs if cost.what in wanted]


def _backward(subject: BenchmarkSubject, arguments: Arguments) -> tuple[int, int]:
    """Return bytes and operations: gradients are read and written, and saved values are read, or recomputed from the
    inputs.
    """
    saved: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.detach())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = [t for t in outputs_of(subject, subject.reference, arguments) if t.requires_grad]
    needed = min(bytes_of(saved), bytes_of(arguments.tensors))
    output_gradients = [torch.randn_like(t) for t in outputs]
    with FlopCounterMode(display=False) as operations:
        gradients: Any = torch.autograd.grad(outputs, [*arguments.leaves.values()], output_gradients, allow_unused=True)
    written = bytes_of(t for t in gradients if t is not None)
    return needed + bytes_of(output_gradients) + written, operations.get_total_flops()


def _spec(tensor: torch.Tensor) -> str:
    return f"{dtype_abbrs.get(tensor.dtype, str(tensor.dtype))}{[*tensor.shape]}"
