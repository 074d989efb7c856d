"""Simulate the answers of `torch.cuda` about a missing GPU: one device with idle streams."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.library import Library

MAX_DEVICES = 16


class Idle:
    """A stream or an event without work: each of its methods returns it."""

    device = torch.device("cuda", 0)
    device_index = cuda_stream = stream_id = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., Idle]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self

    def query(self) -> bool:
        """Return True: all work is done."""
        return True

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Generator_(torch.Generator):
    """A random number generator for any device, which generates nothing."""

    device = torch.device("cuda", 0)  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]

    def __new__(cls, device: Any = "cpu") -> Generator_:
        """Return one for the CPU."""
        return super().__new__(cls, torch.device("cpu"))  # pyright: ignore[reportCallIssue]

    def clone_state(self) -> Generator_:
        """Return itself."""
        return self


def _state(device: Any = None) -> torch.Tensor:
    return torch.zeros(16, dtype=torch.uint8)


PROPERTIES = SimpleNamespace(
    name="GPU",
    gcnArchName="GPU",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    warp_size=32,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block_optin=232448,
    L2_cache_size=50 << 20,
)
"""The properties of a recent GPU, from which programs compute launch sizes."""

_ANSWERS: dict[str, Callable[..., Any]] = {
    "current_device": lambda: 0,
    "current_stream": Idle,
    "default_stream": Idle,
    "device_count": lambda: 1,
    "empty_cache": lambda: None,
    "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
    "get_device_name": lambda device=None: PROPERTIES.name,
    "get_device_properties": lambda device=None: PROPERTIES,
    "get_rng_state": _state,
    "is_bf16_supported": lambda *args, **kwargs: True,
    "max_memory_allocated": lambda device=None: 0,
    "mem_get_info": lambda device=None: (PROPERTIES.total_memory, PROPERTIES.total_memory),
    "memory_allocated": lambda device=None: 0,
    "reset_peak_memory_stats": lambda device=None: None,
    "set_device": lambda device: None,
    "set_rng_state": lambda state, device=None: None,
    "stream": lambda stream: nullcontext(stream),
    "synchronize": lambda device=None: None,
    "_exchange_device": lambda index: index,
    "_maybe_exchange_device": lambda index: index,
}


def _on_cpu(kind: str) -> Library:
    """Keep the values of constants that tracers store with fake tensors on the CPU."""
    library = Library("aten", "IMPL")

    def empty_strided(
        size: Any, stride: Any, device: Any = None, pin_memory: Any = None, **options: Any
    ) -> torch.Tensor:
        return torch.empty_strided(size, stride, **options, device="cpu")

    library.impl("empty_strided", empty_strided, kind.upper())
    return library


@contextmanager
def idle_gpu() -> Generator[None, None, None]:
    """Allow programs inside to set a device, wait for it and use its streams."""
    with ExitStack() as stack:
        for name, answer in (*_ANSWERS.items(), ("Stream", Idle), ("Event", Idle)):
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch, "Generator", Generator_))
        generators = tuple(Generator_() for _ in range(MAX_DEVICES))
        stack.enter_context(mock.patch.object(torch.cuda, "default_generators", generators))
        for kind in ("cuda", "xpu"):
            stack.callback(_on_cpu(kind)._destroy)
        yield
