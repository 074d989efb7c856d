"""Run jobs on a Ray cluster: each case of a sweep is a task with its own GPU, as many at once as the cluster has.

Ray schedules the tasks; each runs the supervisor that other hosts run, too. Ray has to be installed next to fx-lsp, in
the cluster's version.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

from fx_lsp import wire
from fx_lsp.errors import ProtocolError
from fx_lsp.measured import BenchmarkJob, Event, Failed, Finished, JobProgress, Report
from fx_lsp.tracing.remote.hosts import Cluster, Host
from fx_lsp.tracing.remote.jobs import CANCEL_SECONDS, RUNNER_ARGUMENTS, job_files
from fx_lsp.tracing.remote.payload import packed, supervisor_source
from fx_lsp.tracing.remote.troubles import ended, refused
from fx_lsp.tracing.remote.trust import is_trusted

NO_RAY = Failed(
    "Ray clusters need ray, which is not installed next to fx-lsp", "install the same version as the cluster"
)
CONNECT_SECONDS = 30.0
_MEND = "is it running, and is its token in this environment (RAY_AUTH_MODE, RAY_AUTH_TOKEN)? try: ray status"

_TASK = '''
def ran(source, task):
    """Return the messages of the supervisor while it runs a task, as pairs."""
    import pickle, subprocess, sys
    start = [sys.executable, "-c", source + "supervise_apart()"]
    with subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        pickle.dump(task, process.stdin)
        process.stdin.flush()
        sent = []
        try:
            while True:
                sent.append(pickle.load(process.stdout))
        except EOFError:
            return sent
'''


async def run_on_cluster(
    cluster: Cluster, job: BenchmarkJob, files: Mapping[str, bytes] | None = None, gpus: float = 1
) -> AsyncGenerator[Event, None]:
    """Run each case of a job as a task with `gpus` GPUs. The last event is `Finished`, with all cases, or `Failed`."""
    if not is_trusted(cluster):
        yield Failed(f"{cluster.name} ({cluster.reached}) has not been used before, and you have not confirmed it")
        return
    try:
        ray = import_module("ray")
    except ImportError:
        yield NO_RAY
        return
    yield JobProgress("connecting", 0, len(job.cases))
    seconds = min(job.seconds, cluster.limit)
    jobs = [replace(job, cases=(case,), seconds=seconds) for case in job.cases]
    tasks: list[Any] = []
    reports: list[Report] = []
    try:
        if not ray.is_initialized():
            await _connected(ray, cluster.address)
        names: dict[str, Any] = {"__name__": "__main__"}  # so that Ray sends the function, not a name to import
        exec(_TASK, names)
        remote = ray.remote(num_gpus=gpus, max_retries=0)(names["ran"])
        source = supervisor_source()
        tasks = [remote.remote(source, _task(one, files)) for one in jobs]
        has_one = ray.cluster_resources().get("GPU", 0) >= gpus
        yield JobProgress("measuring" if has_one else "waiting for a GPU: the cluster has none free", 0, len(jobs))
        for number, task in enumerate(tasks):
            last = _end(cluster, await asyncio.wrap_future(task.future()), seconds)
            if isinstance(last, Failed):
                yield last
                return
            reports.append(last.report)
            yield JobProgress(job.cases[number].label or "measured", number + 1, len(jobs))
        yield Finished(merged(reports))
    except asyncio.TimeoutError:
        message = f"{cluster.reached} does not answer: there was no cluster after {CONNECT_SECONDS:g} s"
        yield Failed(message, _MEND)
    except Exception as error:  # Ray raises many kinds of exceptions
        yield Failed(f"{cluster.reached} failed: {_first_line(error)}", _MEND)
    finally:
        await _ended(ray, tasks[len(reports) :])


async def _connected(ray: Any, address: str) -> None:
    """Connect, in a thread that is abandoned if the cluster does not respond: Ray tries for minutes. Raises
    TimeoutError.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: Exception | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(None)

    def connect() -> None:
        error = None
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=connect, name="fx-lsp ray", daemon=True).start()
    await asyncio.wait_for(done, CONNECT_SECONDS)


async def _ended(ray: Any, tasks: Sequence[Any]) -> None:
    """End tasks. Ray kills its workers at once; their supervisors notice it and clean up."""
    for task in tasks:
        with suppress(Exception):
            ray.cancel(task, force=True)
    ends = asyncio.gather(*(asyncio.wrap_future(task.future()) for task in tasks), return_exceptions=True)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(ends, CANCEL_SECONDS)


def merged(reports: Sequence[Report]) -> Report:
    """Return one report of several cases that may have run on different GPUs."""
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


def _task(job: BenchmarkJob, files: Mapping[str, bytes] | None) -> dict[str, Any]:
    return {
        "payload": packed(job_files(job, files)),
        "arguments": RUNNER_ARGUMENTS,
        "seconds": job.seconds,
        "silence": float("inf"),
        "folder": "",
        "torch": True,
    }


def _end(cluster: Cluster, sent: Sequence[tuple[str, str]], seconds: float) -> Finished | Failed:
    """Return the end of a task."""
    host = Host(cluster.name, command="python3")
    last: Finished | Failed | None = None
    for kind, text in sent:
        if kind == "refused":
            return refused(host, json.loads(text))
        if kind == "end" and last is None:
            return ended(host, json.loads(text), seconds)
        with suppress(ValueError, ProtocolError):
            event = wire.event_from_json(json.loads(text)) if kind == "line" else None
            last = event if isinstance(event, (Finished, Failed)) else last
    return last or Failed(f"a task of {cluster.name} reported nothing")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in wire.readable(str(error)).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
