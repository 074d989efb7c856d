"""Profile the time of each kernel in a call, by torch.profiler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

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
    with _regions_recorded(calls.subject.module) as regions:
        activities = [ProfilerActivity.CUDA] * gpu + [ProfilerActivity.CPU] * (not gpu or bool(regions))
        with profile(activities=activities) as profiler:
            for at in sets:
                calls.call(at, what, prepared[at])
            where.synchronize()
    rows = [
        {"kernel": event.key, "calls": event.count / len(sets), "microseconds": time / len(sets)}
        for event in profiler.key_averages()
        if (time := _microseconds(event, gpu, regions)) > 0
    ]
    return sorted(rows, key=lambda row: -row["microseconds"])


@contextmanager
def _regions_recorded(module: ModuleType) -> Generator[list[str]]:
    """Record the calls of a file's regions, which Inductor compiles, under their names inside."""
    regions = {name: value for name, value in vars(module).items() if getattr(value, "is_compiled", False)}

    def recorded(name: str, region: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with record_function(name):
                return region(*args)

        return call

    vars(module).update({name: recorded(name, region) for name, region in regions.items()})
    try:
        yield [*regions]
    finally:
        vars(module).update(regions)


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


def _microseconds(event: Any, gpu: bool, regions: Collection[str]) -> float:
    """Return the microseconds of a kernel, of all kernels of a region, or of an operator on the CPU; 0.0 for others."""
    on_device = event.device_type != DeviceType.CPU
    if not gpu:
        return event.cpu_time_total if event.key in regions else event.self_cpu_time_total
    if event.key in regions:
        return 0.0 if on_device else event.device_time_total
    if not on_device:
        return 0.0
    device_time = getattr(event, "self_device_time_total", None)
    return event.self_cuda_time_total if device_time is None else device_time
