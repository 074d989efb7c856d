"""Format the results of a benchmark: a lens's title, a table, a hover. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from fx_lsp.features.wording.text import format_bytes, one_line, plain
from fx_lsp.measured import (
    CLOCKS,
    COMPILE,
    EAGER,
    KERNELS,
    BenchmarkRun,
    Ceilings,
    Clock,
    Cost,
    KernelTime,
    Machine,
    Measured,
    Report,
    Timing,
    What,
)

_HEADS = ("variant", "right", *CLOCKS, "×", "bandwidth", "rate", "setup")
_RIGHT = {True: "yes", False: "NO", None: "–"}
_MAX_KERNELS = 8


def lens_title(report: Report, stale: bool = False) -> str:
    """Return `1.42× compile · 0.93 of bandwidth · H200`; the problem instead, if the kernels are not right."""
    parts = ["stale"] if stale else []
    return " · ".join([*parts, *_headline(report), *filter(None, [short_gpu(report.machine.gpu)])])


def _headline(report: Report) -> list[str]:
    rows = [row for row in report.measured if row.variant == KERNELS]
    if not rows:
        return ["measured without the kernels"]
    if any(row.right is False for row in rows):
        return ["kernels are wrong"]
    row = next((r for r in reversed(rows) if r.what == "forward"), rows[-1])  # of a sweep, the last case
    if not row.timings:
        return ["kernels are right, not timed" if row.right else "kernels not run"]
    peers = {r.variant: r for r in report.measured if (r.label, r.what) == (row.label, row.what)}
    facts: list[str] = []
    for name in (COMPILE, EAGER):
        factor = speedup(row, peers.get(name))
        if factor is not None:
            facts.append(f"{factor:.2f}× {name}")
            break
    if row.bandwidth_fraction is not None and (row.rate_fraction or 0) < row.bandwidth_fraction:
        facts.append(f"{row.bandwidth_fraction:.2f} of bandwidth")
    elif row.rate_fraction is not None:
        facts.append(f"{row.rate_fraction:.2f} of the matrix rate")
    return [*(facts or [_time(row.timings[_clock(row)])]), *(["with warnings"] if row.warnings else [])]


def speedup(row: Measured, other: Measured | None) -> float | None:
    """Return how many times as fast a variant is as another, by the first clock of both; None without a common
    clock.
    """
    if other is None:
        return None
    clock = next((c for c in CLOCKS if c in row.timings and c in other.timings), None)
    if clock is None or not row.timings[clock].median:
        return None
    return other.timings[clock].median / row.timings[clock].median


def table(report: Report) -> str:
    """Return the report as plain text of a document or a terminal."""
    head = " · ".join(filter(None, [report.name, report.choices, _machine(report.machine)]))
    lines = [head, f"{_date(report.started)} · took {report.seconds:.0f} s"]
    lines += _ceilings(report.ceilings)
    for (label, what), rows in _groups(report.measured).items():
        cost = next((c for c in report.costs if (c.label, c.what) == (label, what)), None)
        lines += ["", _title(label, what, cost), *_table(rows, report.ceilings, cost)]
        lines += [f"  {row.variant}: {text}" for row in rows for text in _remarks(row)]
    lines += _kernels(report.kernels)
    if report.warnings:
        lines += ["", *(f"Warning: {w}" for w in report.warnings)]
    return "\n".join([*lines, ""])


def legend(report: Report) -> str:
    """Return an explanation of the table's columns, for the columns that it has."""
    said = {
        "graph": "graph   in a replayed CUDA graph, without launch overhead",
        "events": "events  between CUDA events, each call with a cold L2 cache",
        "wall": "wall    host wall-clock time from launch until the device is idle",
    }
    clocks = [said[c] for c in CLOCKS if any(c in row.timings for row in report.measured)]
    return "\n".join(
        [
            "Milliseconds per call: median ± half of the spread of the middle 80 %.",
            *(f"  {line}" for line in clocks),
            "  ×       speedup over eager, by the first of these clocks that both have",
            "",
        ]
    )


def hover(run: BenchmarkRun) -> str:
    """Return a run as Markdown, short enough for a hover."""
    report = run.report
    lines = [f"**{plain(lens_title(report, run.stale))}**"]
    for (label, what), rows in _groups(report.measured).items():
        lines += ["", f"{_title(label, what, None)}", "", "| variant | ms | × eager |", "|---|---|---|"]
        eager = next((r for r in rows if r.variant == EAGER), None)
        usual = next((c for c in CLOCKS if any(c in r.timings for r in rows)), None)
        for row in rows:
            clock = _clock(row) if row.timings else None
            time = _time(row.timings[clock]) if clock is not None else "wrong" if row.right is False else "–"
            time += f" ({clock})" if clock not in (None, usual) else ""
            lines.append(f"| {plain(row.variant)} | {time} | {_factor(speedup(row, eager))} |")
    remarks = [
        f"- {plain(row.variant)}: {plain(t)}"
        for row in report.measured
        if row.variant == KERNELS
        for t in _remarks(row)
    ]
    return "\n".join([*lines, *([""] if remarks else []), *dict.fromkeys(remarks)])


def kernel_facts(kernels: Iterable[KernelTime]) -> dict[str, list[str]]:
    """Return the profile of each kernel by its name, as sentences for the hover on its lines."""
    facts: dict[str, list[str]] = {}
    for kernel in kernels:
        if kernel.variant != KERNELS:
            continue
        times = f" in {kernel.calls:g} launches" if kernel.calls != 1 else ""
        where = f"{kernel.label}, {kernel.what}" if kernel.label else kernel.what
        metrics = "".join(f", {text}" for text in _metrics(kernel.metrics))
        facts.setdefault(kernel.kernel, []).append(f"{where}: {kernel.microseconds:.1f} µs{times}{metrics}")
    return facts


