"""Jobs on a Ray cluster: each case of a sweep is a task with a GPU of its own, as many at once as the cluster has.

Ray schedules; what runs for each task is the supervisor that also runs on other hosts. Ray has to be installed beside
fx-lsp, in the version of the cluster's.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from fx_lsp import wire
from fx_lsp.errors import ProtocolError
from fx_lsp.measured import Event, Failed, Found, Job, Progress, Report
from fx_lsp.tracing.remote import supervisor
from fx_lsp.tracing.remote.hosts import Cluster, Host
from fx_lsp.tracing.remote.jobs import RUNNER_ARGUMENTS, job_files
from fx_lsp.tracing.remote.payload import packed
from fx_lsp.tracing.remote.troubles import ended, refused
from fx_lsp.tracing.remote.trust import is_trusted

NO_RAY = Failed("Ray clusters need ray, which is not installed beside fx-lsp", "install the cluster's version of it")

_TASK = '''
def ran(source, task):
    """What the supervisor sends while it runs a task, as pairs."""
    class Channel:
        sent = []
        send = sent.append
        def receive(self):
            return task
        def setcallback(self, told, endmarker):
            pass
    names = {}
    exec(source, names)
    names["supervise"](Channel())
    return Channel.sent
'''


async def run_on_cluster(
    cluster: Cluster, job: Job, files: Mapping[str, bytes] | None = None, gpus: float = 1
) -> AsyncGenerator[Event, None]:
    """Run each case of a job as a task with `gpus` GPUs; the last event is `Found`, with all of them, or `Failed`."""
    if not is_trusted(cluster):
        yield Failed(f"{cluster.name} ({cluster.reached}) was not used before, and nobody has said yes to it")
        return
    try:
        ray = import_module("ray")
    except ImportError:
        yield NO_RAY
        return
    yield Progress("connecting", 0, len(job.cases))
    seconds = min(job.seconds, cluster.limit)
    jobs = [replace(job, cases=(case,), seconds=seconds) for case in job.cases]
    tasks: list[Any] = []
    try:
        if not ray.is_initialized():
            await asyncio.to_thread(ray.init, address=cluster.address, log_to_driver=False, logging_level="ERROR")
        names: dict[str, Any] = {"__name__": "__main__"}  # so that Ray sends the function, not a name to import
        exec(_TASK, names)
        remote = ray.remote(num_gpus=gpus, max_retries=0)(names["ran"])
        source = inspect.getsource(supervisor)
        tasks = [remote.remote(source, _task(one, files)) for one in jobs]
        reports: list[Report] = []
        for number, task in enumerate(tasks):
            last = _end(cluster, await asyncio.wrap_future(task.future()), seconds)
            if isinstance(last, Failed):
                yield last
                return
            reports.append(last.report)
            yield Progress(job.cases[number].label or "measured", number + 1, len(jobs))
        yield Found(merged(reports))
    except Exception as error:  # Ray's own are of a hundred kinds
        yield Failed(f"{cluster.reached} failed: {_first_line(error)}", "is it running? try: ray status")
    finally:
        for task in tasks:
            with suppress(Exception):
                ray.cancel(task, force=True)


def merged(reports: Sequence[Report]) -> Report:
    """One report of several cases that may have run on different GPUs."""
    gpus = dict.fromkeys(report.machine.gpu or report.machine.cpu for report in reports)
    mixed = [f"The cases ran on different machines: {', '.join(gpus)}."] if len(gpus) > 1 else []
    return replace(
        reports[0],
        costs=_all(reports, lambda report: report.costs),
        measured=_all(reports, lambda report: report.measured),
        kernels=_all(reports, lambda report: report.kernels),
        warnings=tuple(dict.fromkeys((*mixed, *_all(reports, lambda report: report.warnings)))),
        started=min(report.started for report in reports),
        seconds=sum(report.seconds for report in reports),
    )


def _all(reports: Sequence[Report], part: Callable[[Report], tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(item for report in reports for item in part(report))


def _task(job: Job, files: Mapping[str, bytes] | None) -> dict[str, Any]:
    return {
        "payload": packed(job_files(job, files)),
        "arguments": RUNNER_ARGUMENTS,
        "seconds": job.seconds,
        "silence": float("inf"),
        "folder": "",
        "torch": True,
    }


def _end(cluster: Cluster, sent: Sequence[tuple[str, str]], seconds: float) -> Found | Failed:
    """What became of a task."""
    host = Host(cluster.name, command="python3")
    last: Found | Failed | None = None
    for kind, text in sent:
        if kind == "refused":
            return refused(host, json.loads(text))
        if kind == "end" and last is None:
            return ended(host, json.loads(text), seconds)
        with suppress(ValueError, ProtocolError):
            event = wire.event_from_json(json.loads(text)) if kind == "line" else None
            last = event if isinstance(event, (Found, Failed)) else last
    return last or Failed(f"a task of {cluster.name} said nothing")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
