"""Collect kernel metrics of NVIDIA's `ncu`, if it is installed and permitted."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fx_lsp.bench.runner.children import ChildError
from fx_lsp.bench.runner.entries import RunningJob, VariantRun
from fx_lsp.measured import INDUCTOR_KERNELS, KERNELS, KernelTime, What

METRICS = (
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block",
)
_SECONDS = 120.0


def with_metrics(
    bench: RunningJob, entries: Sequence[VariantRun], kernels: Sequence[KernelTime]
) -> tuple[KernelTime, ...]:
    """Return the kernels with metrics, for kernels of a file; failures are noted in an entry's warnings."""
    command = shutil.which("ncu")
    measured = list(kernels)
    for entry in entries:
        if command is None or entry.variant not in (KERNELS, INDUCTOR_KERNELS) or not entry.right:
            continue
        whats: dict[What, None] = {k.what: None for k in entry.kernels}
        for what in whats:
            bench.say(f"{bench.title(entry)}: ncu, {what}")
            metrics = _profiled(bench, entry, what, command)
            if not metrics:
                entry.warnings.append(
                    "ncu returned no metrics: it may need permission to read the GPU's performance counters."
                )
                break
            label = bench.job.cases[entry.case].label
            for number, kernel in enumerate(measured):
                if (kernel.variant, kernel.label, kernel.what) == (entry.variant, label, what):
                    measured[number] = replace(kernel, metrics=metrics.get(kernel.kernel, {}))
    return tuple(measured)


def _profiled(bench: RunningJob, entry: VariantRun, what: What, command: str) -> dict[str, dict[str, float]]:
    log = bench.folder / "ncu.csv"
    log.unlink(missing_ok=True)
    options = ["--csv", "--log-file", str(log), "--profile-from-start", "off", "--metrics", ",".join(METRICS)]
    child = bench.child([command, *options])
    try:
        request = {**bench.setup_request(entry, [what]), "do": "once"}
        child.ask(request, max(1.0, min(_SECONDS, bench.left())))
        child.end(_SECONDS)
    except ChildError:
        return {}
    finally:
        child.kill()
    return read(log.read_text(encoding="utf-8", errors="replace").splitlines()) if log.exists() else {}


def read(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the metrics of each kernel from the output of `ncu --csv`."""
    table = [line for line in lines if line.startswith('"')]
    metrics: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(table):
        name, metric, value = (row.get(key) or "" for key in ("Kernel Name", "Metric Name", "Metric Value"))
        try:
            metrics.setdefault(name.partition("(")[0].strip(), {})[metric] = float(value.replace(",", ""))
        except ValueError:
            continue
    return metrics
