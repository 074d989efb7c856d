"""Hosts that a command leads to, and who runs what where several are named."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from boxes import FILES, SHORT, events_of
from inline_snapshot import snapshot

from fx_lsp.measured import BenchmarkJob, Event, Failed, JobProgress
from fx_lsp.tracing.remote.hosts import Host
from fx_lsp.tracing.remote.jobs import run_job
from fx_lsp.tracing.remote.queues import Queue
from fx_lsp.tracing.remote.trust import trust

pytest_plugins = ["box_fixtures"]
pytestmark = pytest.mark.usefixtures("own_settings")


def reached_by(command: str, name: str = "slurm", **fields: object) -> Host:
    host = replace(Host(name, command=command, connect=20), **fields)
    trust(host)
    return host


async def last_of(host: Host) -> Failed:
    last = (await events_of(host))[-1]
    assert isinstance(last, Failed)
    return last


async def test_a_command_that_ends_in_a_python(tmp_path: Path):
    host = reached_by(f"env GRES=gpu:1 {sys.executable}", folder=str(tmp_path))
    assert (await last_of(host)).message.startswith(f"ran in {tmp_path}/fx-lsp-job-")


async def test_a_shell_that_prepares_a_python():
    command = f"""sh -c 'GRES=gpu:1; exec "$@"' - "{sys.executable}" """
    assert (await last_of(reached_by(command))).message.startswith("ran in ")


async def test_a_command_that_is_not_there():
    assert await last_of(reached_by("srun-of-nobody python3")) == snapshot(
        Failed(
            message="there is no command srun-of-nobody on this machine, which is used to reach slurm",
            hint="correct how slurm is reached in hosts.toml",
        )
    )


async def test_a_command_that_fails():
    assert (await last_of(reached_by("sh -c 'echo no such partition >&2; exit 1'"))).message == snapshot(
        "no Python answered on slurm: the command that starts it exited with code 1: no such partition"
    )


async def test_a_command_that_waits_for_its_turn():
    host = reached_by("sh -c 'echo job 12 is queued >&2; sleep 100'", connect=3)
    *before, last = await events_of(host)
    assert last.message == snapshot(
        "slurm does not answer: no Python was running there after 3 s; its output: job 12 is queued"
    )
    assert before[-1].text == "slurm: job 12 is queued"


async def test_a_file_of_the_user_shadows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("struct", "queue", "traceback", "zipfile"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    here = Host("local", local=True, python=sys.executable)
    assert (await last_of(here)).message.startswith("ran in ")


async def test_without_execnet(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "execnet", None)
    monkeypatch.delitem(sys.modules, "fx_lsp.tracing.remote.gateways", raising=False)
    assert await last_of(Host("local", local=True)) == snapshot(
        Failed(
            message="benchmarks need execnet, which is not installed next to fx-lsp",
            hint="install fx-lsp with its extra `bench`",
        )
    )


async def queued(queue: Queue, hosts: list[Host], job: BenchmarkJob, log: list[str]) -> list[tuple[str, Event]]:
    found: list[tuple[str, Event]] = []
    async with aclosing(queue.run(hosts, job, FILES)) as events:
        async for host, event in events:
            found.append((host.name, event))
            if isinstance(event, JobProgress) and event.text == "started":
                log.append(f"{host.name} starts")
            elif isinstance(event, Failed):
                log.append(f"{host.name} ends")
    return found


async def test_a_host_runs_one_job_at_a_time():
    queue, log = Queue(), list[str]()
    here = Host("local", local=True, python=sys.executable)
    await asyncio.gather(*(queued(queue, [here], SHORT, log) for _ in range(3)))
    assert log == ["local starts", "local ends"] * 3


async def test_a_pool_uses_all_its_hosts():
    queue, log = Queue(), list[str]()
    pool = [reached_by(f"env HOST={name} {sys.executable}", name) for name in ("a", "b")]
    await asyncio.gather(*(queued(queue, pool, SHORT, log) for _ in range(2)))
    assert sorted(log) == ["a ends", "a starts", "b ends", "b starts"]


async def test_a_pool_leaves_out_a_host_that_is_down():
    down, up = reached_by("srun-of-nobody python3", "down"), reached_by(f"env HOST=up {sys.executable}", "up")
    log = list[str]()
    events = await queued(Queue(), [down, up], SHORT, log)
    assert log == ["up starts", "up ends"]
    assert [event.text for _, event in events if isinstance(event, JobProgress)][:2] == snapshot(
        [
            "down: connecting",
            "there is no command srun-of-nobody on this machine, which is used to reach down; trying another",
        ]
    )


async def test_leaving_early_frees_the_host():
    queue, log = Queue(), list[str]()
    here = Host("local", local=True, python=sys.executable)
    async with aclosing(queue.run([here], replace(SHORT, name="100000"), FILES)) as events:
        async for _, event in events:
            if isinstance(event, JobProgress) and event.text == "working":
                break
    await queued(queue, [here], SHORT, log)
    assert log == ["local starts", "local ends"]


async def test_many_jobs_leave_no_threads_and_no_processes(tmp_path: Path):
    (tmp_path / "jobs").mkdir()
    here = Host("local", local=True, python=sys.executable, folder=str(tmp_path / "jobs"))
    async for _ in run_job(here, SHORT, FILES):
        pass
    before = threading.active_count()
    for _ in range(3):
        async for _ in run_job(here, SHORT, FILES):
            pass
    assert threading.active_count() <= before
    assert list((tmp_path / "jobs").iterdir()) == []
