"""Clear caches of `functools.lru_cache`: a cached tensor of another trace would be a constant in this one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

_made: WeakSet[Any] = WeakSet()
_lru_cache: Callable[..., Any] = functools.lru_cache


def remember_caches() -> None:
    """Track all functions created by `lru_cache` and `cache` from now on; call it before the user's packages are
    imported.
    """
    functools.lru_cache = _known_lru_cache


@contextmanager
def caches_of_torch() -> Generator[None]:
    """Inside, decorated functions are not the user's, as before `remember_caches`."""
    tracked, functools.lru_cache = functools.lru_cache, _lru_cache
    try:
        yield
    finally:
        functools.lru_cache = tracked


def _known_lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
    decorated = _lru_cache(maxsize, typed)
    if callable(maxsize):
        _made.add(decorated)
        return decorated

    def decorate(function: Callable[..., Any]) -> Any:
        cached = decorated(function)
        _made.add(cached)
        return cached

    return decorate


def forget_results() -> None:
    """Clear all these caches, so that a call computes everything that it needs."""
    for function in list(_made):
        function.cache_clear()
