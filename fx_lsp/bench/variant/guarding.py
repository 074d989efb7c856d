"""Detect changes that a file must not make: to clocks, comparisons, and numeric settings."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils.benchmark

_NAMES: tuple[tuple[Any, str], ...] = (
    (time, "time"),
    (time, "perf_counter"),
    (time, "perf_counter_ns"),
    (time, "monotonic"),
    (time, "sleep"),
    (torch.cuda, "Event"),
    (torch.cuda.Event, "record"),
    (torch.cuda.Event, "elapsed_time"),
    (torch.cuda.Event, "synchronize"),
    (torch.cuda, "Stream"),
    (torch.cuda, "CUDAGraph"),
    (torch.cuda, "synchronize"),
    (torch.cuda, "current_stream"),
    (torch.utils.benchmark, "Timer"),
    (torch.autograd, "grad"),
    (torch, "equal"),
    (torch, "allclose"),
    (torch, "empty"),
    (torch, "manual_seed"),
    (torch, "randn"),
    (torch, "rand"),
    (torch, "randint"),
    (torch.Tensor, "clone"),
    (torch.Tensor, "copy_"),
    (torch.Tensor, "double"),
)
_MISSING = object()


def _triton() -> tuple[tuple[Any, str], ...]:
    try:
        import triton.testing
    except ImportError:
        return ()
    return ((triton.testing, "do_bench"), (triton.testing, "do_bench_cudagraph"))


_SETTINGS: dict[str, Callable[[], Any]] = {
    "the precision of matrix products in float32": torch.get_float32_matmul_precision,
    "the default dtype": torch.get_default_dtype,
    "whether gradients are recorded": torch.is_grad_enabled,
    "the number of threads": torch.get_num_threads,
    "TF32 in convolutions": lambda: torch.backends.cudnn.allow_tf32,
    "reduced precision in bfloat16 sums": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "reduced precision in float16 sums": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "the current stream": lambda: torch.cuda.current_stream() if torch.cuda.is_initialized() else None,
}


def _is_torch(value: Any) -> bool:
    """Return True if a function is from torch itself, whose parts may replace others on import."""
    code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(Path(torch.__file__).parent)


class PatchGuard:
    """Record the current state of all of these."""

    def __init__(self) -> None:
        self._names = (*_NAMES, *_triton())
        self._values = [getattr(owner, name, _MISSING) for owner, name in self._names]
        self._settings = {what: get() for what, get in _SETTINGS.items()}

    def verdicts(self) -> list[str]:
        """Return the changes since then, a sentence each."""
        changes: list[str] = []
        for (owner, name), value in zip(self._names, self._values, strict=True):
            now = getattr(owner, name, _MISSING)
            if now is not value and not _is_torch(now):
                changes.append(f"It replaces {getattr(owner, '__qualname__', owner.__name__)}.{name}.")
        changes += [f"It changes {what}." for what, get in _SETTINGS.items() if get() != self._settings[what]]
        return changes
