"""Read the state of PyTorch where a target is called, and bring it about again for a trace of that call."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters
from torch.nn import attention
from torch.overrides import _get_current_function_mode_stack
from torch.utils import checkpoint
from torch.utils._device import DeviceContext

from fx_lsp.model import CallContext
from fx_lsp.specs import DTYPES, SHORT_NAMES

DEVICES = ("cpu", "cuda", "xpu", "mps")
"""The types of devices that PyTorch has autocast for."""
_NO_BACKENDS = frozenset({"ERROR", "OVERRIDEABLE"})
_BACKENDS = {
    name.lower(): backend for name, backend in attention.SDPBackend.__members__.items() if name not in _NO_BACKENDS
}
_CHECKPOINTS = frozenset(
    inspect.unwrap(function).__code__ for function in (checkpoint.checkpoint, checkpoint.CheckpointFunction.forward)
)
_infers = False


@contextmanager
def inference_without_gradients() -> Generator[None, None, None]:
    """Replace `torch.inference_mode()` by `torch.no_grad()` inside, which gives the same graphs.

    AOTAutograd cannot capture writes to inference tensors.
    """

    def enter(self: torch.inference_mode) -> None:
        vars(self)["_inference_mode_context"] = _WithoutGradients(self.mode)

    with mock.patch.object(torch.inference_mode, "__enter__", enter):
        yield


class _WithoutGradients:
    """Gradient mode in place of inference mode, entered from the beginning."""

    def __init__(self, infers: bool) -> None:
        global _infers
        self._before, _infers = _infers, infers
        self._gradients = torch.set_grad_enabled(not infers)

    def __exit__(self, *raised: object) -> None:
        global _infers
        _infers = self._before
        self._gradients.__exit__(*raised)


def context_here(frame: FrameType | None = None, place: str = "") -> CallContext:
    """Return the context of a call whose `frame` has just been entered, that of the caller of this by default."""
    with torch._C.DisableTorchFunction():  # a mode of the program would notice
        infers = _infers or torch.is_inference_mode_enabled()
        enabled = {backend.name.lower() for backend in attention._cur_sdpa_kernel_backends()}
        allowed = tuple(name for name in _BACKENDS if name in enabled)
        return CallContext(
            grad="grad" if torch.is_grad_enabled() else "inference_mode" if infers else "no_grad",
            autocast=tuple(
                (device, SHORT_NAMES[str(torch.get_autocast_dtype(device)).removeprefix("torch.")])
                for device in DEVICES
                if torch.is_autocast_enabled(device)
            ),
            dtype=SHORT_NAMES[str(torch.get_default_dtype()).removeprefix("torch.")],
            device=_default_device(),
            sdpa=allowed if len(allowed) < len(_BACKENDS) else (),
            deterministic=torch.are_deterministic_algorithms_enabled(),
            precision=torch.get_float32_matmul_precision(),
            inside=(*_transformations(), *_checkpoints(frame or sys._getframe(1))),
            place=place,
        )


def _default_device() -> str:
    """Return the device of new tensors; `torch.get_default_device` creates one to know its index."""
    contexts = (mode for mode in reversed(_get_current_function_mode_stack()) if isinstance(mode, DeviceContext))
    return next((str(context.device).removesuffix(":0") for context in contexts), "cpu")


def fingerprint_here() -> tuple[object, ...]:
    """Return a key that is equal in equal contexts, without what programs set once; it is much faster to compute."""
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *map(torch.is_autocast_enabled, DEVICES)


def _transformations() -> list[str]:
    """Return the names of the `torch.func` transformations that the call is in, the outermost first."""
    return [level.key().name.lower() for level in retrieve_all_functorch_interpreters()]


def _checkpoints(frame: FrameType | None) -> list[str]:
    while frame is not None:
        if frame.f_code in _CHECKPOINTS:
            return ["checkpoint"]
        frame = frame.f_back
    return []


@contextmanager
def entered(context: CallContext | None) -> Generator[None, None, None]:
    """Run what is inside as if it was called there, if a context is known; what has its value is left alone."""
    if context is None:
        yield
        return
    changes = ExitStack()
    with torch._C.DisableTorchFunction():  # a watched run takes them for the user's own calls
        for manager in _changes(context_here(), context):
            changes.enter_context(manager)
    try:
        yield
    finally:
        with torch._C.DisableTorchFunction():
            changes.close()


def _changes(here: CallContext, wanted: CallContext) -> Generator[AbstractContextManager[object], None, None]:
    if (here.grad == "grad") != (wanted.grad == "grad"):
        yield torch.set_grad_enabled(wanted.grad == "grad")
    of_now, asked = dict(here.autocast), dict(wanted.autocast)
    for device in DEVICES:
        if of_now.get(device) != asked.get(device):
            dtype = getattr(torch, DTYPES[asked[device]]) if device in asked else None
            yield torch.autocast(device, dtype=dtype, enabled=device in asked)
    if here.dtype != wanted.dtype:
        yield _restored(torch.set_default_dtype, getattr(torch, DTYPES[wanted.dtype]), torch.get_default_dtype())
    if here.device != wanted.device:
        yield torch.device(wanted.device)
    if here.sdpa != wanted.sdpa:
        yield attention.sdpa_kernel([_BACKENDS[name] for name in wanted.sdpa or _BACKENDS])
    if here.deterministic != wanted.deterministic:
        yield _restored(torch.use_deterministic_algorithms, wanted.deterministic, here.deterministic)
    if here.precision != wanted.precision:
        yield _restored(torch.set_float32_matmul_precision, wanted.precision, here.precision)


@contextmanager
def _restored(setting: Callable[[Any], None], value: object, before: object) -> Generator[None, None, None]:
    setting(value)
    try:
        yield
    finally:
        setting(before)
