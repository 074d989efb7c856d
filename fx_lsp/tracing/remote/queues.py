"""Queue jobs: each host runs one job at a time, and the jobs of a pool go to the first free host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from fx_lsp.measured import BenchmarkJob, Event, Failed, Finished, JobProgress
from fx_lsp.tracing.remote.hosts import Host
from fx_lsp.tracing.remote.jobs import run_job


class Queue:
    """Track the hosts that are busy with a job of this process. Use it from within one asyncio loop."""

    def __init__(self) -> None:
        self._busy: set[str] = set()
        self._freed = asyncio.Condition()

    async def run(
        self, hosts: Sequence[Host], job: BenchmarkJob, files: Mapping[str, bytes] | None = None
    ) -> AsyncGenerator[tuple[Host, Event], None]:
        """Run a job on the first host that is free and works, and yield events as `run_job` does.

        If a host fails before anything ran there, the next one is tried.
        """
        left = list(hosts)
        while True:
            if all(host.name in self._busy for host in left):
                names = " or ".join(host.name for host in left)
                yield left[0], JobProgress(f"waiting for {names}, which is busy", 0, 0)
            host = await self._take(left)
            try:
                began, failed = False, None
                async with aclosing(run_job(host, job, files)) as events:
                    async for event in events:
                        began = (
                            began or isinstance(event, Finished) or (isinstance(event, JobProgress) and event.total > 0)
                        )
                        if isinstance(event, Failed) and not began and len(left) > 1:
                            failed = event
                        else:
                            yield host, event
            finally:
                await self._give_back(host)
            if failed is None:
                return
            left.remove(host)
            yield host, JobProgress(f"{failed.message}; trying another", 0, 0)

    async def _take(self, hosts: Sequence[Host]) -> Host:
        async with self._freed:
            while True:
                for host in hosts:
                    if host.name not in self._busy:
                        self._busy.add(host.name)
                        return host
                await self._freed.wait()

    async def _give_back(self, host: Host) -> None:
        self._busy.discard(host.name)
        async with self._freed:
            self._freed.notify_all()
