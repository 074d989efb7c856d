"""Find the fastest kernels for a target: generate candidates with several choices, and race them on a host."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Container, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from fx_lsp.choices import EACH_KERNEL, NO_KERNELS, REGION_SUFFIX, Choices
from fx_lsp.choices import Engine as KernelEngine
from fx_lsp.measured import (
    COMPILE,
    EAGER,
    MAX_AUTOTUNE,
    BenchmarkCase,
    BenchmarkJob,
    Event,
    Failed,
    Finished,
    Report,
)
from fx_lsp.model import Failure
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.remote.cases import BenchRequest, file_of

PLAIN = "kernels"
"""The candidate without regions that Inductor compiles: the time of each of its kernels is known."""
EACH = "each by Inductor"
"""The candidate in which each kernel is a region of its own: the time of each region is known."""
MIXED = "mixed"
"""The candidate in which the faster of kernel and region is chosen, one by one."""
VARIATIONS: Mapping[str, Mapping[str, str]] = {
    PLAIN: {"inductor": NO_KERNELS},
    "estimated": {},
    "traced sizes": {"sizes": "traced"},
    EACH: {"inductor": EACH_KERNEL},
    "all by Inductor": {"inductor": "all"},
    "PyTorch's matmuls": {"matmul": "never", "inductor": NO_KERNELS},
    "own matmuls": {"matmul": "always", "inductor": NO_KERNELS},
    "PyTorch's partition": {"backward": "balance", "inductor": NO_KERNELS},
    "nothing recomputed": {"backward": "save", "inductor": NO_KERNELS},
    "Inductor": {"engine": "inductor", "backward": "balance"},
    "Inductor max-autotune": {"engine": "max-autotune", "backward": "balance"},
}
"""The choices of each candidate, besides the user's. Candidates with equal text are raced once."""
RIVALS: Mapping[str, KernelEngine] = {EAGER: "eager", COMPILE: "compile", MAX_AUTOTUNE: "compile-max-autotune"}
"""The rivals of the candidates, with the engine of a file that does the same."""
FIRST_ROUND = 0.7
"""The share of the time for the first round."""
NOISE = 1.03
"""The factor between two times that may be due to noise."""


@dataclass(frozen=True)
class KernelCandidate:
    """Hold a file of kernels, and the choices that it was generated with."""

    choices: Choices
    text: str


Race = Callable[[BenchmarkJob], AsyncGenerator[Event, None]]
"""A function that runs a job on a host, and yields its events; the last is its end."""


@dataclass(frozen=True)
class Winner:
    """Hold the fastest candidate by its name, the times of all variants, and the report of the first round."""

    name: str
    candidate: KernelCandidate
    milliseconds: dict[str, dict[str, float]]
    report: Report


async def candidates(engine: Engine, asked: BenchRequest) -> dict[str, KernelCandidate] | Failure:
    """Return the candidates for a target, those with equal text once. Returns the failure of the plain one."""
    engine.open(asked.file, asked.text, asked.roots)
    by_name: dict[str, KernelCandidate] = {}
    for name, changes in VARIATIONS.items():
        choices = replace(asked.choices, **changes)
        text = await file_of(engine, asked, choices)
        if isinstance(text, Failure):
            if name == PLAIN:
                return text
            continue
        if all(text != other.text for other in by_name.values()):
            by_name[name] = KernelCandidate(choices, text)
    return by_name


async def raced(
    engine: Engine, asked: BenchRequest, job: BenchmarkJob, race: Race
) -> AsyncGenerator[Event | Winner | Failure, None]:
    """Race candidates for a target, and yield the events of the job; the last item is the winner, or why there is none.

    The second round races the mixed candidate, if it is another, with the fastest of the first. A rival that is faster
    wins, if a file can call the original.
    """
    field = await candidates(engine, asked)
    if isinstance(field, Failure):
        yield field
        return
    reports: list[Report] = []
    async for event in _measured(race, _round(job, field, profile=True), reports):
        yield event
    if not reports:
        return
    times = milliseconds(reports[0])
    first = fastest({name: row for name, row in times.items() if name in field})
    if first is None:
        yield _unmeasured(reports[0], field)
        return
    mixed = await _mixed(engine, asked, field, reports[0])
    if mixed is not None:
        last = {first: field[first], MIXED: mixed}
        async for event in _measured(race, _round(job, last, profile=False), reports):
            if not isinstance(event, Failed):  # the first round counts
                yield event
        again = milliseconds(reports[-1])
        if last.keys() <= again.keys():
            times, field = {**times, **again}, {**field, **last}
            first = fastest({name: again[name] for name in last}) or first
    rivals = {name: row for name, row in times.items() if name in RIVALS}
    best = fastest({first: times[first], **rivals})
    if best is not None and best in RIVALS:
        choices = replace(asked.choices, engine=RIVALS[best])
        text = await file_of(engine, asked, choices)
        if isinstance(text, str):
            first, field = best, {best: KernelCandidate(choices, text)}
    yield Winner(first, field[first], times, reports[0])


