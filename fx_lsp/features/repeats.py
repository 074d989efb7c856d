"""Where a sequence repeats itself, its numbers growing by constant steps. About linear in its length."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq, sub

MIN_ROUNDS = 4
WIDEST = 256
MULTIPLES = 4

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Repeat:
    """Items `start` to `stop` (exclusive) are `rounds` rounds of `period` items."""

    start: int
    period: int
    rounds: int

    @property
    def stop(self) -> int:
        """Return the index after the last item."""
        return self.start + self.period * self.rounds

    @property
    def last(self) -> int:
        """Return the index of the first item of the last round."""
        return self.stop - self.period


@dataclass(frozen=True)
class Sequenced:
    """What is compared of a sequence of items.

    `keys`: equal within a repeat. `numbers`: grow by a constant step from each round to the next. The first and the
    last round may differ from the others: `begins(i, p)` tells whether item `i` may stand for item `i + p` in the first
    round of a repeat of period `p`, and `ends(i, p)` whether it may stand for item `i - p` in the last.
    `cut(i, p)`: the index, from `i` to `i + p` (exclusive), where a repeat of period `p` that holds from `i` on is best
    taken to begin.
    """

    keys: Sequence[int]
    numbers: Sequence[Numbers]
    begins: Callable[[int, int], bool]
    ends: Callable[[int, int], bool]
    cut: Callable[[int, int], int]


def numbered(items: Iterable[Hashable]) -> list[int]:
    """Return a number for each item, the same for equal ones."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(item, len(numbers)) for item in items]


def repeats(items: Sequenced, least_hidden: int, shown: int) -> list[Repeat]:
    """Return repeats, in order, the largest first where some overlap; then those within their first and last rounds.

    Each has `MIN_ROUNDS` rounds or more and, `shown` rounds left out, `least_hidden` items or more.
    """
    if len(items.keys) < least_hidden + shown:
        return []
    regions = sorted({region for run in _runs(items.keys) for region in _regular(items, *run)})
    repeated: list[Repeat] = []
    todo = [(0, len(items.keys), regions)]
    while todo:
        low, high, regions = todo.pop()
        clipped = [(max(start, low), min(stop, high), p) for start, stop, p in regions]
        fitting = [r for r in clipped if _hidden(*r, shown) >= least_hidden]
        if not fitting:
            continue
        most = max((_hidden(*r, shown), -r[2]) for r in fitting)
        equal = [r for r in fitting if (_hidden(*r, shown), -r[2]) == most]
        start, stop, period = equal[len(equal) // 2]  # in the middle, so that what is left halves
        begin = items.cut(start, period)
        if _hidden(begin, stop, period, shown) < least_hidden:
            begin = start
        repeat = Repeat(begin, period, (stop - begin) // period)
        repeated.append(repeat)
        parts = ((low, begin), (begin, begin + period), (repeat.last, repeat.stop), (repeat.stop, high))
        todo += [(a, b, [r for r in fitting if r[0] < b and r[1] > a]) for a, b in parts]
    return sorted(repeated, key=lambda r: r.start)


def _hidden(start: int, stop: int, period: int, shown: int) -> int:
    rounds = (stop - start) // period
    return (rounds - shown) * period if rounds >= MIN_ROUNDS else 0


def _runs(keys: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Start, stop and smallest period of every stretch of four rounds or more, by keys alone.

    A period shows as the distance between two equal pieces; a piece as long as the body occurs once in it, and in most
    bodies a short piece does. So longer and longer pieces are tried, by their hashes.
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
    """Return how far around `index` each item equals that a `period` later; empty where the round before does not."""
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


def _regular(items: Sequenced, start: int, stop: int, period: int) -> list[tuple[int, int, int]]:
    """Return the parts of a run whose numbers grow by constant steps, with the rounds that may stand at their ends.

    The numbers may be regular every second, third or fourth round alone, so multiples of the period are tried.
    """
    for multiple in range(period, min(MULTIPLES * period, (stop - start) // 3) + 1, period):
        parts = [
            (_begin(items, low, multiple), _end(items, high, multiple), multiple)
            for low, high in _steady(items.numbers, start, stop, multiple)
        ]
        if parts:
            return parts
    return []


def _steady(numbers: Sequence[Numbers], start: int, stop: int, period: int) -> Iterator[tuple[int, int]]:
    before = numbers[start : stop - period]
    steps = [tuple(map(sub, *pair)) for pair in zip(numbers[start + period : stop], before, strict=True)]
    same = [*map(eq, steps[period:], steps), False]
    first = 0
    for index, steady in enumerate(same):
        if not steady:
            if index - first >= period:
                yield start + first, start + index + 2 * period
            first = index + 1


def _begin(items: Sequenced, index: int, period: int) -> int:
    for before in range(index - 1, max(index - period, 0) - 1, -1):
        if not items.begins(before, period):
            return before + 1
    return max(index - period, 0)


def _end(items: Sequenced, index: int, period: int) -> int:
    last = min(index + period, len(items.keys))
    return next((after for after in range(index, last) if not items.ends(after, period)), last)
