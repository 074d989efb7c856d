"""Find periodic stretches in a sequence of keys: equal items in equal order, repeated. About linear in its length."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence

MIN_ROUNDS = 4
WIDEST = 256


def numbered(items: Iterable[Hashable]) -> list[int]:
    """Return a number for each item; equal items have equal numbers."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(item, len(numbers)) for item in items]


def runs(keys: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield start, stop and smallest period of every stretch of nearly four periods or more, by keys alone.

    A period shows as the distance between two equal pieces. A piece as long as the body occurs once in it, and in most
    bodies a short piece does, so longer and longer pieces are tried, by their hashes.
    """
    data = memoryview(array("Q", keys)).cast("B")
    covered: dict[int, int] = {}
    pieces, width = keys, 1
    while width <= min(WIDEST, len(keys)):
        last: dict[int, int] = {}
        gaps = [0] * len(pieces)
        for index, piece in enumerate(pieces):
            period = gaps[index] = index - last.get(piece, index)
            last[piece] = index
            if period and gaps[index - period] == period and index >= covered.get(period, 0):
                start, stop = _extent(data, index - period, period)
                covered[period] = max(stop, index + 1)
                if stop - start >= MIN_ROUNDS * period - period:
                    yield start, stop, period
        for _ in range(2):
            pieces = [*map(hash, zip(pieces, pieces[width:], strict=False))]
            width *= 2


def _extent(data: memoryview, index: int, period: int) -> tuple[int, int]:
    """Return the range around `index` in which each item equals the item a `period` later; empty if the previous period
    differs.
    """
    size, count = 8, len(data) // 8

    def same(start: int, length: int) -> bool:
        first = data[start * size : (start + length) * size]
        return first == data[(start + period) * size : (start + period + length) * size]

    if not same(index - period, period):
        return index, index
    start, stop = index - period, index
    while start >= period and same(start - period, period):
        start -= period
    while start > 0 and same(start - 1, 1):
        start -= 1
    while stop + 2 * period <= count and same(stop, period):
        stop += period
    while stop + period < count and same(stop, 1):
        stop += 1
    return start, stop + period
