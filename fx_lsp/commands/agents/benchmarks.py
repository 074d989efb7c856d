"""Measure a target for coding agents, on hosts that the user has confirmed before."""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress

from fx_lsp.commands.agents.files import AgentFile, Agents
from fx_lsp.commands.hosts import named
from fx_lsp.commands.targets import Chosen, failure_text
from fx_lsp.errors import TargetError
from fx_lsp.features.costs.history import across, page
from fx_lsp.measured import KERNELS, BenchmarkJob, BenchmarkRun, Finished, JobProgress, Report
from fx_lsp.messages.processes import HOW_TO_CONFIRM_HOST
from fx_lsp.model import Failure
from fx_lsp.tracing.remote.cases import BenchRequest, PreparedJob, job_of
from fx_lsp.tracing.remote.history import keep
from fx_lsp.tracing.remote.hosts import Hosts, Place, read_hosts
from fx_lsp.tracing.remote.queues import Queue
from fx_lsp.tracing.remote.running import LocalPython, reached, run_on, unknown
from fx_lsp.tracing.workers.find_python import find_interpreter

ONE_DAY = 86400.0
"""The limit on a job's seconds; effectively, the limit of each host applies."""
OnProgress = Callable[[JobProgress], Awaitable[None]]


class AgentBenchmarks:
    """Measure targets of the files of agents; each machine runs one job at a time."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._queue = Queue()

    async def measure(self, file: AgentFile, name: str, host: str, detail: bool, on_progress: OnProgress) -> str:
        """Return the times of a target on a host as text. Raises TargetError if nothing was measured, above all if the
        user has not confirmed the host.
        """
        hosts = read_hosts(file.root)
        places = named(hosts, [host])
        for place in unknown(reached(hosts, places)):
            target = shlex.quote(f"{file.file}::{name}")
            raise TargetError(
                HOW_TO_CONFIRM_HOST.format(
                    place=place.name, reached=place.reached, quoted=target, host=shlex.quote(host)
                )
            )
        prepared = await self._prepared(file, name)
        reports = await self._run(file, hosts, places[0], prepared, on_progress)
        for host_name, report in reports.items():
            with suppress(OSError, sqlite3.Error):  # the history is not the answer
                keep(BenchmarkRun(file.file, name, host_name, report), prepared.imports)
        wrong = [m for report in reports.values() for m in report.measured if m.variant == KERNELS and m.right is False]
        warning = ["The kernels give wrong results."] if wrong else []
        return "\n".join([*warning, page(reports) if detail else _times(reports)])

    async def _prepared(self, file: AgentFile, name: str) -> PreparedJob:
        """Return the job with its kernels."""
        async with self._agents.opened_target(file, name):
            asked = BenchRequest(file.file, name, file.text, (file.root,))
            prepared = await job_of(self._agents.engine, asked, BenchmarkJob("", (), seconds=ONE_DAY))
        if isinstance(prepared, Failure):
            raise TargetError(failure_text(prepared, Chosen(file.file, name, file.text)))
        return prepared

    async def _run(
        self, file: AgentFile, hosts: Hosts, place: Place, prepared: PreparedJob, on_progress: OnProgress
    ) -> dict[str, Report]:
        """Run a job on a place, and return its report by the name of the host."""
        python = find_interpreter(self._agents.settings.interpreter, (file.root,), os.environ)
        here = LocalPython(python, (file.root,))
        async with aclosing(run_on(place, hosts, prepared.job, self._queue, here)) as ran:
            async for host, event in ran:
                if isinstance(event, JobProgress):
                    await on_progress(event)
                elif isinstance(event, Finished):
                    return {host: event.report}
                else:
                    raise TargetError(" ".join(filter(None, (f"{host}: {event.message}", event.hint))))
        raise TargetError(f"{place.name} reported nothing")


def _times(reports: Mapping[str, Report]) -> str:
    """Return the times of all variants, and the names of those without one."""
    measured = [one for report in reports.values() for one in report.measured]
    timed = {one.variant for one in measured if one.timings}
    others = dict.fromkeys(one.variant for one in measured if one.variant not in timed)
    untimed = [f"not timed: {', '.join(others)}; detail=true says why"] if others else []
    machines = [report.machine.gpu or report.machine.cpu for report in reports.values()]
    return "\n".join([*machines, across(reports).rstrip("\n"), *untimed])
