"""`fxLsp.bench`: measuring a target on the user's hosts, in the background."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.choices import read_choices
from fx_lsp.errors import TargetError
from fx_lsp.features.benchmark import lens_title
from fx_lsp.features.problems import describe
from fx_lsp.features.uris import View, format_uri
from fx_lsp.measured import INDUCTOR_KERNELS, Event, Failed, Found, Job, Progress, Run
from fx_lsp.model import Failure
from fx_lsp.server.benchmarks import page_of
from fx_lsp.server.commands import open_view, target_of
from fx_lsp.server.documents import read_source, roots_of
from fx_lsp.server.settings import engine_settings
from fx_lsp.server.wanted import Wanted, read_wanted
from fx_lsp.tracing.answers.disk import Dependency
from fx_lsp.tracing.remote.cases import Asked, Made, job_of, read_sweep
from fx_lsp.tracing.remote.history import Kept, keep
from fx_lsp.tracing.remote.hosts import LOCAL, Hosts, Place, Pool, read_hosts
from fx_lsp.tracing.remote.running import reached, run_on, unknown
from fx_lsp.tracing.remote.trust import is_trusted, trust
from fx_lsp.tracing.workers.find_python import find_interpreter

if TYPE_CHECKING:
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import EngineStatus

ONE_DAY = 86400.0
"""Seconds that a job may take as far as the editor is concerned: the limit of each host counts."""


async def bench(server: Server, arguments: list[Any]) -> dict[str, str] | None:
    """`fxLsp.bench(uri, name, options?)`: measures a target. Returns at once, as `fxLsp.showStage` does, its page."""
    file, name = target_of(server, arguments[:2])
    wanted = read_wanted(arguments[2] if len(arguments) > 2 else None)
    text = read_source(server, file)
    if text is None:
        raise JsonRpcInvalidParams(f"there is no file {file}")
    if not server.settings.trusted:
        server.tell("fx-lsp: nothing is measured, as this workspace is not trusted", types.MessageType.Warning)
        return None
    roots, page = roots_of(server.roots(), file), page_of(file, name)
    try:
        asked = _asked(wanted, file, name, text, roots)
    except (TargetError, ValueError) as error:
        raise JsonRpcInvalidParams(str(error)) from None
    known = await asyncio.to_thread(read_hosts, roots[0])
    for problem in known.problems:
        server.tell(f"fx-lsp: {problem}", types.MessageType.Warning)
    places = await _chosen(server, known, wanted.hosts or tuple(filter(None, [server.settings.host])), name)
    busy = [place.name for place in places if place.name in server.benchmarks.running(file, name)]
    if busy:
        server.tell(f"fx-lsp: {name} is being measured on {busy[0]} already")
    elif not places or not await _allowed(server, known, places):
        return None
    else:
        job = Job("", (), wanted.variants, (), wanted.what, seconds=ONE_DAY, profile=wanted.profile)
        server.spawn("benchmark", _measure(server, page, asked, known, places, job))
    return await open_view(server, page) if wanted.show else {"uri": format_uri(page)}


async def stop(server: Server, arguments: list[Any]) -> None:
    """`fxLsp.stopBench(uri, name)`: ends what is being measured of a target."""
    server.benchmarks.stop(*target_of(server, arguments[:2]))


async def hosts(server: Server, arguments: list[Any]) -> dict[str, Any]:
    """`fxLsp.hosts()`: the places that the user has named, and where."""
    known = await asyncio.to_thread(read_hosts, (server.roots() or [None])[0])
    return {
        "path": known.path,
        "problems": list(known.problems),
        "hosts": [
            {
                "name": place.name,
                "kind": type(place).__name__.lower(),
                "reached": place.reached if not isinstance(place, Pool) else " or ".join(place.hosts),
                "trusted": all(map(is_trusted, reached(known, [place]))),
            }
            for place in known.places.values()
        ],
    }


def _asked(wanted: Wanted, file: str, name: str, text: str, roots: tuple[str, ...]) -> Asked:
    """What is to be generated. Raises TargetError or ValueError."""
    parts = [option.partition("=") for option in wanted.work.split("&")[1:]]
    options = {name: value for name, _, value in parts}
    sweep = read_sweep(wanted.sweep) if wanted.sweep else None
    inductor = INDUCTOR_KERNELS in wanted.variants if wanted.variants else None
    choices = replace(read_choices(options), engine="fx-lsp")
    return Asked(file, name, text, roots, wanted.inputs, sweep, choices, inductor)


async def _chosen(server: Server, known: Hosts, names: Sequence[str], target: str) -> list[Place]:
    """The places of those names; where there are none, this machine or what the user chooses."""
    if not names and set(known.places) != {LOCAL}:
        actions = [types.MessageActionItem(title=name) for name in known.places]
        question = types.ShowMessageRequestParams(types.MessageType.Info, f"Benchmark {target} on …", actions)
        chosen = await server.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
        names = [title] if (title := getattr(chosen, "title", "")) else []
        if not names:
            return []
    found = [(name, known.find(name)) for name in dict.fromkeys(names or (LOCAL,))]
    missing = next((name for name, place in found if place is None), None)
    if missing is not None:
        there = ", ".join(known.places)
        server.tell(
            f"fx-lsp: there is no host {missing}; there are: {there}; name hosts in {known.path}",
            types.MessageType.Warning,
        )
        return []
    return [place for _, place in found if place is not None]


async def _allowed(server: Server, known: Hosts, places: Sequence[Place]) -> bool:
    """Whether the user says yes to each place that was never used, or is reached in another way now."""
    for place in unknown(reached(known, places)):
        question = types.ShowMessageRequestParams(
            types.MessageType.Warning,
            f"{place.name} was not used before, or not in this way: {place.reached}. "
            "Programs of fx-lsp, your function and its kernels will run there.",
            [types.MessageActionItem(title=f"Use {place.name}"), types.MessageActionItem(title="Cancel")],
        )
        answer = await server.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, question)
        if getattr(answer, "title", "") != f"Use {place.name}":
            return False
        try:
            trust(place)
        except OSError as error:
            server.tell(f"fx-lsp: your yes to {place.name} cannot be kept: {error}", types.MessageType.Warning)
            return False
    return True


async def _measure(server: Server, page: View, asked: Asked, known: Hosts, places: Sequence[Place], job: Job) -> None:
    """Measures a target on some places and says what happens; the user may stop it."""
    task, names = asyncio.current_task(), [place.name for place in places]
    python = find_interpreter(engine_settings(server.settings).interpreter_of(asked.roots), asked.roots, os.environ)
    running: dict[str, Progress] = {}

    def said(name: str, progress: Progress | None) -> None:
        server.benchmarks.tell(page, name, progress)
        if progress is None:
            running.pop(name, None)
        else:
            running[name] = progress
        text = " · ".join(f"{host}: {p.text.removeprefix(f'{host}: ')}" for host, p in running.items())
        total = sum(p.total for p in running.values())
        tell(text or None, 100 * sum(p.done for p in running.values()) // total if total else None)

    async def on(made: Made, place: Place) -> None:
        host, end = place.name, Failed("It said nothing.")
        async with aclosing(run_on(place, known, made.job, server.benchmarks.queue, python, asked.roots)) as ran:
            async for name, event in ran:
                host = name
                if isinstance(event, Progress):
                    said(place.name, event)
                else:
                    end = event
        await _ended(server, page, asked, host, end, made.imports)
        said(place.name, None)

    title, cancel = f"Benchmark of {asked.name}", task.cancel if task else lambda: None
    try:
        for name in names:
            server.benchmarks.tell(page, name, Progress("generating kernels", 0, 0))
        with server.benchmarks.stopped_by(page, cancel):
            async with server.progresses.shown(title, cancel) as tell:
                made = await _made(server, asked, job, lambda text: said(names[0], Progress(text, 0, 0)))
                if isinstance(made, Failure):
                    for place in places:
                        _say_failed(server, page, place.name, Failed(describe(made)))
                    return
                await asyncio.gather(*(on(made, place) for place in places))
    finally:
        for name in names:
            server.benchmarks.tell(page, name, None)


async def _made(server: Server, asked: Asked, job: Job, say: Callable[[str], None]) -> Made | Failure:
    """The job with its kernels. What is being edited may change meanwhile, so that it has an engine of its own."""
    settings = replace(engine_settings(server.settings), trace_on_open=False)

    def told(status: EngineStatus) -> None:
        say(status.message or "generating kernels")

    engine = server.make_engine(settings, lambda file: None, told)
    try:
        for document in server.documents:  # the target may import what is not saved
            engine.open(document.file, document.text, roots_of(server.roots(), document.file))
        return await job_of(engine, asked, job)
    except TargetError as error:
        return Failure("unsupported", str(error))
    finally:
        await engine.shutdown()


def _say_failed(server: Server, page: View, host: str, failed: Failed) -> None:
    text = f"{page.name} was not measured on {host}: {failed.message}" + (f" ({failed.hint})" if failed.hint else "")
    server.tell(text, types.MessageType.Warning)
    server.benchmarks.fail(page, host, failed)


async def _ended(
    server: Server, page: View, asked: Asked, host: str, end: Event, imports: Sequence[Dependency]
) -> None:
    if isinstance(end, Failed):
        _say_failed(server, page, host, end)
    elif isinstance(end, Found):
        run = Run(asked.file, asked.name, host, end.report)
        try:
            await asyncio.to_thread(keep, run, imports)
        except (OSError, sqlite3.Error) as error:
            server.tell(f"fx-lsp: this is not kept in the history: {error}", types.MessageType.Warning)
        server.benchmarks.add(Kept(run, tuple(imports)))
        server.tell(f"{asked.name}: {lens_title(end.report)}")
