"""Profile the time of each kernel in a call, by torch.profiler."""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fx_lsp.bench.variant.calls import Calls
from fx_lsp.bench.variant.devices import Device
from fx_lsp.measured import What


def kernels(where: Device, calls: Calls, what: What) -> list[dict[str, Any]]:
    """Return name, calls and microseconds of each kernel in one call, the longest first; on the CPU, of operators."""
    gpu = where.kind == "cuda"
    sets = range(len(calls.sets))
    for at in sets:
        calls.call(at, what, calls.prepare(at, what))
    prepared = [calls.prepare(at, what) for at in sets]
    where.synchronize()
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as profiler:
        for at in sets:
            calls.call(at, what, prepared[at])
        where.synchronize()
    rows = [
        {"kernel": event.key, "calls": event.count / len(sets), "microseconds": _microseconds(event, gpu) / len(sets)}
        for event in profiler.key_averages()
    ]
    return sorted((r for r in rows if r["microseconds"] > 0), key=lambda r: -r["microseconds"])


def once(where: Device, calls: Calls, what: What) -> None:
    """Make one call that `ncu` profiles, after some that it does not."""
    for _ in range(3):
        calls.call(0, what, calls.prepare(0, what))
    prepared = calls.prepare(0, what)
    where.synchronize()
    torch.cuda.profiler.start()
    calls.call(0, what, prepared)
    where.synchronize()
    torch.cuda.profiler.stop()


def _microseconds(event: Any, gpu: bool) -> float:
    if not gpu:
        return event.self_cpu_time_total
    device_time = getattr(event, "self_device_time_total", None)
    return event.self_cuda_time_total if device_time is None else device_time
