"""Caches of `functools.lru_cache`: a tensor that one keeps of another trace would be a constant in this one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

_made: WeakSet[Any] = WeakSet()
_lru_cache: Callable[..., Any] = functools.lru_cache


def remember_caches() -> None:
    """From now on, know what is made by `lru_cache` and `cache`; to call before the user's packages are imported."""
    functools.lru_cache = _known_lru_cache


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
    """Empty all these caches, so that what a call needs is computed in it."""
    for function in list(_made):
        function.cache_clear()
