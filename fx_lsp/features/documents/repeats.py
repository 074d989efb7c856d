"""Find repeats in a sequence whose numbers grow by constant steps. About linear in its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq, sub

from fx_lsp.periods import MIN_ROUNDS, runs

MULTIPLES = 4

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Repeat:
    """Locate items `start` to `stop` (exclusive): `rounds` iterations of `period` items."""

    start: int
    period: int
    rounds: int

    @property
    def stop(self) -> int:
        """Return the index after the last item."""
        return self.start + self.period * self.rounds

    @property
    def last(self) -> int:
        """Return the index of the first item of the last iteration."""
        return self.stop - self.period


@dataclass(frozen=True)
class Sequenced:
    """Hold the keys and numbers to compare in a sequence of items.

    `keys` are equal within a repeat. `numbers` grow by a constant step from each iteration to the next. The first and
    the last iteration may differ from the others: `begins(i, p)` is True if item `i` may match item `i + p` in the
    first iteration of a repeat of period `p`, and `ends(i, p)` if it may match item `i - p` in the last. `cut(i, p)` is
    the best first index, from `i` to `i + p` (exclusive), of a repeat of period `p` that holds from `i` on.
    """

    keys: Sequence[int]
    numbers: Sequence[Numbers]
    begins: Callable[[int, int], bool]
    ends: Callable[[int, int], bool]
    cut: Callable[[int, int], int]


def repeats(items: Sequenced, least_hidden: int, shown: int) -> list[Repeat]:
    """Return repeats, in order, the largest first if some overlap; then the repeats within their first and last
    iterations.

    Each has `MIN_ROUNDS` iterations or more and, without `shown` of them, `least_hidden` items or more.
    """
    if len(items.keys) < least_hidden + shown:
        return []
    regions = sorted({region for run in runs(items.keys) for region in _regular(items, *run)})
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
        start, stop, period = equal[len(equal) // 2]  # in the middle, so that the remaining parts halve
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


def _regular(items: Sequenced, start: int, stop: int, period: int) -> list[tuple[int, int, int]]:
    """Return the parts of a run whose numbers grow by constant steps, with the iterations that may match at their ends.

    The numbers may be regular only in every second, third or fourth iteration, so multiples of the period are tried.
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
