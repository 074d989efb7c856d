"""A mapping that drops the least recently used values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """Map keys to values whose total `weight` stays within `limit`; the least recently used are dropped first."""

    def __init__(self, limit: int, weight: Callable[[V], int]) -> None:
        self._limit = limit
        self._weight = weight
        self._items: OrderedDict[K, V] = OrderedDict()
        self._total = 0

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._items))

    def get(self, key: K) -> V | None:
        """Return the value, or None, and mark it as used."""
        if key not in self._items:
            return None
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: K, value: V) -> None:
        """Store a value. The last stored one stays even if it exceeds the limit alone."""
        self.drop(key)
        self._items[key] = value
        self._total += self._weight(value)
        while self._total > self._limit and len(self._items) > 1:
            self._total -= self._weight(self._items.popitem(last=False)[1])

    def drop(self, key: K) -> None:
        """Remove a value, if present."""
        if key in self._items:
            self._total -= self._weight(self._items.pop(key))
