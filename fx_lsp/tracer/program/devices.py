"""Devices that are not there: code for them is traced on the CPU instead.

A fake tensor on a GPU needs a torch that was built for one: any other ends the process at the first such tensor. And
autograd asks for the GPU itself, which tracers do not see: they would take memory on it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode


def known_devices() -> frozenset[str]:
    """The types of devices that fake tensors can be on, and be differentiated: those that this process sees."""
    known = {"cpu", "meta"}
    if torch.cuda.is_available():
        known.add("cuda")
    if torch.backends.mps.is_built():
        known.add("mps")
    if getattr(torch, "xpu", None) is not None and torch.xpu._is_compiled():  # pyright: ignore[reportPrivateUsage]
        known.add("xpu")
    return frozenset(known)


class OnCpu(TorchFunctionMode):
    """Puts on the CPU what is asked for on a device that is not `known`; `replaced` collects those devices' types."""

    def __init__(self, known: frozenset[str]) -> None:
        super().__init__()
        self._known = known
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


@contextmanager
def possible_devices() -> Generator[OnCpu | None, None, None]:
    """The mode to trace in; none where this process sees a GPU."""
    known = known_devices()
    if "cuda" in known:
        yield None
        return
    original = FunctionalTensor.cuda
    FunctionalTensor.cuda = lambda self, *args, **kwargs: self  # that of AOTAutograd asks which GPU is the current one
    try:
        with OnCpu(known) as mode:
            yield mode
    finally:
        FunctionalTensor.cuda = original


@contextmanager
def left(mode: OnCpu | None) -> Generator[None, None, None]:
    """Inside, the mode is off where it has replaced nothing so far: Dynamo would trace through it, which shows."""
    if mode is None or mode.replaced:
        yield
        return
    mode.__exit__(None, None, None)
    try:
        yield
    finally:
        mode.__enter__()


def device_note(mode: OnCpu | None) -> list[str]:
    """What to tell the user of devices that were replaced."""
    if mode is None or not mode.replaced:
        return []
    kinds = " and ".join(sorted(mode.replaced))
    return [f"traces see no GPU: what the code puts on {kinds} stands on the CPU"]
