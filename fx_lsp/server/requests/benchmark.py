"""Handle `fxLsp.bench`: measure a target on the user's hosts, in the background."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.choices import read_choices
from fx_lsp.errors import TargetError
from fx_lsp.features.costs.benchmark import lens_title
from fx_lsp.features.wording.problems import describe
from fx_lsp.features.wording.uris import View, format_uri
from fx_lsp.measured import INDUCTOR_KERNELS, BenchmarkJob, BenchmarkRun, Event, Failed, Finished, JobProgress
from fx_lsp.model import Failure, read_work
from fx_lsp.server.client import Client
from fx_lsp.server.display.benchmarks import MEASURING, Benchmarks, page_of, running_data
from fx_lsp.server.display.views import Views
from fx_lsp.server.engines import Engines
from fx_lsp.server.progress import Progresses
from fx_lsp.server.requests.bench_options import BenchOptions, read_options
from fx_lsp.server.requests.commands import open_view, target_of
from fx_lsp.server.session import Session
from fx_lsp.server.tasks import Tasks
from fx_lsp.tracing.remote.cases import BenchRequest, PreparedJob, job_of, read_sweep, with_own_lines
from fx_lsp.tracing.remote.history import StoredRun, keep
from fx_lsp.tracing.remote.hosts import LOCAL, Hosts, Place, Pool, read_hosts
from fx_lsp.tracing.remote.running import LocalPython, reached, run_on, unknown
from fx_lsp.tracing.remote.trust import is_trusted, trust
from fx_lsp.tracing.workers.find_python import find_interpreter

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import EngineStatus

ONE_DAY = 86400.0
"""The limit on a job's seconds from the editor; effectively, the limit of each host applies."""
RENEW_SECONDS = 1.0
"""Seconds between updates of the page during a measurement."""


async def bench(
    session: Session,
    client: Client,
    views: Views,
    benchmarks: Benchmarks,
    progresses: Progresses,
    tasks: Tasks,
    engines: Engines,
    arguments: list[Any],
) -> dict[str, str] | None:
    """Run `fxLsp.bench(uri, name, options?)`: measure a target. Returns its page at once."""
    file, name = target_of(session, arguments[:2])
    options = read_options(arguments[2] if len(arguments) > 2 else None)
    text = session.source(file)
    if text is None:
        raise JsonRpcInvalidParams(f"there is no file {file}")
    if not session.trusts(file):
        client.tell("fx-lsp: nothing is measured, because this workspace is not trusted", types.MessageType.Warning)
        return None
    roots, page = session.roots_of(file), page_of(file, name)
    try:
        request = _request(options, file, name, text, roots)
    except (TargetError, ValueError) as error:
        raise JsonRpcInvalidParams(str(error)) from None
    user_hosts = await asyncio.to_thread(read_hosts, roots[0])
    for problem in user_hosts.problems:
        client.tell(f"fx-lsp: {problem}", types.MessageType.Warning)
    names = options.hosts or tuple(filter(None, [session.settings.host]))
    places = await _chosen(client, user_hosts, names, name)
    busy = [place.name for place in places if place.name in benchmarks.running(file, name)]
    if busy:
        client.tell(f"fx-lsp: {name} is already being measured on {busy[0]}")
    elif not places or not await _allowed(client, user_hosts, places):
        return None
    else:
        job = BenchmarkJob("", (), options.variants, (), options.what, seconds=ONE_DAY, profile=options.profile)
        job = replace(job, by_line=options.by_line)
        measuring = _Measuring(session, client, views, benchmarks, progresses, engines, page, request)
        tasks.spawn("benchmark", measuring.run(user_hosts, places, job))
    return await open_view(session, client, views, page) if options.show else {"uri": format_uri(page)}


async def stop(session: Session, benchmarks: Benchmarks, arguments: list[Any]) -> None:
    """Run `fxLsp.stopBench(uri, name)`: end all running measurements of a target."""
    benchmarks.stop(*target_of(session, arguments[:2]))


async def hosts(session: Session, arguments: list[Any]) -> dict[str, Any]:
    """Run `fxLsp.hosts()`: list the places that the user has configured, and the path of that file."""
    user_hosts = await asyncio.to_thread(read_hosts, (session.roots() or [None])[0])
    return {
        "path": user_hosts.path,
        "problems": list(user_hosts.problems),
        "hosts": [
            {
                "name": place.name,
                "kind": type(place).__name__.lower(),
                "reached": place.reached if not isinstance(place, Pool) else " or ".join(place.hosts),
                "trusted": all(map(is_trusted, reached(user_hosts, [place]))),
            }
            for place in user_hosts.places.values()
        ],
    }


def _request(options: BenchOptions, file: str, name: str, text: str, roots: tuple[str, ...]) -> BenchRequest:
    """Return the request for kernels. Raises TargetError or ValueError."""
    choices = replace(read_choices(read_work(options.work)), engine="fx-lsp")
    sweep = read_sweep(options.sweep) if options.sweep else None
    inductor = INDUCTOR_KERNELS in options.variants if options.variants else None
    return BenchRequest(file, name, text, roots, options.inputs, sweep, choices, inductor)


async def _chosen(client: Client, user_hosts: Hosts, names: Sequence[str], target: str) -> list[Place]:
    """Return the named places; without names, this machine or the user's choice."""
    if not names and set(user_hosts.places) != {LOCAL}:
        actions = [types.MessageActionItem(title=name) for name in user_hosts.places]
        question = types.ShowMessageRequestParams(types.MessageType.Info, f"Benchmark {target} on …", actions)
        chosen = await client.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
        names = [title] if (title := getattr(chosen, "title", "")) else []
        if not names:
            return []
    by_name = {name: user_hosts.find(name) for name in names or (LOCAL,)}
    missing = next((name for name, place in by_name.items() if place is None), None)
    if missing is not None:
        there = ", ".join(user_hosts.places)
        client.tell(
            f"fx-lsp: there is no host {missing}; there are: {there}; name hosts in {user_hosts.path}",
            types.MessageType.Warning,
        )
        return []
    return [place for place in by_name.values() if place is not None]


