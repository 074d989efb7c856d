"""Report which configuration an autotuner tries, if this version of Triton or Inductor can be observed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

_TUNERS = (
    ("triton.runtime.autotuner", "Autotuner", "_bench", "configs"),
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "bench", "launchers"),
)
"""Modules, classes, the method that times one configuration, and the attribute with all of them."""


def watch(say: Callable[[str], None], inductor: bool) -> None:
    """Report to `say` from now on which configuration of how many is tried, optionally by Inductor too."""
    for module, name, method, configurations in _TUNERS[: 1 + inductor]:
        with suppress(ImportError, AttributeError):
            tuner = getattr(import_module(module), name)
            setattr(tuner, method, _counted(getattr(tuner, method), configurations, say))


def forget(module: ModuleType) -> None:
    """Forget the configurations that Triton chose for the kernels of a file: the next call times them again."""
    with suppress(ImportError, AttributeError):
        tuner = import_module("triton.runtime.autotuner").Autotuner
        for kernel in vars(module).values():
            if isinstance(kernel, tuner):
                kernel.cache.clear()


def _counted(method: Callable[..., Any], configurations: str, say: Callable[[str], None]) -> Callable[..., Any]:
    tried: dict[int, int] = {}

    def bench(self: Any, *args: Any, **kwargs: Any) -> Any:
        total = len(getattr(self, configurations, None) or ())
        number = tried[id(self)] = tried.get(id(self), 0) % max(total, 1) + 1
        if total > 1:
            say(f"autotune configuration {number} of {total}{_of(self)}")
        return method(self, *args, **kwargs)

    return bench


def _of(tuner: Any) -> str:
    function = getattr(tuner, "fn", None)
    name = getattr(function, "__name__", "") or getattr(getattr(function, "fn", None), "__name__", "")
    return f" of {name}" if name else ""