def short_gpu(name: str) -> str:
    """Return `H200` for `NVIDIA H200`, `RTX 4090` for `NVIDIA GeForce RTX 4090`."""
    return " ".join(word for word in name.split() if word not in ("NVIDIA", "GeForce", "AMD", "Tesla"))


def _groups(measured: Iterable[Measured]) -> Mapping[tuple[str, What], list[Measured]]:
    groups: dict[tuple[str, What], list[Measured]] = {}
    for row in measured:
        groups.setdefault((row.label, row.what), []).append(row)
    return groups


def _title(label: str, what: What, cost: Cost | None) -> str:
    title = "forward and backward" if what == "both" else what
    parts = [label, title] if label else [title]
    if cost is not None:
        parts += [", ".join(cost.inputs), format_bytes(cost.bytes)]
        parts += [f"{cost.flops / 1e9:.3g} GFLOP"] if cost.flops else []
    return " · ".join(filter(None, parts))


def _table(rows: Sequence[Measured], ceilings: Ceilings | None, cost: Cost | None) -> list[str]:
    eager = next((r for r in rows if r.variant == EAGER), None)
    cells = [[*_HEADS], *(_cells(row, eager) for row in rows)]
    if ceilings is not None and cost is not None:
        copying = cost.bytes / ceilings.copy_bytes_per_second * 1e3
        multiplying = cost.flops / ceilings.matmul_flops_per_second * 1e3
        by = "the bytes need" if copying >= multiplying else "the products need"
        cells.append([f"({by})", "", f"{max(copying, multiplying):.4f}", *[""] * (len(_HEADS) - 3)])
    used = [n for n in range(len(_HEADS)) if not n or any(row[n] for row in cells[1:])]
    widths = {n: max(len(row[n]) for row in cells) for n in used}
    return [
        ("  " + "  ".join(row[n].rjust(widths[n]) if n else row[n].ljust(widths[n]) for n in used)).rstrip()
        for row in cells
    ]


def _cells(row: Measured, eager: Measured | None) -> list[str]:
    return [
        row.variant,
        _RIGHT[row.right],
        *(_time(row.timings[c]) if c in row.timings else "" for c in CLOCKS),
        _factor(speedup(row, eager)) if row.timings else "",
        "" if row.bandwidth_fraction is None else f"{row.bandwidth_fraction:.2f}",
        "" if row.rate_fraction is None else f"{row.rate_fraction:.2f}",
        f"{row.setup_seconds:.1f} s" if row.setup_seconds else "",
    ]


def _time(timing: Timing) -> str:
    """Return `0.0431 ±0.0004`, with the digits that the spread allows."""
    return f"{timing.median:.4f} ±{(timing.high - timing.low) / 2:.4f}"


def _factor(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.2f}"


def _clock(row: Measured) -> Clock:
    return next(c for c in CLOCKS if c in row.timings)


def _remarks(row: Measured) -> list[str]:
    return [*row.verdicts, *filter(None, [row.error]), *row.warnings]


def _ceilings(ceilings: Ceilings | None) -> list[str]:
    if ceilings is None:
        return []
    rate = ceilings.matmul_flops_per_second / 1e12
    return [
        f"copies at {ceilings.copy_bytes_per_second / 1e12:.2f} TB/s, {ceilings.dtype} products at {rate:.0f} TFLOP/s"
    ]


def _machine(machine: Machine) -> str:
    parts = [machine.gpu or f"{machine.cpu}, {machine.threads} threads", f"torch {machine.torch}"]
    parts += [f"triton {machine.triton}"] if machine.triton else []
    parts += [f"driver {machine.driver}"] if machine.driver else []
    if machine.sm_clock:
        most = f" of {machine.sm_clock_most}" if machine.sm_clock_most else ""
        parts.append(f"{machine.sm_clock}{most} MHz")
    parts += [f"{machine.temperature} °C"] if machine.temperature is not None else []
    return " · ".join(parts)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


_NAMES = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "{:.0f} % of memory throughput",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "{:.0f} % of compute throughput",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "{:.0f} % occupancy",
    "launch__registers_per_thread": "{:.0f} registers per thread",
    "launch__shared_mem_per_block": "{:.0f} bytes of shared memory per block",
}


def _metrics(metrics: Mapping[str, float]) -> list[str]:
    return [text.format(metrics[name]) for name, text in _NAMES.items() if name in metrics]


def _kernels(kernels: Sequence[KernelTime]) -> list[str]:
    groups: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        groups.setdefault(" · ".join(filter(None, [kernel.label, kernel.variant, kernel.what])), []).append(kernel)
    lines: list[str] = []
    for head, group in groups.items():
        lines += ["", f"kernels of {head}"]
        for kernel in group[:_MAX_KERNELS]:
            metrics = "".join(f", {text}" for text in _metrics(kernel.metrics))
            lines.append(f"  {kernel.microseconds:9.1f} µs  {kernel.calls:g}×  {one_line(kernel.kernel, 90)}{metrics}")
        rest = group[_MAX_KERNELS:]
        lines += [f"  {sum(k.microseconds for k in rest):9.1f} µs  in {len(rest)} more"] if rest else []
    return lines
