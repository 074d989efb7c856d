"""Profile the time of each kernel in a call, and of each line of the original, by torch.profiler."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile, record_function

from fx_lsp.bench.variant.calls import Calls
from fx_lsp.bench.variant.comparison import tensors_in
from fx_lsp.bench.variant.devices import Device
from fx_lsp.measured import MODULES_FOLDER, What

_PREFIX = "fx-lsp line "
_FORWARD, _BACKWARD = "forward", "backward"
Place = tuple[str, int]


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


def lines(where: Device, calls: Calls, what: What) -> list[dict[str, Any]]:
    """Return the file, line, and microseconds of forward and backward of each line in one call; the file is "" for the
    generated one, else its path below the folder of modules. The rest has line 0.

    On a GPU, times are those of the kernels that a line launches; on the CPU, those of its operators.
    """
    gpu = where.kind == "cuda"
    sets = range(len(calls.sets))
    for at in sets:
        calls.call(at, what, calls.prepare(at, what))
    where.synchronize()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities) as profiler, _Ranges(calls.subject.module.__file__ or ""):
        for at in sets:
            calls.call(at, what, [])
        where.synchronize()
    times: dict[Place, dict[str, float]] = defaultdict(lambda: {_FORWARD: 0.0, _BACKWARD: 0.0})
    whole = 0.0
    for event in profiler.key_averages():
        if not event.key.startswith(_PREFIX):
            whole += _microseconds(event, gpu, ()) / len(sets)
        else:
            direction, line, file = event.key.removeprefix(_PREFIX).split(" ", 2)
            times[file, int(line)][direction] += _microseconds(event, gpu, (event.key,)) / len(sets)
    rest = whole - sum(sum(both.values()) for both in times.values())
    rows = [{"file": file, "line": line, **both} for (file, line), both in times.items()]
    return [*rows, {"file": "", "line": 0, _FORWARD: max(rest, 0.0), _BACKWARD: 0.0}]


class _Ranges(TorchFunctionMode):
    """Record each call of PyTorch under the line of the original that makes it, and its backward likewise."""

    def __init__(self, generated: str) -> None:
        super().__init__()
        self._generated = generated
        self._modules = Path(generated).parent.parent / MODULES_FOLDER
        self._seen: dict[int, Any] = {}  # by their ids, which are those of others once they are gone

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        place = self._place(sys._getframe(1))
        if place is None:
            return func(*args, **(kwargs or {}))
        with _range(_FORWARD, place):
            result = func(*args, **(kwargs or {}))
        for _, tensor in tensors_in(result, ""):
            self._follow(tensor.grad_fn, place)
        return result

    def _place(self, frame: FrameType | None) -> Place | None:
        """Return the innermost line of the original that a frame is called from."""
        while frame is not None:
            file = frame.f_code.co_filename
            if file == self._generated:
                return "", frame.f_lineno
            if Path(file).is_relative_to(self._modules):
                return Path(file).relative_to(self._modules).as_posix(), frame.f_lineno
            frame = frame.f_back
        return None

    def _follow(self, node: Any, place: Place) -> None:
        """Record the nodes of autograd's graph that a call added."""
        pending = [node]
        while pending:
            node = pending.pop()
            if node is None or id(node) in self._seen or type(node).__name__ == "AccumulateGrad":
                continue
            self._seen[id(node)] = node
            pending += [source for source, _ in node.next_functions]
            _record_backward(node, place)


def _record_backward(node: Any, place: Place) -> None:
    """Record a node of autograd's graph under a place while it runs."""
    running: list[AbstractContextManager[Any]] = []

    def begin(gradients: Any) -> None:
        running.append(_range(_BACKWARD, place))
        running[-1].__enter__()

    def end(inputs: Any, outputs: Any) -> None:
        running.pop().__exit__(None, None, None)

    node.register_prehook(begin)
    node.register_hook(end)


def _range(direction: str, place: Place) -> AbstractContextManager[Any]:
    file, line = place
    return record_function(f"{_PREFIX}{direction} {line} {file}")
