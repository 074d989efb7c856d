"""Find the fastest kernels for a target: generate candidates with several choices, and race them on a host."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from fx_lsp.choices import EACH_KERNEL, NO_KERNELS, REGION_SUFFIX, Choices, read_choices
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
    JobProgress,
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
GENERATING = 0.4
"""The share of the time after which no further candidate is generated."""
FIRST_ROUND = 0.7
"""The share of the rest for the first round."""
NOISE = 1.03
"""The factor between two times that may be due to noise."""
LATE = "The time was over before it was generated."
UNMEASURED = "It was not measured in this race."


@dataclass(frozen=True)
class KernelCandidate:
    """Hold a file of kernels, and the choices that it was generated with."""

    choices: Choices
    text: str

    @property
    def digest(self) -> str:
        """Return a short hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


Race = Callable[[BenchmarkJob], AsyncGenerator[Event, None]]
"""A function that runs a job on a host, and yields its events; the last is its end."""


@dataclass(frozen=True)
class Winner:
    """Hold the fastest candidate by its name, the times and the digests of all variants that were measured, why others
    were `not_run`, and the report of the first round.
    """

    name: str
    candidate: KernelCandidate
    milliseconds: dict[str, dict[str, float]]
    digests: dict[str, str]
    not_run: dict[str, str]
    report: Report


@dataclass(frozen=True)
class EarlierRace:
    """Hold what an earlier race of a target measured on a GPU: its winner, with its choices, and as in `Winner`."""

    card: str
    winner: str
    choices: dict[str, str]
    milliseconds: dict[str, dict[str, float]]
    digests: dict[str, str]


@dataclass
class RaceField:
    """Hold the candidates for a target by name, why others are `not_run`, and what an `earlier` race measured."""

    engine: Engine
    asked: BenchRequest
    earlier: EarlierRace | None = None
    candidates: dict[str, KernelCandidate] = field(default_factory=dict[str, KernelCandidate])
    not_run: dict[str, str] = field(default_factory=dict[str, str])

    async def add(self, name: str, choices: Choices) -> Failure | None:
        """Add the candidate with these choices, unless another has the same text. Return why there is none."""
        text = await file_of(self.engine, self.asked, choices)
        if isinstance(text, Failure):
            self.not_run[name] = text.message
            return text
        same = next((other for other, candidate in self.candidates.items() if candidate.text == text), None)
        if same is None:
            self.candidates[name] = KernelCandidate(choices, text)
        else:
            self.not_run[name] = f"It is the same file as {same}."
        return None

    def measured(self) -> dict[str, dict[str, float]]:
        """Return the times of the earlier race for the present files and the rivals, {} if nothing is left to race."""
        if self.earlier is None:
            return {}
        rows, digests = self.earlier.milliseconds, self.earlier.digests
        same = {n for n, c in self.candidates.items() if digests.get(n) == c.digest}
        left = self.candidates.keys() - same or RIVALS.keys() - rows.keys()
        return {name: row for name, row in rows.items() if name in same or name in RIVALS} if same and left else {}

    def round(self, job: BenchmarkJob, names: Collection[str], seconds: float, profile: bool) -> BenchmarkJob:
        """Return the job that measures some of the candidates and of their rivals."""
        texts = {name: candidate.text for name, candidate in self.candidates.items() if name in names}
        case = BenchmarkCase("", next(iter(self.candidates.values())).text, texts)
        rivals = [name for name in RIVALS if name in names]
        job = replace(job, cases=(case,), variants=(*rivals, *texts), seconds=seconds, race=True)
        return replace(job, profile=profile, profiled=(PLAIN, EACH))


async def raced(kernels: RaceField, job: BenchmarkJob, race: Race) -> AsyncGenerator[Event | Winner | Failure, None]:
    """Race candidates for a target, and yield the events of the job; the last item is the winner, or why there is none.

    What is measured when the seconds of the job are over decides. A later race measures the fastest again, with those
    that were not measured. The second round races the mixed candidate, if it is another, with the fastest of the first.
    A rival that is faster wins, if a file can call the original.
    """
    started, asked = time.monotonic(), kernels.asked
    kernels.engine.open(asked.file, asked.text, asked.roots)
    async for item in _generated(kernels, GENERATING * job.seconds):
        yield item
        if isinstance(item, Failure):
            return
    before = kernels.measured()
    names = {*kernels.candidates, *RIVALS} - before.keys() | {fastest(before) or ""}
    left = job.seconds - (time.monotonic() - started)
    reports: list[Report] = []
    async for event in _measured(race, kernels.round(job, names, FIRST_ROUND * left, profile=True), reports):
        yield event
    if not reports:
        return
    if kernels.earlier is not None and before and reports[0].machine.gpu != kernels.earlier.card:
        before = {}
    times = {**before, **milliseconds(reports[0])}
    mixed = await _mixed(kernels, reports[0])
    first = fastest({name: row for name, row in times.items() if name in kernels.candidates})
    left = job.seconds - (time.monotonic() - started)
    if mixed and first and left > 0:
        async for event in _measured(race, kernels.round(job, {first, MIXED}, left, profile=False), reports):
            if not isinstance(event, Failed):  # the first round counts
                yield event
        times.update(milliseconds(reports[-1]))
    yield await _end(kernels, times, reports)


