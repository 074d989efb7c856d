"""Where a sequence repeats itself, its numbers growing by constant steps. About linear in its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq, sub

from fx_lsp.periods import MIN_ROUNDS, runs

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


def repeats(items: Sequenced, least_hidden: int, shown: int) -> list[Repeat]:
    """Return repeats, in order, the largest first where some overlap; then those within their first and last rounds.

    Each has `MIN_ROUNDS` rounds or more and, `shown` rounds left out, `least_hidden` items or more.
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
