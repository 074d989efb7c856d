"""Race candidates for the kernels of a target on a host, and keep the fastest choices in the project."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from fx_lsp.choices import Choices
from fx_lsp.commands.hosts import ProgressPrinter, allowed, named
from fx_lsp.commands.targets import Chosen, failure_text, opened
from fx_lsp.errors import ProtocolError
from fx_lsp.measured import BenchmarkJob, Event, Failed
from fx_lsp.model import Failure
from fx_lsp.tracing.kernel_files.tuned import TunedKernels, keep_tuned, kept_parts, read_tuned, target_in, tuned_for
from fx_lsp.tracing.remote.cases import BenchRequest, analysed
from fx_lsp.tracing.remote.history import source_hash
from fx_lsp.tracing.remote.hosts import read_hosts
from fx_lsp.tracing.remote.queues import Queue
from fx_lsp.tracing.remote.running import LocalPython, reached, run_on
from fx_lsp.tracing.remote.tuning import RIVALS, EarlierRace, RaceField, Winner, raced
from fx_lsp.tracing.source.project import project_root
from fx_lsp.tracing.workers.find_python import find_interpreter

TUNE_SECONDS = 60.0
"""The default time limit of a race in seconds."""


def tune(arguments: argparse.Namespace, chosen: Chosen, choices: Choices) -> int:
    """Race candidates on the host of the command line, and keep the fastest; return the exit code, 0 if it is kept.

    Raises TargetError for an unknown host, or one that the user does not confirm.
    """
    root = project_root(chosen.file)
    asked = BenchRequest(chosen.file, chosen.name, chosen.text, (root,), choices=choices)
    try:
        entry = tuned_for(read_tuned(root), target_in(root, chosen.file, chosen.name), _source(chosen) or "")
        before = entry and EarlierRace(entry.card, entry.winner, entry.choices, entry.milliseconds, entry.digests)
        winner = asyncio.run(_raced(arguments, chosen, asked, before))
        if not isinstance(winner, Winner):
            has_reason = isinstance(winner, Failed)
            end = f"fx-lsp: {winner.message} {winner.hint}" if has_reason else failure_text(winner, chosen)
            print(end.rstrip(), file=sys.stderr)
            return 1
        entry = _entry(winner, chosen)
        print(table(entry, winner.not_run), end="", file=sys.stderr)
        print(f"{keep_tuned(root, entry)}: {entry.winner} is kept", file=sys.stderr)
    except (OSError, ProtocolError) as error:
        print(f"fx-lsp: the choices cannot be kept: {error}", file=sys.stderr)
        return 2
    return 0


async def _raced(
    arguments: argparse.Namespace, chosen: Chosen, asked: BenchRequest, earlier: EarlierRace | None
) -> Winner | Failure | Failed:
    root = asked.roots[0]
    hosts = read_hosts(root)
    (place,) = named(hosts, [arguments.tune])
    allowed(reached(hosts, [place]), arguments.yes)
    here, queue = LocalPython(find_interpreter(arguments.python, (root,), os.environ), (root,)), Queue()

    async def race(job: BenchmarkJob) -> AsyncGenerator[Event, None]:
        async with aclosing(run_on(place, hosts, job, queue, here)) as ran:
            async for _, event in ran:
                yield event

    job = BenchmarkJob("", (), device="cuda", seconds=arguments.seconds)
    shown = ProgressPrinter()
    last: Winner | Failure | Failed = Failed("It reported nothing.")
    async with (
        opened(arguments, chosen) as engine,
        aclosing(raced(RaceField(engine, asked, earlier), job, race)) as items,
    ):
        async for item in items:
            if isinstance(item, (Winner, Failure, Failed)):
                last = item
            else:
                shown.take(place.name, item)
    shown.clear()
    return last


def _entry(winner: Winner, chosen: Chosen) -> TunedKernels:
    machine, costs = winner.report.machine, winner.report.costs
    return TunedKernels(
        target_in(project_root(chosen.file), chosen.file, chosen.name),
        _source(chosen) or "",
        machine.gpu or machine.cpu,
        machine.torch,
        machine.triton,
        costs[0].inputs if costs else (),
        winner.name,
        winner.candidate.choices.parts(),
        winner.milliseconds,
        winner.digests,
    )


def _source(chosen: Chosen) -> str | None:
    """Return the hash of a target's source, None without such a target."""
    analysis, target = analysed(BenchRequest(chosen.file, chosen.name, chosen.text, (project_root(chosen.file),)))
    return source_hash(analysis.plan(chosen.name)) if target is not None else None


def kept(chosen: Chosen) -> dict[str, str]:
    """Return the choices that were kept for a target as parts of work, {} if there are none for its present source."""
    source = _source(chosen)
    try:
        return kept_parts(project_root(chosen.file), chosen.file, chosen.name, source) if source is not None else {}
    except (OSError, ProtocolError, ValueError) as error:
        print(f"fx-lsp: {error}", file=sys.stderr)
        return {}


def table(entry: TunedKernels, not_run: Mapping[str, str]) -> str:
    """Return the times of candidates and rivals, the fastest first by each column, and why others were not run."""
    columns = [*entry.milliseconds[entry.winner]]
    width = max(map(len, (*entry.milliseconds, *not_run)))
    lines = [f"{'milliseconds':<{width}} {' '.join(f'{c:>14}' for c in columns)}"]
    for name in sorted(entry.milliseconds, key=lambda n: entry.milliseconds[n].get(columns[-1], float("inf"))):
        times = (entry.milliseconds[name].get(column) for column in columns)
        cells = (" " * 14 if time is None else f"{time:14.4f}" for time in times)
        mark = " < kept" if name == entry.winner else " (rival)" if name in RIVALS else ""
        lines.append(f"{name:<{width}} {' '.join(cells)}{mark}")
    lines += [f"{name:<{width}} not run: {reason}" for name, reason in not_run.items()]
    return "\n".join(lines) + "\n"
