"""Run a job from its beginning to its report. Standard library only: this process runs no foreign code.

Each variant has its own process. They are set up one after the other, then interleave their measurements, so that drift
affects all alike (`turns.py`).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from fx_lsp import wire
from fx_lsp.bench.runner import conditions, nsight
from fx_lsp.bench.runner.children import ChildError
from fx_lsp.bench.runner.entries import RunningJob, VariantRun, file_of, rows, whats
from fx_lsp.bench.runner.turns import STEPS, run_case
from fx_lsp.measured import (
    INDUCTOR_KERNELS,
    MODULES_FOLDER,
    VARIANTS,
    WHATS,
    BenchmarkCase,
    BenchmarkJob,
    Ceilings,
    Cost,
    Event,
    Failed,
    Finished,
    Machine,
    Report,
)

_FACTS_SECONDS = 300.0
_UNSET = ("PYTORCH_JIT", "TRITON_INTERPRET")
"""Environment variables that would change the meaning of a variant."""


def run(job: BenchmarkJob, tell: Callable[[Event], None]) -> Finished | Failed:
    """Run a job, and report its events to `tell`; the last event is also returned."""
    last: Finished | Failed | None = _refused(job)
    if last is None:
        with tempfile.TemporaryDirectory(prefix="fx-lsp-bench-", ignore_cleanup_errors=True) as folder:
            last = _run(_bench(job, tell, Path(folder)))
    tell(last)
    return last


def _refused(job: BenchmarkJob) -> Failed | None:
    names = [*dict.fromkeys([*VARIANTS, *(n for c in job.cases for n in c.others), *(r.name for r in job.rivals)])]
    unknown = [name for name in job.variants or () if name not in names]
    if unknown:
        return Failed(f"There is no variant {unknown[0]}.", f"The variants are {', '.join(names)}.")
    if not job.cases:
        return Failed("There is nothing to measure.")
    if not job.what or any(what not in WHATS for what in job.what):
        return Failed(f"Measure one or more of {', '.join(WHATS)}.")
    return None


def _bench(job: BenchmarkJob, tell: Callable[[Event], None], folder: Path) -> RunningJob:
    for number, case in enumerate(job.cases):
        (folder / str(number)).mkdir()
        for place, text in enumerate((case.file, *case.others.values())):
            file_of(folder, number, place).write_text(text, encoding="utf-8")
    for module in job.modules:
        place = folder / MODULES_FOLDER / module.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(module.text, encoding="utf-8")
    if job.modules:
        job = replace(job, paths=(str(folder / MODULES_FOLDER), *job.paths))
    return RunningJob(job, tell, folder, _environment(job, folder), time.monotonic() + job.seconds, 1)


def _environment(job: BenchmarkJob, folder: Path) -> dict[str, str]:
    device = job.device
    variables = {name: value for name, value in os.environ.items() if name not in _UNSET}
    variables["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[3]), variables.get("PYTHONPATH", "")])
    )
    variables.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    variables.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
    if job.race:
        variables["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # its processes compile at the same time already
    if device is not None and device.startswith("cuda:"):
        variables["CUDA_VISIBLE_DEVICES"] = conditions.card(device)
    return variables


def _run(bench: RunningJob) -> Finished | Failed:
    job, began, started = bench.job, time.time(), time.monotonic()
    before, idle = conditions.machine(job.device or "cuda"), conditions.machine("cpu")
    facts = _facts(bench)
    if isinstance(facts, Failed):
        return facts
    bench.kind = facts["device"]
    if bench.kind == "cpu":
        bench.environment["TRITON_INTERPRET"] = "1"
        before = idle
    costs = tuple(wire.from_json(Cost, c) for c in facts["costs"])
    ceilings = wire.from_json(Ceilings, facts["ceilings"]) if facts["ceilings"] else None
    warnings = [facts["warning"]] if "warning" in facts else []
    entries = [VariantRun(n, name) for n, case in enumerate(job.cases) for name in _names(job, case)]
    bench.total += (1 + STEPS) * len(entries)
    for number, case in enumerate(job.cases):
        own = [e for e in entries if e.case == number]
        what = whats(job, case.label, costs)
        if len(what) < len(job.what):
            warnings.append("No input requires a gradient: only forward is measured.")
        if what:
            coming = sum(e.case >= number for e in entries)
            warnings += run_case(bench, own, what, coming)
    machine = _described(conditions.seen(before, bench.looks), facts)
    warnings += conditions.warnings(machine)
    kernels = tuple(chain.from_iterable(entry.kernels for entry in entries))
    if job.profile and bench.kind == "cuda" and not job.race:
        kernels = nsight.with_metrics(bench, entries, kernels)
    report = Report(
        job.name,
        machine,
        ceilings,
        costs,
        rows(job, entries, costs, ceilings),
        tuple(dict.fromkeys(warnings)),
        began,
        time.monotonic() - started,
        job.source_hash,
        job.choices,
        kernels,
        tuple(chain.from_iterable(entry.lines for entry in entries)),
    )
    return Finished(report)


def _names(job: BenchmarkJob, case: BenchmarkCase) -> Sequence[str]:
    """Return the variants of a case; Inductor's kernels only if there is a file of them, or on request."""
    names = dict.fromkeys([*VARIANTS, *case.others])
    if job.variants is not None:
        return [*(v for v in names if v in job.variants), *(r.name for r in job.rivals)]
    chosen = [v for v in names if v != INDUCTOR_KERNELS or v in case.others]
    return [*chosen, *(r.name for r in job.rivals)]


def _facts(bench: RunningJob) -> dict[str, Any] | Failed:
    bench.say("start")
    job = bench.job
    cases = [(case.label, str(file_of(bench.folder, n))) for n, case in enumerate(job.cases)]
    request = {
        "do": "facts",
        "device": (job.device or "").partition(":")[0],
        "cases": cases,
        "what": list(job.what),
        "paths": list(job.paths),
        "ceilings": not job.race,
    }
    try:
        child = bench.child()
        answer: dict[str, Any] = child.ask(request, max(1.0, min(_FACTS_SECONDS, bench.left())), bench.say)
    except ChildError as error:
        if "No module named 'torch'" in str(error):
            return Failed(
                "The Python of this host has no torch.", "Install torch and triton there, or name another Python."
            )
        return Failed(f"torch does not start there. {error}")
    child.kill()
    if "error" in answer:
        return Failed(answer["error"], answer.get("hint", ""))
    bench.say("started", 1)
    return answer


def _described(machine: Machine, facts: Mapping[str, Any]) -> Machine:
    """Return the machine, with the facts from torch."""
    return replace(
        machine,
        torch=facts["torch"],
        triton=facts.get("triton", ""),
        gpu=facts.get("gpu", ""),
        cuda=facts.get("cuda", ""),
        threads=facts["threads"],
        memory_free=facts.get("memory_free"),
        memory_total=facts.get("memory_total"),
    )
