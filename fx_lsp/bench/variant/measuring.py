"""Sample a variant's time by each clock, and keep one result of a timed call for a later check."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch

from fx_lsp.bench.variant.calls import Calls, FillValues, Results
from fx_lsp.bench.variant.devices import Device, elapsed, event, now, record, wait
from fx_lsp.measured import Clock, What

_WARM_SECONDS, _MAX_WARM_SECONDS = 0.015, 2.0
_MAX_WAIT_SECONDS = 0.003
_MIN_CALLS, _MAX_CALLS = 3, 400
_IN_GRAPH = 10
"""The most calls in one CUDA graph."""


@dataclass(frozen=True)
class TimedResults:
    """Hold the results of a timed call, with its set of arguments and their values."""

    results: Results
    number: int
    values: FillValues


@dataclass(frozen=True)
class Samples:
    """Hold milliseconds of one call each; `seconds` is the time of sampling by this process's clock."""

    milliseconds: list[float]
    kept: TimedResults
    seconds: float


@dataclass(frozen=True)
class TimedCalls:
    """Hold the calls to time, what each of them computes, and the device that they run on."""

    where: Device
    calls: Calls
    what: What


def measure(timed: TimedCalls, clock: Clock, seconds: float, mark: Callable[[], None]) -> Samples:
    """Return samples of about `seconds`, after some warm-up calls. Raises the variant's exceptions.

    `mark` is called at the beginning and the end of sampling.
    """
    if clock == "graph":
        return _graph(timed, seconds, mark)
    one, launching = _warm(timed)
    number = max(_MIN_CALLS, min(_MAX_CALLS, int(seconds / max(one, 1e-7))))
    if clock == "events":
        return _events(timed, number, min(1.3 * launching, _MAX_WAIT_SECONDS), mark)
    return _wall(timed, number, mark)


def _wall(timed: TimedCalls, number: int, mark: Callable[[], None]) -> Samples:
    where, calls, what = timed.where, timed.calls, timed.what
    chosen, milliseconds, kept = random.SystemRandom().randrange(number), list[float](), None
    with _quiet(mark) as spent:
        for sample in range(number):
            at, values = sample % len(calls.sets), calls.draw()
            calls.fill(at, values)
            _step(where)
            prepared = calls.prepare(at, what)
            where.synchronize()
            begin = now()
            results = calls.call(at, what, prepared)
            where.synchronize()
            milliseconds.append((now() - begin) / 1e6)
            if sample == chosen:
                kept = TimedResults(_copies(results), at, values)
            del results, prepared
    assert kept is not None
    return Samples(milliseconds, kept, spent[0])


def _events(timed: TimedCalls, number: int, launching: float, mark: Callable[[], None]) -> Samples:
    """Time calls by events, with the cache overwritten before each.

    The GPU waits as long as launching a call takes, so that it then has all of the work queued.
    """
    where, calls, what = timed.where, timed.calls, timed.what
    chosen, kept = random.SystemRandom().randrange(number), None
    flush = torch.empty(2 * where.cache, dtype=torch.int8, device=where.kind)
    marks = [(event(), event()) for _ in range(number)]
    with _quiet(mark) as spent:
        for sample, (start, end) in enumerate(marks):
            at, values = sample % len(calls.sets), calls.draw()
            calls.fill(at, values)
            _step(where)
            prepared = calls.prepare(at, what)
            wait(where, launching)
            flush.zero_()
            record(start)
            results = calls.call(at, what, prepared)
            record(end)
            if sample == chosen:
                kept = TimedResults(_copies(results), at, values)
            del results, prepared
        where.synchronize()
    assert kept is not None
    return Samples([elapsed(*pair) for pair in marks], kept, spent[0])


def _graph(timed: TimedCalls, seconds: float, mark: Callable[[], None]) -> Samples:
    """Time replays of a CUDA graph with several calls, on each set in turn, so that launches cost nothing."""
    _warm(timed)
    where, calls, what = timed.where, timed.calls, timed.what
    sets = len(calls.sets)
    order = [n % sets for n in range(sets if calls.writes else max(sets, _IN_GRAPH))]
    held = [calls.draw() for _ in range(sets)]
    for at, values in enumerate(held):
        calls.fill(at, values)
    prepared = [calls.prepare(at, what) for at in range(sets)]
    graph = torch.cuda.CUDAGraph()
    results: list[Results] = []
    where.synchronize()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
        for at in order:
            results.append(calls.call(at, what, prepared[at], retain=what == "backward"))
            if len(results) > sets:
                results[-1 - sets] = []  # its memory is reused, as outside of a graph
    one = _replayed(where, graph, 1)[0] / 1e3
    number = max(_MIN_CALLS, min(_MAX_CALLS, int(seconds / max(one, 1e-7))))
    with _quiet(mark) as spent:
        milliseconds = [t / len(order) for t in _replayed(where, graph, number)]
    chosen = random.SystemRandom().randrange(sets)
    if what != "backward":  # that starts from values computed outside of the graph
        held[chosen] = calls.draw()
        calls.fill(chosen, held[chosen])
    graph.replay()
    where.synchronize()
    last = max(n for n, at in enumerate(order) if at == chosen)
    return Samples(milliseconds, TimedResults(_copies(results[last]), chosen, held[chosen]), spent[0])


def _replayed(where: Device, graph: torch.cuda.CUDAGraph, number: int) -> list[float]:
    marks = [(event(), event()) for _ in range(number)]
    graph.replay()
    for start, end in marks:
        record(start)
        graph.replay()
        record(end)
    where.synchronize()
    return [elapsed(*pair) for pair in marks]


def _warm(timed: TimedCalls) -> tuple[float, float]:
    """Return the seconds of a call including its surroundings, after warming up the device, and the seconds of its
    launch alone.
    """
    where, calls, what = timed.where, timed.calls, timed.what
    begin, done, spent, launching = now(), 0, 0.0, list[float]()
    while (done < _MIN_CALLS or spent < _WARM_SECONDS) and spent < _MAX_WARM_SECONDS:
        at = done % len(calls.sets)
        calls.fill(at, calls.draw())
        _step(where)
        prepared = calls.prepare(at, what)
        where.synchronize()
        launched = now()
        calls.call(at, what, prepared)
        launching.append((now() - launched) / 1e9)
        where.synchronize()
        done, spent = done + 1, (now() - begin) / 1e9
    return spent / done, median(launching)


def settle(where: Device, calls: Calls, what: What) -> None:
    """Call each set until nothing is compiled, traced or recorded any more."""
    for at in range(len(calls.sets)):
        for _ in range(_MIN_CALLS):
            _step(where)
            calls.call(at, what, calls.prepare(at, what))
    where.synchronize()


def _step(where: Device) -> None:
    """Mark the results of earlier calls as unneeded for torch.compile's CUDA graphs."""
    if where.kind == "cuda":
        torch.compiler.cudagraph_mark_step_begin()


def _copies(results: Results) -> Results:
    return [None if t is None else t.detach().clone() for t in results]


@contextmanager
def _quiet(mark: Callable[[], None]) -> Generator[list[float]]:
    """Disable garbage collection inside; the elapsed seconds are in the list afterwards."""
    spent: list[float] = []
    gc.collect()
    gc.disable()
    mark()
    started = now()
    try:
        yield spent
    finally:
        spent.append((now() - started) / 1e9)
        mark()
        gc.enable()