async def _generated(kernels: RaceField, seconds: float) -> AsyncGenerator[JobProgress | Failure, None]:
    """Add candidates until so many seconds have passed, the plain one in any case; the failure of that is the last
    item.
    """
    started = time.monotonic()
    for number, (name, changes) in enumerate(VARIATIONS.items()):
        yield JobProgress(f"generate {name}", number, len(VARIATIONS))
        if number and time.monotonic() - started > seconds:
            kernels.not_run[name] = LATE
            continue
        failure = await kernels.add(name, replace(kernels.asked.choices, **changes))
        if failure is not None and name == PLAIN:
            yield failure
            return
    if kernels.earlier is not None and kernels.earlier.winner == MIXED:
        await kernels.add(MIXED, read_choices(kernels.earlier.choices))


async def _end(kernels: RaceField, times: dict[str, dict[str, float]], reports: Sequence[Report]) -> Winner | Failed:
    """Return the winner, with a reason for each variant that was not run; a failure if no candidate was measured."""
    rows = [row for report in reports for row in report.measured if row.variant not in times]
    reasons = {row.variant: next(iter(row.verdicts), row.error) or UNMEASURED for row in rows}
    missing = dict.fromkeys({*kernels.candidates, *RIVALS} - times.keys(), UNMEASURED)
    not_run = {**missing, **kernels.not_run, **reasons}
    best = await _best(kernels, times)
    if best is None:
        reason = next((not_run[name] for name in kernels.candidates), UNMEASURED)
        return Failed(f"No candidate was measured: {reason}", "A compiler may need more time: see --seconds.")
    digests = {name: candidate.digest for name, candidate in kernels.candidates.items() if name in times}
    return Winner(best, kernels.candidates[best], times, digests, not_run, reports[0])


async def _best(kernels: RaceField, times: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the fastest of the variants that are files, and add its file; None if no candidate was measured."""
    if not times.keys() & kernels.candidates.keys():
        return None
    rows = dict(times)
    while (best := fastest(rows)) is not None and best not in kernels.candidates:
        await kernels.add(best, replace(kernels.asked.choices, engine=RIVALS[best]))
        if best not in kernels.candidates:
            del rows[best]
    return best


async def _measured(race: Race, job: BenchmarkJob, reports: list[Report]) -> AsyncGenerator[Event, None]:
    """Run a job, and yield its events except its report, which is added to `reports`."""
    async with aclosing(race(job)) as events:
        async for event in events:
            if isinstance(event, Finished):
                reports.append(event.report)
            else:
                yield event


async def _mixed(kernels: RaceField, report: Report) -> bool:
    """Add the candidate that chooses for each kernel the faster of it and its region; return True if it is another."""
    slow, is_new = slower_kernels(report), MIXED not in kernels.candidates
    if slow and is_new:
        await kernels.add(MIXED, replace(kernels.asked.choices, inductor=",".join(slow)))
    return is_new and MIXED in kernels.candidates


def slower_kernels(report: Report) -> list[str]:
    """Return the kernels of the plain candidate that take longer than the regions that replace them."""
    whole = "both" if any(k.what == "both" for k in report.kernels) else "forward"
    times = [k for k in report.kernels if k.what == whole]
    kernels = {k.kernel: k.microseconds for k in times if k.variant == PLAIN}
    regions: dict[str, float] = {}
    for row in times:
        name, end, _ = row.kernel.rpartition(REGION_SUFFIX)
        if row.variant == EACH and end:
            regions[name] = regions.get(name, 0.0) + row.microseconds
    return [name for name, ours in kernels.items() if regions.get(name, math.inf) * NOISE < ours]


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
