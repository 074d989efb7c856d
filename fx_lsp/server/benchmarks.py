"""What was measured of the targets of open files, and what is being measured: for lenses, hovers, a page, a view."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.benchmark import lens_title
from fx_lsp.features.history import Change, changes, document, latest
from fx_lsp.features.uris import BENCHMARK as WORK
from fx_lsp.features.uris import View, format_uri, parse_uri
from fx_lsp.measured import Failed, Progress, Run

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.remote.history import Kept
    from fx_lsp.tracing.remote.queues import Queue

BENCHMARK = "fxLsp/benchmark"
MEASURING = "fxLsp/measuring"
MOST_RUNS = 50
"""How many runs of a target a client is given."""
REFRESH_SECONDS = 1.0
"""How often the page is brought up to date while something is measured."""
Json = dict[str, Any]


class Benchmarks:
    """The last run of each target of a file, read from the history when it is first asked for, and what runs now."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._last: dict[str, dict[str, Kept]] = {}
        self._running: dict[tuple[str, str], dict[str, Progress]] = {}
        self._failed: dict[tuple[str, str], dict[str, Failed]] = {}
        self._stops: dict[tuple[str, str], list[Callable[[], object]]] = {}
        self._refreshed = 0.0

    @cached_property
    def queue(self) -> Queue:
        """Which hosts are busy with a job of this server."""
        from fx_lsp.tracing.remote.queues import Queue

        return Queue()

    def last(self, file: str, name: str) -> Run | None:
        """The last run of a target. It never waits: the runs of a file are read when one of them is asked for first."""
        if file not in self._last:
            self._last[file] = {}
            self._server.spawn("benchmarks", self._read(file))
        kept = self._last[file].get(name)
        return self._as_of_now([kept])[0] if kept is not None else None

    def add(self, kept: Kept) -> None:
        """A run has ended well."""
        run = kept.run
        if run.file in self._last:
            self._last[run.file][run.target] = kept
        self._server.updated(run.file)

    def fail(self, view: View, host: str, failed: Failed) -> None:
        """The run of the target of a page on a host has ended without a report."""
        self._failed.setdefault((view.file, view.name), {})[host] = failed
        self._server.updated(view.file)

    def failures(self, file: str, name: str) -> dict[str, Failed]:
        """Why the last runs of a target have no report, by host; those that have one, or run again, are not there."""
        return self._failed.get((file, name), {})

    def forget(self, file: str) -> None:
        """A file was closed."""
        self._last.pop(file, None)

    def running(self, file: str, name: str) -> dict[str, Progress]:
        """What is being done now for a target, by host."""
        return self._running.get((file, name), {})

    @contextmanager
    def stopped_by(self, view: View, stop: Callable[[], object]) -> Generator[None]:
        """While the block runs, `stop` ends what is being measured of the target of a page."""
        stops = self._stops.setdefault((view.file, view.name), [])
        stops.append(stop)
        try:
            yield
        finally:
            stops.remove(stop)

    def stop(self, file: str, name: str) -> None:
        """Ends what is being measured of a target."""
        for stop in [*self._stops.get((file, name), ())]:
            stop()

    def tell(self, view: View, host: str, progress: Progress | None) -> None:
        """Something goes on on a host for the target of a page; None once it has ended there."""
        running = self._running.setdefault((view.file, view.name), {})
        if progress is None:
            running.pop(host, None)
        else:
            running[host] = progress
            self.failures(view.file, view.name).pop(host, None)
        if not running:
            del self._running[view.file, view.name]
        told: Json = {"name": view.name, "uri": format_uri(view), "running": _running(running)}
        if self._server.settings.changes:
            self._server.protocol.notify(MEASURING, told)
        now = asyncio.get_running_loop().time()
        if progress is None or now - self._refreshed > REFRESH_SECONDS:
            self._refreshed = now
            self._server.views.renew(view)

    async def page(self, view: View) -> str:
        """The text of the page about a target."""
        now = {host: _text(progress) for host, progress in self.running(view.file, view.name).items()}
        return document(view.name, await self._runs(view), now, self.failures(view.file, view.name))

    async def data(self, view: View) -> Json:
        """What a client needs to draw that page."""
        runs = await self._runs(view)
        found = [*zip(runs, changes(runs), strict=True)]
        shown = {id(run) for run in latest(runs).values()}
        return {
            "title": view.name,
            "running": _running(self.running(view.file, view.name)),
            "failures": [
                {"host": host, "message": failed.message, "hint": failed.hint}
                for host, failed in self.failures(view.file, view.name).items()
            ],
            "runs": [_run(run, changed, id(run) in shown) for run, changed in found[-MOST_RUNS:]],
        }

    async def _runs(self, view: View) -> list[Run]:
        if self._server.engine is not None:
            await self._server.engine.targets(view.file)  # its present text is read by then
        return self._as_of_now(await asyncio.to_thread(_history().runs_of, view.file, view.name))

    def _as_of_now(self, found: Sequence[Kept]) -> list[Run]:
        engine, texts = self._server.engine, {document.file: document.text for document in self._server.documents}
        return [kept.as_of(engine and engine.plan(kept.run.file, kept.run.target), texts) for kept in found]

    async def _read(self, file: str) -> None:
        found = await asyncio.to_thread(_history().runs_of, file)
        if found and file in self._last:
            self._last[file] = {kept.run.target: kept for kept in found} | self._last[file]
            self._server.updated(file)


def _history() -> ModuleType:
    """Imported late: it brings sqlite3, for which a client that starts does not wait."""
    from fx_lsp.tracing.remote import history

    return history


async def benchmark(server: Server, params: Any) -> Json:
    """`fxLsp/benchmark`: what was measured of the target of a view's URI, and what is being measured."""
    uri = getattr(params, "uri", None)
    view = parse_uri(uri) if isinstance(uri, str) else None
    if view is None:
        raise JsonRpcInvalidParams(f"{uri!r} is no URI of a view")
    return await server.benchmarks.data(view)


def page_of(file: str, name: str) -> View:
    """The page about what was measured of a target."""
    return View(file, name, WORK, work=WORK)


def _text(progress: Progress) -> str:
    return f"{progress.text} ({progress.done} of {progress.total})" if progress.total else progress.text


def _running(running: dict[str, Progress]) -> list[Json]:
    return [{"host": host, "text": p.text, "done": p.done, "total": p.total} for host, p in running.items()]


def _run(run: Run, changed: Sequence[Change], last: bool) -> Json:
    return {
        "host": run.host,
        "stale": run.stale,
        "last": last,
        "headline": lens_title(run.report),
        "changes": [
            {
                "variant": c.place.variant,
                "label": c.place.label,
                "what": c.place.what,
                "clock": c.place.clock,
                "ratio": c.ratio,
            }
            for c in changed
        ],
        "report": asdict(run.report),
    }