async def _allowed(client: Client, user_hosts: Hosts, places: Sequence[Place]) -> bool:
    """Return True if the user confirms each place that is new, or reached in a new way."""
    for place in unknown(reached(user_hosts, places)):
        question = types.ShowMessageRequestParams(
            types.MessageType.Warning,
            f"{place.name} has not been used before, or its address has changed: {place.reached}. "
            "Programs of fx-lsp, your function and its kernels will run there.",
            [types.MessageActionItem(title=f"Use {place.name}"), types.MessageActionItem(title="Cancel")],
        )
        answer = await client.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
        if getattr(answer, "title", "") != f"Use {place.name}":
            return False
        try:
            trust(place)
        except OSError as error:
            client.tell(
                f"fx-lsp: your confirmation of {place.name} cannot be stored: {error}", types.MessageType.Warning
            )
            return False
    return True


@dataclass
class _Measuring:
    """Measure one target on some places, and report its progress."""

    session: Session
    client: Client
    views: Views
    benchmarks: Benchmarks
    progresses: Progresses
    engines: Engines
    page: View
    request: BenchRequest
    renewed: float = 0.0

    async def run(self, user_hosts: Hosts, places: Sequence[Place], job: BenchmarkJob) -> None:
        """Measure the target and report the results; the user may stop it."""
        request, names = self.request, [place.name for place in places]
        interpreter = self.session.engine_settings().interpreter_of(request.roots)
        here = LocalPython(find_interpreter(interpreter, request.roots, os.environ), request.roots)
        running: dict[str, JobProgress] = {}

        def said(name: str, progress: JobProgress | None) -> None:
            self._note(name, progress)
            if progress is None:
                running.pop(name, None)
            else:
                running[name] = progress
            text = " · ".join(f"{host}: {p.text.removeprefix(f'{host}: ')}" for host, p in running.items())
            total = sum(p.total for p in running.values())
            tell(text or None, 100 * sum(p.done for p in running.values()) // total if total else None)

        async def on(prepared: PreparedJob, place: Place) -> None:
            host, end = place.name, Failed("It reported nothing.")
            events = run_on(place, user_hosts, prepared.job, self.benchmarks.queue, here)
            async with aclosing(events):
                async for name, event in events:
                    host = name
                    if isinstance(event, JobProgress):
                        said(place.name, event)
                    else:
                        end = event
            await self._ended(host, end, prepared)
            said(place.name, None)

        task = asyncio.current_task()
        title, cancel = f"Benchmark of {request.name}", task.cancel if task else lambda: None
        try:
            for name in names:
                self._note(name, JobProgress("generating kernels", 0, 0))
            with self.benchmarks.stopped_by(self.page, cancel):
                async with self.progresses.shown(title, cancel) as tell:
                    prepared = await self._prepare(job, lambda text: said(names[0], JobProgress(text, 0, 0)))
                    if isinstance(prepared, Failure):
                        for place in places:
                            self._failed(place.name, Failed(describe(prepared)))
                        return
                    await asyncio.gather(*(on(prepared, place) for place in places))
        finally:
            for name in names:
                self._note(name, None)

    async def _prepare(self, job: BenchmarkJob, say: Callable[[str], None]) -> PreparedJob | Failure:
        """Return the job with its kernels. A separate engine generates them, so that edits do not disturb it."""
        settings = replace(self.session.engine_settings(), trace_on_open=False)

        def told(status: EngineStatus) -> None:
            say(status.message or "generating kernels")

        engine = self.engines.make(settings, lambda file: None, told)
        try:
            for document in self.session.documents:  # the target may import unsaved files
                engine.open(document.file, document.text, self.session.roots_of(document.file))
            return await job_of(engine, self.request, job)
        except TargetError as error:
            return Failure("unsupported", str(error))
        finally:
            await engine.shutdown()

    def _note(self, host: str, progress: JobProgress | None) -> None:
        """Record the progress on a host, notify the client, and update the page at intervals."""
        page = self.page
        self.benchmarks.note_progress(page, host, progress)
        running = running_data(self.benchmarks.running(page.file, page.name))
        if self.session.settings.changes:
            self.client.notify(MEASURING, {"name": page.name, "uri": format_uri(page), "running": running})
        now = asyncio.get_running_loop().time()
        if progress is None or now - self.renewed > RENEW_SECONDS:
            self.renewed = now
            self.views.renew(page)

    def _failed(self, host: str, failed: Failed) -> None:
        hint = f" ({failed.hint})" if failed.hint else ""
        text = f"{self.page.name} was not measured on {host}: {failed.message}{hint}"
        self.client.tell(text, types.MessageType.Warning)
        self.benchmarks.fail(self.page, host, failed)

    async def _ended(self, host: str, end: Event, prepared: PreparedJob) -> None:
        if isinstance(end, Failed):
            self._failed(host, end)
        elif isinstance(end, Finished):
            report, imports = with_own_lines(end.report, self.request, prepared), prepared.imports
            run = BenchmarkRun(self.request.file, self.request.name, host, report)
            try:
                await asyncio.to_thread(keep, run, imports)
            except (OSError, sqlite3.Error) as error:
                self.client.tell(f"fx-lsp: this run cannot be saved in the history: {error}", types.MessageType.Warning)
            self.benchmarks.add(StoredRun(run, imports))
            self.client.tell(f"{self.request.name}: {lens_title(end.report)}")
