"""Times generated kernels on a GPU, against eager PyTorch, torch.compile, Inductor's kernels, and what the card can do.

    python benchmarks/kernels.py                        # on this machine
    python benchmarks/kernels.py --host h200 -k rope    # on a host of hosts.toml, some functions only

Each function of targets/kernels.py is a `fx-lsp bench` of its own, so that one that fails ends no other. Milliseconds:
in a CUDA graph, so that launches cost nothing, and from Python (`wall`). The floor is the time that the bytes, or the
matrix products, need at the rates that the same run measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

from limits import output_of

from fx_lsp.measured import Clock, Cost, Measured, Report, What
from fx_lsp.wire import from_json, to_json

BENCH_SECONDS = 3600.0
"""The longest that the measurement of one function may take, its wait in a queue included."""
TARGETS = Path(__file__).parent / "targets" / "kernels.py"
NAMES = (
    "bias_gelu",
    "swiglu",
    "rms_norm",
    "add_rms_norm",
    "layer_norm",
    "softmax",
    "cross_entropy",
    "rope",
    "lif",
    "linear_gelu",
    "attention",
)
PEERS = ("eager", "compile", "compile max-autotune", "inductor-kernels")
OURS = "kernels"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="only", default="", help="names to take, with commas between")
    parser.add_argument("--host", default="local", help="where to measure (default: this machine)")
    parser.add_argument("--json", type=Path, help="where to keep all reports; those that it has are not measured again")
    parser.add_argument("--python", help="the interpreter to trace with")
    arguments = parser.parse_args()
    names = [n for n in NAMES if not arguments.only or n in arguments.only.split(",")]
    kept = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    reports: dict[str, Report] = {name: from_json(Report, data) for name, data in kept.items()}
    for name in names:
        if name in reports:
            continue
        report = measured(name, arguments)
        if report is not None:
            reports[name] = report
            if arguments.json:
                arguments.json.write_text(json.dumps({n: to_json(r) for n, r in reports.items()}))
    for clock in ("graph", "wall"):
        for what in ("forward", "both"):
            table(reports, what, clock)
    return int(len(reports) < len(names) or any(row.right is False for r in reports.values() for row in r.measured))


def measured(name: str, arguments: argparse.Namespace) -> Report | None:
    command = [sys.executable, "-m", "fx_lsp", "bench", f"{TARGETS}::{name}", "--json", "--host", arguments.host]
    command += [part for variant in (*PEERS, OURS) for part in ("--variant", variant)]
    command += ["--python", arguments.python] if arguments.python else []
    printed, _ = output_of(command, BENCH_SECONDS)
    try:
        found = json.loads(printed)
        (report,) = found["reports"].values()
    except (ValueError, KeyError):
        print(f"{name}: not measured: {printed[-500:]}", file=sys.stderr)
        return None
    return from_json(Report, report)


def table(reports: dict[str, Report], what: What, clock: Clock) -> None:
    """The times of all functions by one clock, and how many times as fast as the best of the others ours are."""
    print(f"\n{what}, {clock:<5} {'floor':>9} {'ours':>8} " + " ".join(f"{p[-13:]:>13}" for p in PEERS) + "  best/ours")
    ratios: list[float] = []
    for name, report in reports.items():
        rows = {row.variant: row for row in report.measured if row.what == what}
        times = {peer: _time(rows.get(peer), clock) for peer in (OURS, *PEERS)}
        best = min((t for p, t in times.items() if p in PEERS and not math.isnan(t)), default=math.nan)
        ratio = best / times[OURS]
        ratios += [] if math.isnan(ratio) else [ratio]
        cost = next((c for c in report.costs if c.what == what), None)
        cells = " ".join(f"{times[peer]:13.4f}" for peer in PEERS)
        wrong = "  WRONG" if OURS not in rows or rows[OURS].right is not True else ""
        print(f"{name:<13} {_floor(report, cost):9.4f} {times[OURS]:8.4f} {cells} {ratio:10.2f}{wrong}")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of best/ours: {mean:.2f}; slower than the best: {sum(r < 1 for r in ratios)}")


def _time(row: Measured | None, clock: Clock) -> float:
    return row.timings[clock].median if row is not None and clock in row.timings else math.nan


def _floor(report: Report, cost: Cost | None) -> float:
    """Milliseconds that the card needs at least."""
    if cost is None or report.ceilings is None:
        return math.nan
    copying = cost.bytes / report.ceilings.copy_bytes_per_second
    return 1e3 * max(copying, cost.flops / report.ceilings.matmul_flops_per_second)


if __name__ == "__main__":
    sys.exit(main())
