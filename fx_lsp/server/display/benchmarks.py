"""Provide finished and running benchmarks of the targets of open files: for lenses, hovers, a page, a view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fx_lsp.features.costs.benchmark import lens_title
from fx_lsp.features.costs.history import MeasuredChange, changes, document, latest
from fx_lsp.features.wording.uris import BENCHMARK as WORK
from fx_lsp.features.wording.uris import View
from fx_lsp.measured import BenchmarkRun, Failed, JobProgress
from fx_lsp.server.refresh import RefreshTimer
from fx_lsp.server.session import Session
from fx_lsp.server.tasks import Tasks

if TYPE_CHECKING:
    from fx_lsp.tracing.remote.history import StoredRun
    from fx_lsp.tracing.remote.queues import Queue

MEASURING = "fxLsp/measuring"
MAX_RUNS = 50
"""The most runs of a target that are sent to a client."""
Json = dict[str, Any]


class Benchmarks:
    """Hold the last run of each target of a file, read from the history at the first request, and the running jobs."""

    def __init__(self, session: Session, tasks: Tasks, refresh: RefreshTimer) -> None:
        self._session = session
        self._tasks = tasks
        self._refresh = refresh
        self._last: dict[str, dict[str, StoredRun]] = {}
        self._running: dict[tuple[str, str], dict[str, JobProgress]] = {}
        self._failed: dict[tuple[str, str], dict[str, Failed]] = {}
        self._stops: dict[tuple[str, str], list[Callable[[], object]]] = {}

    @cached_property
    def queue(self) -> Queue:
        """Return the queue that records which hosts are busy with a job of this server."""
        from fx_lsp.tracing.remote.queues import Queue

        return Queue()

    def last(self, file: str, name: str) -> BenchmarkRun | None:
        """Return the last run of a target. Never waits: the runs of a file are read in the background at the first
        request.
        """
        if file not in self._last:
            self._last[file] = {}
            self._tasks.spawn("benchmarks", self._read(file))
        stored = self._last[file].get(name)
        return self._as_of_now([stored])[0] if stored is not None else None

    def add(self, stored: StoredRun) -> None:
        """Add a successful run."""
        run = stored.run
        if run.file in self._last:
            self._last[run.file][run.target] = stored
        self._refresh.updated(run.file)

    def fail(self, view: View, host: str, failed: Failed) -> None:
        """Record that the run of a page's target on a host has ended without a report."""
        self._failed.setdefault((view.file, view.name), {})[host] = failed
        self._refresh.updated(view.file)

    def failures(self, file: str, name: str) -> dict[str, Failed]:
        """Return the failures of the last runs of a target by host; hosts with a later report or a running job are left
        out.
        """
        return self._failed.get((file, name), {})

    def forget(self, file: str) -> None:
        """Forget the runs of a file that was closed."""
        self._last.pop(file, None)

    def running(self, file: str, name: str) -> dict[str, JobProgress]:
        """Return the progress of the running jobs of a target, by host."""
        return self._running.get((file, name), {})

    def note_progress(self, view: View, host: str, progress: JobProgress | None) -> None:
        """Record the progress on a host for the target of a page; None once the job has ended there."""
        running = self._running.setdefault((view.file, view.name), {})
        if progress is None:
            running.pop(host, None)
        else:
            running[host] = progress
            self.failures(view.file, view.name).pop(host, None)
        if not running:
            del self._running[view.file, view.name]

    @contextmanager
    def stopped_by(self, view: View, stop: Callable[[], object]) -> Generator[None]:
        """Register `stop` to end the measurement of a page's target, while the block runs."""
        stops = self._stops.setdefault((view.file, view.name), [])
        stops.append(stop)
        try:
            yield
        finally:
            stops.remove(stop)

    def stop(self, file: str, name: str) -> None:
        """End all running measurements of a target."""
        for stop in [*self._stops.get((file, name), ())]:
            stop()

    async def page(self, view: View) -> str:
        """Return the text of a target's page."""
        now = {host: _text(progress) for host, progress in self.running(view.file, view.name).items()}
        return document(view.name, await self._runs(view), now, self.failures(view.file, view.name))

    async def data(self, view: View) -> Json:
        """Return the data with which a client draws that page."""
        runs = await self._runs(view)
        last = {id(run) for run in latest(runs).values()}
        return {
            "title": view.name,
            "running": running_data(self.running(view.file, view.name)),
            "failures": [{"host": host, **asdict(f)} for host, f in self.failures(view.file, view.name).items()],
            "runs": [
                _run(run, changed, id(run) in last)
                for run, changed in [*zip(runs, changes(runs), strict=True)][-MAX_RUNS:]
            ],
        }

    async def _runs(self, view: View) -> list[BenchmarkRun]:
        if self._session.engine is not None:
            await self._session.engine.targets(view.file)  # afterwards, its current text is parsed
        return self._as_of_now(await asyncio.to_thread(_history().runs_of, view.file, view.name))

    def _as_of_now(self, runs: Sequence[StoredRun]) -> list[BenchmarkRun]:
        engine, texts = self._session.engine, {document.file: document.text for document in self._session.documents}
        return [stored.as_of(engine and engine.plan(stored.run.file, stored.run.target), texts) for stored in runs]

    async def _read(self, file: str) -> None:
        runs = await asyncio.to_thread(_history().runs_of, file)
        if runs and file in self._last:
            self._last[file] = {stored.run.target: stored for stored in runs} | self._last[file]
            self._refresh.updated(file)


def _history() -> ModuleType:
    """Return the `history` module. It is imported late: it imports sqlite3, which would delay the client's start."""
    from fx_lsp.tracing.remote import history

    return history


def page_of(file: str, name: str) -> View:
    """Return the benchmark page of a target."""
    return View(file, name, WORK, work=WORK)


def _text(progress: JobProgress) -> str:
    return f"{progress.text} ({progress.done} of {progress.total})" if progress.total else progress.text


def running_data(running: dict[str, JobProgress]) -> list[Json]:
    """Return the running jobs, by host, as data for a client."""
    return [{"host": host, **asdict(progress)} for host, progress in running.items()]


_OF_PLACE = ("variant", "label", "what", "clock")


def _run(run: BenchmarkRun, changed: Sequence[MeasuredChange], last: bool) -> Json:
    return {
        "host": run.host,
        "stale": run.stale,
        "last": last,
        "headline": lens_title(run.report),
        "changes": [{**{name: getattr(c.place, name) for name in _OF_PLACE}, "ratio": c.ratio} for c in changed],
        "report": asdict(run.report),
    }