async def _measured(race: Race, job: BenchmarkJob, reports: list[Report]) -> AsyncGenerator[Event, None]:
    """Run a job, and yield its events except its report, which is added to `reports`."""
    async with aclosing(race(job)) as events:
        async for event in events:
            if isinstance(event, Finished):
                reports.append(event.report)
            else:
                yield event


def _unmeasured(report: Report, field: Container[str]) -> Failed:
    """Return the reason why no candidate was measured."""
    rows = [row for row in report.measured if row.variant in field]
    wrong = next((v for row in rows for v in (*row.verdicts, row.error) if v), "The time was too short.")
    return Failed(f"No candidate was measured: {wrong}", "A compiler may need more time: see --seconds.")


def _round(job: BenchmarkJob, field: Mapping[str, KernelCandidate], profile: bool) -> BenchmarkJob:
    """Return the job that measures candidates and their rivals."""
    texts = {name: candidate.text for name, candidate in field.items()}
    case = BenchmarkCase("", next(iter(texts.values())), texts)
    seconds = job.seconds * (FIRST_ROUND if profile else 1 - FIRST_ROUND)
    return replace(
        job,
        cases=(case,),
        variants=(*RIVALS, *field),
        seconds=seconds,
        profile=profile,
        profiled=(PLAIN, EACH),
        race=True,
    )


async def _mixed(
    engine: Engine, asked: BenchRequest, field: Mapping[str, KernelCandidate], report: Report
) -> KernelCandidate | None:
    """Return the candidate that chooses for each kernel the faster of it and its region, if no other is the same."""
    slow = slower_kernels(report)
    if not slow:
        return None
    choices = replace(asked.choices, inductor=",".join(slow))
    text = await file_of(engine, asked, choices)
    if isinstance(text, Failure) or any(text == other.text for other in field.values()):
        return None
    return KernelCandidate(choices, text)


def slower_kernels(report: Report) -> list[str]:
    """Return the kernels of the plain candidate that take longer than the regions that replace them."""
    whole = "both" if any(k.what == "both" for k in report.kernels) else "forward"
    times = [k for k in report.kernels if k.what == whole]
    kernels = {k.kernel: k.microseconds for k in times if k.variant == PLAIN}
    regions: dict[str, float] = {}
    for time in times:
        name, end, _ = time.kernel.rpartition(REGION_SUFFIX)
        if time.variant == EACH and end:
            regions[name] = regions.get(name, 0.0) + time.microseconds
    return [name for name, time in kernels.items() if regions.get(name, math.inf) * NOISE < time]


def milliseconds(report: Report) -> dict[str, dict[str, float]]:
    """Return the times of each variant that is right: by the GPU ("forward graph") and by the wall clock."""
    times: dict[str, dict[str, float]] = {}
    for row in report.measured:
        for clock, timing in row.timings.items():
            if row.right and clock != "events":
                times.setdefault(row.variant, {})[f"{row.what} {clock}"] = timing.median
    return times


def fastest(times: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the variant with the best times on the GPU; of those that differ by noise, the best by the wall clock.

    A variant counts by its worst ratio to the best of all, over forward and both. Returns None without variants.
    """
    measured = max((row.keys() for row in times.values()), key=len, default=set[str]())
    complete = {name: row for name, row in times.items() if row.keys() >= measured}

    def ratios(clock: str) -> dict[str, float]:
        keys = [key for key in measured if key.endswith(clock)]
        best = {key: min(row[key] for row in complete.values()) for key in keys}
        return {name: max((row[key] / best[key] for key in keys), default=1.0) for name, row in complete.items()}

    if not complete:
        return None
    gpu, wall = ratios("graph"), ratios("wall")
    least = min(gpu.values())
    return min((name for name in complete if gpu[name] <= least * NOISE), key=wall.__getitem__)
