"""Track each variant of each case while a job runs, and build the rows of its report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fx_lsp import wire
from fx_lsp.bench.runner import conditions, summary
from fx_lsp.bench.runner.children import VariantProcess
from fx_lsp.measured import (
    KERNELS,
    BenchmarkJob,
    Ceilings,
    Clock,
    Cost,
    Event,
    JobProgress,
    KernelTime,
    LineTime,
    Machine,
    Measured,
    Timing,
    What,
)

SLOW_CLOCK, SLACK = 1.5, 0.3
"""The factor, and the additional seconds, by which our clock may exceed a process's clock for its measurements."""


@dataclass
class VariantRun:
    """Hold one variant of one case. `samples` are milliseconds of a first and a second measurement; `said` and `seen`
    are the seconds of the measurements by the clock of its process, and by ours; `free` is in bytes; `doubts` are
    about timed calls.
    """

    case: int
    variant: str
    child: VariantProcess | None = None
    clocks: list[Clock] = field(default_factory=list[Clock])
    right: bool | None = None
    verdicts: list[str] = field(default_factory=list[str])
    error: str = ""
    crashed: bool = False
    setup_seconds: float = 0.0
    warnings: list[str] = field(default_factory=list[str])
    samples: dict[tuple[What, Clock], tuple[list[float], list[float]]] = field(
        default_factory=dict[tuple[What, Clock], tuple[list[float], list[float]]]
    )
    kernels: list[KernelTime] = field(default_factory=list[KernelTime])
    lines: list[LineTime] = field(default_factory=list[LineTime])
    free: int = 0
    doubts: list[str] = field(default_factory=list[str])
    said: float = 0.0
    seen: float = 0.0

    def end(self) -> None:
        """End its process, which is not needed any more."""
        if self.child is not None:
            self.child.kill()
        self.child = None

    def wrong(self, verdicts: Sequence[str]) -> None:
        """Record that its results are wrong."""
        self.verdicts += [v for v in verdicts if v not in self.verdicts]
        self.right = False if verdicts else self.right


@dataclass
class RunningJob:
    """Hold a running job: `deadline` by the monotonic clock; `environment` is that of its processes; `looks` are
    observations of the machine under load.
    """

    job: BenchmarkJob
    tell: Callable[[Event], None]
    folder: Path
    environment: dict[str, str]
    deadline: float
    total: int
    kind: str = ""
    done: int = 0
    looks: list[Machine] = field(default_factory=list[Machine])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, text: str, steps: int = 0) -> None:
        """Report the current step, and advance by `steps`."""
        with self.lock:
            self.done = min(self.total, self.done + steps)
            self.tell(JobProgress(text, self.done, self.total))

    def left(self) -> float:
        """Return the remaining seconds of the job."""
        return self.deadline - time.monotonic()

    def look(self) -> None:
        """Observe the state of the GPU, without waiting for it."""
        if self.kind == "cuda":
            device = self.job.device or "cuda"
            threading.Thread(target=lambda: self.looks.append(conditions.machine(device)), daemon=True).start()

    def child(self, prefix: Sequence[str] = ()) -> VariantProcess:
        """Start a fresh process."""
        number = sum(1 for _ in self.folder.glob("*.log"))
        return VariantProcess(self.folder / f"{number}.log", self.environment, prefix)

    def setup_request(self, entry: VariantRun, what: Sequence[What]) -> dict[str, Any]:
        """Return the first request to a process."""
        others = [*self.job.cases[entry.case].others]
        own = entry.variant in others
        return {
            "do": "setup",
            "device": self.kind,
            "variant": KERNELS if own else entry.variant,
            "file": str(file_of(self.folder, entry.case, 1 + others.index(entry.variant) if own else 0)),
            "what": list(what),
            "paths": list(self.job.paths),
            "rivals": wire.to_json(self.job.rivals),
        }

    def title(self, entry: VariantRun) -> str:
        """Return the title of a variant."""
        label = self.job.cases[entry.case].label
        return f"{label} · {entry.variant}" if label else entry.variant


def file_of(folder: Path, case: int, place: int = 0) -> Path:
    """Return the path of a file of a case: the first one, or one of its others by their place, from 1."""
    return folder / str(case) / f"kernels{place or ''}.py"


def rows(
    job: BenchmarkJob, entries: Sequence[VariantRun], costs: Sequence[Cost], ceilings: Ceilings | None
) -> tuple[Measured, ...]:
    """Return the rows of a report, in the order of its cases, then of forward, backward and both."""
    by_case = {(c.label, c.what): c for c in costs}
    table: list[Measured] = []
    for number, case in enumerate(job.cases):
        for what in whats(job, case.label, costs):
            for entry in (e for e in entries if e.case == number):
                table.append(_row(entry, case.label, what, by_case.get((case.label, what)), ceilings))
    return tuple(table)


def whats(job: BenchmarkJob, label: str, costs: Sequence[Cost]) -> list[What]:
    """Return the measurable parts of a case: forward alone, if nothing requires a gradient."""
    possible = [c.what for c in costs if c.label == label]
    return [w for w in job.what if w in possible or not possible]


def _row(entry: VariantRun, label: str, what: What, cost: Cost | None, ceilings: Ceilings | None) -> Measured:
    verdicts, right = list(entry.verdicts), entry.right
    if entry.seen > SLOW_CLOCK * entry.said + SLACK:
        right = False
        verdicts.append(f"Its clock was manipulated: it reports {entry.said:.1f} s, but {entry.seen:.1f} s passed.")
    timings: dict[str, Timing] = {}
    for (of, clock), samples in entry.samples.items():
        timing = summary.timing(*samples)
        if of == what and timing is not None and right:
            timings[clock] = timing
    bandwidth, rate = summary.fractions(timings, cost, ceilings)
    doubts = [f"One of several findings: {entry.doubts[0]}"] if len(entry.doubts) == 1 else []
    warnings = (*entry.warnings, *doubts, *summary.warnings(timings, bandwidth, rate))
    return Measured(
        entry.variant,
        label,
        what,
        timings,
        right,
        tuple(verdicts),
        entry.error,
        entry.setup_seconds,
        bandwidth,
        rate,
        tuple(dict.fromkeys(warnings)),
        entry.crashed,
    )
