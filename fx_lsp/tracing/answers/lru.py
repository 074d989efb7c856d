"""A mapping that forgets what was used longest ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """A mapping whose values' total `weight` stays within `limit`: what was used longest ago goes first."""

    def __init__(self, limit: int, weight: Callable[[V], int]) -> None:
        self._limit = limit
        self._weight = weight
        self._items: OrderedDict[K, V] = OrderedDict()
        self._total = 0

    def get(self, key: K) -> V | None:
        """Return the value, which counts as a use of it."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: K, value: V) -> None:
        """Keep a value. The one put last stays even where it is over the limit alone."""
        self.drop(key)
        self._items[key] = value
        self._total += self._weight(value)
        while self._total > self._limit and len(self._items) > 1:
            self._total -= self._weight(self._items.popitem(last=False)[1])

    def drop(self, key: K) -> None:
        """Forget a value, if it is there."""
        if key in self._items:
            self._total -= self._weight(self._items.pop(key))
