"""Handle missing devices: fake tensors are on them; for compilers, which query the device, they are on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode

from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.program.gpu.tensors import FAKE_KINDS, FakeGpu


def known_devices() -> frozenset[str]:
    """Return the types of devices on which fake tensors can be created and differentiated: those visible to this
    process.
    """
    visible = {"cpu", "meta"}
    if torch.cuda.is_available():
        visible.add("cuda")
    if torch.backends.mps.is_built():
        visible.add("mps")
    if getattr(torch, "xpu", None) is not None and torch.xpu._is_compiled():  # pyright: ignore[reportPrivateUsage]
        visible.add("xpu")
    return frozenset(visible)


class OnCpu(TorchFunctionMode):
    """Put tensors for a device that is not `known` on the CPU; `replaced` collects those devices' types."""

    def __init__(self, visible: frozenset[str]) -> None:
        super().__init__()
        self._known = visible
        self.replaced: set[str] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _MOVES and func is getattr(torch.Tensor, name, None):
            if name not in self._known:
                self.replaced.add(name)
                return args[0]
            return func(*args, **kwargs)
        if name == "device" and func is torch.device:
            return func(*args, **kwargs)
        if name == "to" and len(args) > 1 and isinstance(args[1], (str, int)):
            args = (args[0], self._possible(args[1]), *args[2:])
        elif any(isinstance(a, torch.device) for a in args):
            args = tuple(self._possible(a) if isinstance(a, torch.device) else a for a in args)
        if kwargs.get("device") is not None:
            kwargs = {**kwargs, "device": self._possible(kwargs["device"])}
        return func(*args, **kwargs)

    def _possible(self, device: Any) -> Any:
        if not isinstance(device, (str, int, torch.device)):
            return device  # a proxy of torch.fx
        try:
            kind = "cuda" if type(device) is int else torch.device(device).type
        except (RuntimeError, TypeError):
            return device
        if kind in self._known:
            return device
        self.replaced.add(kind)
        return "cpu"


_MOVES = frozenset({"cuda", "xpu", "ipu", "hpu", "mtia"})


@dataclass(frozen=True)
class Devices:
    """Hold the modes of a trace: `gpu` is None if there is a GPU, or if its tensors are on the CPU."""

    on_cpu: OnCpu | None = None
    gpu: FakeGpu | None = None

    def notes(self) -> list[str]:
        """Return notes for the user on missing devices."""
        notes: list[str] = []
        if self.gpu is not None and self.gpu.kinds:
            kinds = " and ".join(sorted(self.gpu.kinds))
            notes.append(
                f"there is no {kinds} device here: where PyTorch selects operations by device (batch norm, "
                "recurrent layers, attention with a mask), the device-independent ones are shown"
            )
        if self.on_cpu is not None and self.on_cpu.replaced:
            kinds = " and ".join(sorted(self.on_cpu.replaced))
            notes.append(f"traces use no GPU: what the code puts on {kinds} is on the CPU here")
        return notes

    @property
    def undecided(self) -> bool:
        """Return True if code was told that there is no GPU, and used or queried one nevertheless."""
        return self.gpu is not None and self.gpu.denied and (self.gpu.wanted or bool(self.gpu.kinds))


@contextmanager
def possible_devices(mode: FakeTensorMode, compiles: bool, available: bool) -> Generator[Devices, None, None]:
    """Yield the modes to trace in; none if this process sees a GPU.

    A compiler (`compiles`) queries the device itself, so its tensors are on the CPU. `available` is the answer to code
    that asks for a GPU.
    """
    visible = known_devices()
    if "cuda" in visible:
        yield Devices()
        return
    if compiles:
        to_gpu = patch.object(
            FunctionalTensor, "cuda", lambda self, *args, **kwargs: self
        )  # AOTAutograd's asks for one
        with to_gpu, OnCpu(visible) as on_cpu, _autocast_on_cpu(visible):
            yield Devices(on_cpu)
        return
    gpu = FakeGpu(mode, available)
    with OnCpu(visible | FAKE_KINDS) as on_cpu, gpu.hidden(), gpu:
        yield Devices(on_cpu, gpu)


@contextmanager
def _autocast_on_cpu(visible: frozenset[str]) -> Generator[None, None, None]:
    """Have autocast on a missing device apply to the CPU, with the dtype that it has there."""
    begin = torch.autocast.__init__

    def begin_on_cpu(self: torch.autocast, device_type: str, dtype: torch.dtype | None = None, **options: Any) -> None:
        if device_type not in visible:
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype(device_type)
        begin(self, device_type, dtype, **options)

    with patch.object(torch.autocast, "__init__", begin_on_cpu):
        yield


@contextmanager
def left(mode: OnCpu | None) -> Generator[None, None, None]:
    """Disable the mode inside if it has replaced nothing so far: Dynamo would trace through it, with visible
    effects.
    """
    if mode is None or mode.replaced:
        yield
        return
    mode.__exit__(None, None, None)
    try:
        yield
    finally:
        mode.__enter__()
