"""Run jobs on a host, from an asyncio loop: blocking work runs in a thread for each job.
    async with aclosing(run_job(host, job)) as events:
        async for event in events: ...
Leaving the loop early, or cancelling, also ends the job on the host.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fx_lsp import wire
from fx_lsp.errors import ProtocolError
from fx_lsp.measured import BenchmarkJob, Event, Failed, JobProgress, Probe
from fx_lsp.tracing.remote import supervisor
from fx_lsp.tracing.remote.hosts import Host
from fx_lsp.tracing.remote.payload import packed, prober_files, runner_files, supervisor_source
from fx_lsp.tracing.remote.troubles import NO_EXECNET, at, ended, refused
from fx_lsp.tracing.remote.trust import is_trusted

if TYPE_CHECKING:
    from fx_lsp.tracing.remote.gateways import Connection

T = TypeVar("T")

SILENCE_SECONDS = 30.0
"""The longest silence in seconds before a side considers the connection lost."""

CANCEL_SECONDS = 8.0
PROBE_SECONDS = 60.0
RUNNER_ARGUMENTS = ("-m", "fx_lsp.bench", "job.json", "--watch", "--remove", "{folder}")
_MORE_SECONDS = 20.0
"""The seconds that a runner may exceed its own limit."""


async def run_job(
    host: Host, job: BenchmarkJob, files: Mapping[str, bytes] | None = None, silence: float = SILENCE_SECONDS
) -> AsyncGenerator[Event, None]:
    """Run a job on a host and yield its events; the last one is `Finished` or `Failed`.

    The host's limit, folders and rivals are added to the job. `files` are those of the runner. A host that the user has
    not confirmed (`trust`) is not reached.
    """
    seconds = min(job.seconds, host.limit)
    rivals = (*job.rivals, *host.rivals_of(job.name))
    job = replace(job, seconds=seconds, rivals=rivals, paths=(*host.paths, *job.paths))
    task = _Task(RUNNER_ARGUMENTS, job_files(job, files), seconds, silence)
    async with aclosing(_run(host, task, wire.event_from_json)) as ran:
        async for event in ran:
            yield event


def job_files(job: BenchmarkJob, files: Mapping[str, bytes] | None = None) -> Mapping[str, bytes]:
    """Return the files for a job: those of the runner, and the job itself."""
    return {"job.json": json.dumps(wire.to_json(job)).encode(), **(files or runner_files())}


async def probe_host(host: Host) -> Probe | Failed:
    """Return the equipment of a host, and what it lacks for benchmarks."""
    arguments = ("-m", "fx_lsp.tracing.remote.prober")
    task = _Task(arguments, prober_files(), PROBE_SECONDS, SILENCE_SECONDS, torch=False)
    last: Probe | Failed = Failed(f"{host.name} reported nothing")
    async with aclosing(_run(host, task, lambda data: wire.from_json(Probe, wire.readable(data)))) as ran:
        async for event in ran:
            last = last if isinstance(event, JobProgress) else event
    return last


@dataclass(frozen=True)
class _Task:
    """Describe a program to run on a host: the arguments of its Python, its files, and its limit in seconds.

    Each line that it prints is JSON. With `torch`, it only starts if a recent enough torch is installed.
    """

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    seconds: float
    silence: float
    torch: bool = True


async def _run(host: Host, task: _Task, read: Callable[[Any], T]) -> AsyncGenerator[T | JobProgress | Failed, None]:
    if not is_trusted(host):
        yield Failed(
            f"{host.name} ({host.reached}) has not been used before, and you have not confirmed it",
            f"confirm it in a terminal: fx-lsp doctor --host {host.name}",
        )
        return
    try:
        from fx_lsp.tracing.remote.gateways import Connection
    except ImportError:
        yield NO_EXECNET
        return
    loop = asyncio.get_running_loop()
    said: asyncio.Queue[T | JobProgress | Failed | None] = asyncio.Queue()

    def tell(event: T | JobProgress | Failed | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(said.put_nowait, event)

    session = _Session(Connection(host), task, read, tell)
    thread = threading.Thread(target=session.run, name=f"fx-lsp {host.name}", daemon=True)
    thread.start()
    waiting = asyncio.ensure_future(_pass_on(session, tell))
    try:
        while (event := await said.get()) is not None:
            yield event
    finally:
        waiting.cancel()
        session.stop()
        if not await _ended(thread, CANCEL_SECONDS):
            session.connection.kill()
            await _ended(thread, CANCEL_SECONDS)


async def _ended(thread: threading.Thread, seconds: float) -> bool:
    """Return True if a thread ends within some seconds. It is not from an executor, which Python would wait for."""
    end = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return not thread.is_alive()


async def _pass_on(session: _Session[T], tell: Callable[[JobProgress], None]) -> None:
    """Report the output of the connecting command before the job runs: a position in a queue, perhaps."""
    told = ""
    while not session.running:
        await asyncio.sleep(1)
        lines = session.connection.said().split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if said != told and not session.running:
            told = said
            tell(JobProgress(f"{session.connection.host.name}: {said[:200]}", 0, 0))


class _Session(Generic[T]):
    """Run one task on one host. `run` is for a thread; `stop` may be called from any."""

    def __init__(
        self,
        connection: Connection,
        task: _Task,
        read: Callable[[Any], T],
        tell: Callable[[T | JobProgress | Failed | None], None],
    ) -> None:
        self.connection, self._task, self._read, self._tell = connection, task, read, tell
        self._stopped = threading.Event()
        self.running = False

    def stop(self) -> None:
        """End the task there, if it has not ended. Returns at once."""
        self._stopped.set()
        if not self.running:
            self.connection.kill()

    def run(self) -> None:
        """Run the task to its end and report its events: at last the end, then None."""
        try:
            last = self._last()
            self.connection.close()
            self._tell(last)
        except Exception as error:
            self.connection.kill()
            self._tell(Failed(f"fx-lsp failed {at(self.connection.host)}: {type(error).__name__}: {error}"))
            raise
        finally:
            self._tell(None)

    def _last(self) -> T | Failed:
        from fx_lsp.tracing.remote.gateways import Unreachable

        host, task = self.connection.host, self._task
        try:
            self._tell(JobProgress(f"{host.name}: connecting", 0, 0))
            channel = self.connection.open(supervisor_source() + "\nsupervise(channel)\n")
        except Unreachable as error:
            return error.failed
        patience = threading.Timer(task.silence, self.connection.kill)
        patience.start()
        try:
            channel.send(
                {
                    "payload": packed(task.files),
                    "arguments": task.arguments,
                    "seconds": task.seconds + _MORE_SECONDS,
                    "silence": task.silence,
                    "folder": host.folder,
                    "torch": task.torch,
                }
            )
            self.running = True
        except (EOFError, OSError):
            return self.connection.never_came()
        finally:
            patience.cancel()
        return self._listen(channel)

    def _listen(self, channel: Any) -> T | Failed:
        host, task = self.connection.host, self._task
        heard, told, any_word, asked = time.monotonic(), 0.0, False, False
        last: T | None = None
        while True:
            now = time.monotonic()
            try:
                if self._stopped.is_set() and not asked:
                    channel.send("cancelled")
                    asked = True
                if now - told > supervisor.BEAT_SECONDS:
                    channel.send("beat")
                    told = now
                kind, text = channel.receive(timeout=0.2)
                heard, any_word = now, True
            except channel.TimeoutError:
                if now - heard > task.silence:
                    self.connection.kill()
                    return self.connection.gone(silent=task.silence)
                continue
            except channel.RemoteError as error:
                return Failed(f"fx-lsp failed {at(host)}: {wire.readable(str(error)).strip().splitlines()[-1]}")
            except (EOFError, OSError):
                return self.connection.gone() if any_word else self.connection.never_came()
            if kind == "refused":
                return refused(host, json.loads(text))
            if kind == "end":
                return last or ended(host, json.loads(text), task.seconds, self.connection.said())
            if kind == "line":
                with suppress(ValueError, ProtocolError):  # a library may print between events
                    event = self._read(json.loads(text))
                    if isinstance(event, JobProgress):
                        self._tell(event)
                    else:
                        last = event
