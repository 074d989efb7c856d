"""Times generated kernels on a GPU, against eager PyTorch, torch.compile, Inductor's kernels, and what the card can do.

    python benchmarks/kernels.py                             # on this machine
    python benchmarks/kernels.py --host h200 -k norms,rope   # on a host of hosts.toml, a family and a function only
    python benchmarks/kernels.py --judge fx_lsp_tuned.json   # the estimate's choices, against the times of races

Each module of targets/kernels is a family. Each of its functions with a `# fx:` comment is a `fx-lsp bench` of its
own, so that one that fails ends no other. Milliseconds: in a CUDA graph, so that launches cost nothing, and from Python
(`wall`). The floor is the time that the bytes, or the matrix products, need at the rates that the same run measured.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from limits import output_of

from fx_lsp.measured import Clock, Cost, Measured, Report, What
from fx_lsp.tracing.kernel_files.tuned import TunedKernels
from fx_lsp.tracing.remote.tuning import NOISE, PLAIN
from fx_lsp.wire import from_json, to_json

BENCH_SECONDS = 3600.0
"""The longest that the measurement of one function may take, its wait in a queue included."""
TARGETS = Path(__file__).parent / "targets" / "kernels"
PEERS = ("eager", "compile", "compile max-autotune", "inductor-kernels")
OURS = "kernels"
SLOWER = 0.97
"""The ratio of the best peer's time to ours below which a function is listed as slower."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="only", default="", help="families and functions to take, with commas between")
    parser.add_argument("--host", default="local", help="where to measure (default: this machine)")
    parser.add_argument("--json", type=Path, help="where to keep all reports; those that it has are not measured again")
    parser.add_argument("--judge", type=Path, help="print what the estimate chose in races that `--tune` kept")
    parser.add_argument("--python", help="the interpreter to trace with")
    arguments = parser.parse_args()
    if arguments.judge:
        return judge([from_json(TunedKernels, entry) for entry in json.loads(arguments.judge.read_text())])
    only = set(arguments.only.split(",")) if arguments.only else set[str]()
    names = [n for n in names_of_targets() if not only or only & {n, *n.split("/")}]
    if not names:
        parser.error(f"no family and no function is named {arguments.only}")
    is_stored = arguments.json and arguments.json.exists()
    stored: dict[str, Any] = json.loads(arguments.json.read_text()) if is_stored else {}
    reports = {name: from_json(Report, data) for name, data in stored.items()}
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
            table({name: reports[name] for name in names if name in reports}, what, clock)
    wrong = any(row.right is False for name in names if name in reports for row in reports[name].measured)
    return int(wrong or not reports.keys() >= set(names))


def judge(entries: list[TunedKernels]) -> int:
    """Print what the estimate chose and what was fastest, how often it was right, and what the wrong choices cost."""
    for what in ("forward graph", "both graph"):
        costs: list[float] = []
        for entry in entries:
            times = {name: row[what] for name, row in entry.milliseconds.items() if what in row}
            chosen = times.get("estimated", times.get(PLAIN))  # a candidate with the same text is not raced
            if chosen is None:
                continue
            best = min(times, key=times.__getitem__)
            costs.append(chosen / times[best])
            print(f"{what:<14} {entry.target:<60} {chosen:9.4f} {times[best]:9.4f} {costs[-1]:7.2f}  {best}")
        wrong = [cost for cost in costs if cost > NOISE]
        if costs:
            mean = math.exp(sum(map(math.log, wrong)) / len(wrong)) if wrong else 1.0
            print(
                f"-- {what}: right in {len(costs) - len(wrong)} of {len(costs)}; a wrong choice costs {mean:.2f} times"
            )
    return 0


def names_of_targets() -> list[str]:
    """Return `family/function` for each function with a `# fx:` comment directly above it."""
    return [f"{file.stem}/{name}" for file in sorted(TARGETS.glob("*.py")) for name in _commented(file)]


def _commented(file: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef):
            first = min(node.lineno for node in (function, *function.decorator_list))
            if lines[first - 2].startswith("# fx:"):
                yield function.name


def measured(name: str, arguments: argparse.Namespace) -> Report | None:
    family, function = name.split("/")
    target = f"{TARGETS / family}.py::{function}"
    command = [sys.executable, "-m", "fx_lsp", "bench", target, "--json", "--host", arguments.host]
    command += [part for variant in (*PEERS, OURS) for part in ("--variant", variant)]
    command += ["--python", arguments.python] if arguments.python else []
    printed, _ = output_of(command, BENCH_SECONDS)
    try:
        (report,) = json.loads(printed)["reports"].values()
    except (ValueError, KeyError):
        print(f"{name}: not measured: {printed[-500:]}", file=sys.stderr)
        return None
    return from_json(Report, report)


def table(reports: dict[str, Report], what: What, clock: Clock) -> None:
    """Print the times of all functions by one clock, and how many times as fast as the best of the peers ours are."""
    heading = " ".join(f"{peer[-13:]:>13}" for peer in PEERS)
    print(f"\n{f'{what}, {clock}':<30} {'floor':>9} {'ours':>9} {heading}  best/ours")
    ratios: dict[str, float] = {}
    for family, names in groupby(reports, lambda name: name.split("/")[0]):
        in_family: dict[str, float] = {}
        for name in names:
            ratio = _row(name, reports[name], what, clock)
            if not math.isnan(ratio):
                in_family[name] = ratio
        _mean(family, in_family)
        ratios |= in_family
    _mean("all", ratios)
    for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
        if ratio < SLOWER:
            print(f"slower than the best: {name} {ratio:.2f}")


def _row(name: str, report: Report, what: What, clock: Clock) -> float:
    """Print the times of one function. Return how many times as fast as the best of the peers ours is."""
    rows = {row.variant: row for row in report.measured if row.what == what}
    if not rows:  # the function has no backward
        return math.nan
    times = {peer: _time(rows.get(peer), clock) for peer in (OURS, *PEERS)}
    ratio = min((times[p] for p in PEERS if not math.isnan(times[p])), default=math.nan) / times[OURS]
    cost = next((c for c in report.costs if c.what == what), None)
    cells = " ".join(f"{times[peer]:13.4f}" for peer in PEERS)
    wrong = "  WRONG" if OURS not in rows or rows[OURS].right is not True else ""
    print(f"{name.split('/')[1]:<30} {_floor(report, cost):9.4f} {times[OURS]:9.4f} {cells} {ratio:10.2f}{wrong}")
    return ratio


def _mean(label: str, ratios: dict[str, float]) -> None:
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        print(f"-- {label}: geometric mean of best/ours {mean:.2f} over {len(ratios)}")


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
