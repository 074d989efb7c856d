"""`fx-lsp bench TARGET`: checks a function's kernels and measures them against the alternatives.

Exit codes: 0 measured and right; 1 not traced, not measured, or kernels that are wrong or crash; 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fx_lsp.choices import allowed as allowed_choices
from fx_lsp.choices import read_choices
from fx_lsp.commands.hosts import ProgressPrinter, allowed, named
from fx_lsp.commands.options import add_choices, add_tracing_options
from fx_lsp.commands.outputs import write_outputs
from fx_lsp.commands.targets import Chosen, failure_text, opened, read_target, source_line
from fx_lsp.errors import TargetError
from fx_lsp.features.costs.history import history_text, page
from fx_lsp.features.costs.line_costs import line_times_page
from fx_lsp.measured import (
    EAGER,
    INDUCTOR_KERNELS,
    KERNELS,
    VARIANTS,
    WHATS,
    BenchmarkJob,
    BenchmarkRun,
    Failed,
    Report,
    Rival,
    What,
)
from fx_lsp.model import Failure
from fx_lsp.tracing.remote.cases import BenchRequest, analysed, job_of, read_sweep, with_own_lines
from fx_lsp.tracing.remote.history import StoredRun, keep, runs_of
from fx_lsp.tracing.remote.hosts import Cluster, Host, Hosts, Place, read_hosts
from fx_lsp.tracing.remote.queues import Queue
from fx_lsp.tracing.remote.running import LocalPython, reached, run_on
from fx_lsp.tracing.source.project import project_root
from fx_lsp.tracing.workers.find_python import find_interpreter
from fx_lsp.wire import to_json

ONE_DAY = 86400.0
"""The limit on a job's seconds from this command; effectively, the limit of each host applies."""
NO_GPU = (
    "\nNone of these machines has a GPU: the kernels were checked, and the times are those of the CPU.\n"
    "To measure on a GPU, name a host that has one in {path} and pass --host NAME."
)
"""What follows times without a GPU."""
_CHOICES = [name for name in allowed_choices() if name != "engine"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp bench`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host, pool or Ray cluster from your hosts.toml; may be repeated (default: this machine)",
    )
    parser.add_argument(
        "--variant",
        action="append",
        metavar="NAME",
        help=f"what to measure; may be repeated (default: everything that works): {', '.join(VARIANTS)}, or a rival",
    )
    parser.add_argument(
        "--rival",
        action="append",
        default=[],
        metavar="NAME=MODULE:FUNCTION",
        help="a hand-written function, called with the arguments of the target",
    )
    parser.add_argument(
        "--what", default="forward,both", metavar="LIST", help="forward, backward, both (default: forward,both)"
    )
    parser.add_argument("--inputs", metavar="SPECS", help='the inputs: "x=f32[8192, 4096], n=4"')
    parser.add_argument(
        "--sweep",
        metavar="N=FROM..TO",
        help="the values of a size in the inputs: all powers of two in a range, or a list such as N=1,2,3",
    )
    add_choices(parser, _CHOICES, "kernel option: ")
    parser.add_argument("--profile", action="store_true", help="also time each kernel separately")
    parser.add_argument(
        "--by-line",
        action="store_true",
        help="time each line of the code, forward and backward, in eager PyTorch (default variant: eager)",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--svg", metavar="FOLDER", help="the folder for plots of the times")
    parser.add_argument("--history", action="store_true", help="print earlier measurements; measure nothing")
    parser.add_argument("--yes", action="store_true", help="use new hosts without asking")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the target. Raises TargetError for wrong usage, and for a host that the user does not confirm."""
    chosen = read_target(arguments.target)
    if arguments.history:
        return _print_history(arguments, chosen)
    hosts = read_hosts(project_root(chosen.file))
    places = named(hosts, arguments.host)
    job = _job(arguments)
    wanted = reached(hosts, places)
    _require_variants(job, wanted)
    allowed(wanted, arguments.yes)
    return asyncio.run(_bench(arguments, chosen, hosts, places, job))


async def _bench(
    arguments: argparse.Namespace, chosen: Chosen, hosts: Hosts, places: list[Place], job: BenchmarkJob
) -> int:
    asked = _asked(arguments, chosen)
    async with opened(arguments, chosen) as engine:
        prepared = await job_of(engine, asked, job)
    if isinstance(prepared, Failure):
        if arguments.json:
            print(json.dumps({"target": arguments.target, "failure": to_json(prepared)}, indent=2))
        else:
            print(failure_text(prepared, chosen), file=sys.stderr)
        return 1
    here = LocalPython(find_interpreter(arguments.python, asked.roots, os.environ), asked.roots)
    shown, queue = ProgressPrinter(), Queue()

    async def measured(place: Place) -> tuple[str, Report | Failed]:
        name, last = place.name, Failed("It reported nothing.")
        async with aclosing(run_on(place, hosts, prepared.job, queue, here)) as ran:
            async for name, event in ran:
                last = shown.take(name, event) or last
        return name, last

    ends = dict(await asyncio.gather(*map(measured, places)))
    shown.clear()
    reports = {host: with_own_lines(end, asked, prepared) for host, end in ends.items() if isinstance(end, Report)}
    failed = {host: end for host, end in ends.items() if isinstance(end, Failed)}
    for host, report in reports.items():
        _keep(StoredRun(BenchmarkRun(chosen.file, chosen.name, host, report), prepared.imports))
    if arguments.json:
        print(json.dumps(_contract(arguments.target, reports, failed), indent=2))
    elif reports:
        _print(reports, chosen, hosts)
    for host, end in failed.items():
        print(f"fx-lsp: {host}: {end.message}" + (f"\n  {end.hint}" if end.hint else ""), file=sys.stderr)
    if arguments.svg:
        _write_pictures(Path(arguments.svg), reports)
    return int(bool(failed) or any(map(_has_failed, reports.values())))


def _has_failed(report: Report) -> bool:
    """Return True if kernels of a report are wrong, crash, or were not compared."""
    return any(m.variant == KERNELS and (m.crashed or not m.right) for m in report.measured)


def _print(reports: Mapping[str, Report], chosen: Chosen, hosts: Hosts) -> None:
    """Print the tables, the times by line, and where to name a GPU if no machine has one."""
    print(page(reports), end="")
    texts = {chosen.file: chosen.text}
    for report in reports.values():
        print(line_times_page(report, chosen.file, partial(source_line, texts=texts)), end="")
    if not any(report.machine.gpu for report in reports.values()):
        print(NO_GPU.format(path=hosts.path))


def _job(arguments: argparse.Namespace) -> BenchmarkJob:
    """Return the requested job, without its target. Raises TargetError."""
    asked = set(re.split(r"\s*,\s*", arguments.what.strip()))
    what: tuple[What, ...] = tuple(each for each in WHATS if each in asked)
    if asked - set(WHATS):
        raise TargetError(f"--what is a list of {', '.join(WHATS)}, not `{arguments.what}`")
    rivals: list[Rival] = []
    for text in arguments.rival:
        match = re.fullmatch(r"([^=]+)=([\w.]+:[\w.]+)", text)
        if match is None or match[1] in VARIANTS:
            raise TargetError(f"`{text}` is not a rival: write it as name=package.module:function")
        rivals.append(Rival(match[1], match[2]))
    variants = tuple(arguments.variant) if arguments.variant else (EAGER,) if arguments.by_line else None
    if arguments.by_line and variants is not None and EAGER not in variants:
        raise TargetError(f"--by-line times the lines of {EAGER}: add --variant {EAGER}")
    job = BenchmarkJob("", (), variants, tuple(rivals), what, seconds=ONE_DAY, profile=arguments.profile)
    return replace(job, by_line=arguments.by_line)


def _require_variants(job: BenchmarkJob, places: Sequence[Host | Cluster]) -> None:
    """Raise TargetError for a variant that none of the places has."""
    rivals = [rival for place in places if isinstance(place, Host) for some in place.rivals.values() for rival in some]
    names = [*VARIANTS, *dict.fromkeys(rival.name for rival in (*job.rivals, *rivals))]
    for name in job.variants or ():
        if name not in names:
            raise TargetError(f"there is no variant {name}; there are: {', '.join(names)}")


def _asked(arguments: argparse.Namespace, chosen: Chosen) -> BenchRequest:
    """Return the request for kernels."""
    sweep = read_sweep(arguments.sweep) if arguments.sweep else None
    choices = read_choices({name: getattr(arguments, name) for name in _CHOICES})
    inductor = INDUCTOR_KERNELS in arguments.variant if arguments.variant else None
    roots = (project_root(chosen.file),)
    return BenchRequest(chosen.file, chosen.name, chosen.text, roots, arguments.inputs, sweep, choices, inductor)


def _keep(stored: StoredRun) -> None:
    try:
        keep(stored.run, stored.imports)
    except (OSError, sqlite3.Error) as error:
        print(f"fx-lsp: this run cannot be saved in the history: {error}", file=sys.stderr)


def _contract(target: str, reports: Mapping[str, Report], failed: Mapping[str, Failed]) -> dict[str, Any]:
    """Return the stable JSON for scripts."""
    return {
        "target": target,
        "reports": {host: to_json(report) for host, report in reports.items()},
        "failures": {host: to_json(end) for host, end in failed.items()},
    }


def _print_history(arguments: argparse.Namespace, chosen: Chosen) -> int:
    analysis, target = analysed(_asked(arguments, chosen))
    if target is None:
        raise TargetError(f"`{arguments.target}` is not a function or module that can be traced")
    plan = analysis.plan(chosen.name)
    runs = [kept.as_of(plan, {}) for kept in runs_of(chosen.file, chosen.name)]
    runs = [run for run in runs if not arguments.host or run.host in arguments.host]
    if arguments.json:
        print(json.dumps([{"host": run.host, "report": to_json(run.report)} for run in runs], indent=2))
    else:
        print(history_text(runs), end="")
    return 0


def _write_pictures(folder: Path, reports: Mapping[str, Report]) -> None:
    try:
        from fx_lsp.commands.plots import pictures
    except ImportError:
        print("fx-lsp: plots need matplotlib: install fx-lsp with its extra `bench`", file=sys.stderr)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            folder / _picture_name(report.name, host, kind): text
            for host, report in reports.items()
            for kind, text in pictures(report).items()
        }
        write_outputs(texts)
        print("".join(f"fx-lsp: {file}\n" for file in texts), end="", file=sys.stderr)
    except OSError as error:
        print(f"fx-lsp: {error.filename or folder} cannot be written: {error.strerror}", file=sys.stderr)


def _picture_name(target: str, host: str, kind: str) -> str:
    name = re.sub(r"[^\w.-]", "_", f"{target}-{host}")
    return f"{name}-{kind}.svg"
