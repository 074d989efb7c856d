"""Jobs that go through the `srun` of a real Slurm cluster: what is said, and what is left in its queue and behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from boxes import FILES, LONG, Box, MakeBox, events_of
from inline_snapshot import snapshot
from slurm import MISSING, NoCluster, Slurm, start_slurm
from terminal import interruptible

from fx_lsp.measured import BenchmarkJob, Event, Failed, JobProgress
from fx_lsp.tracing.remote.hosts import Host
from fx_lsp.tracing.remote.jobs import probe_host
from fx_lsp.tracing.remote.queues import Queue
from fx_lsp.tracing.remote.trust import trust

pytest_plugins = ["box_fixtures"]
pytestmark = pytest.mark.host


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if MISSING:
        pytest.skip(f"there is no {MISSING[0]} here")
    try:
        found = start_slurm(tmp_path_factory.mktemp("slurm"))
    except NoCluster as error:
        pytest.skip(f"no Slurm cluster can be started here: {error}")
    yield found
    found.stop()


@pytest.fixture
def slurm(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    monkeypatch.setenv("SLURM_CONF", cluster.config)
    yield cluster
    assert cluster.jobs_at_last([]) == []


@pytest.fixture
def srun(slurm: Slurm, own_settings: Path, tmp_path: Path) -> MakeBox:
    """Makes a trusted host whose Python is a job of the cluster."""
    folder = tmp_path / "jobs"
    folder.mkdir()

    def make(options: str = "", python: str = sys.executable, **fields: object) -> Box:
        command = " ".join(["srun", *options.split(), python])
        host = replace(Host("slurm", command=command, folder=str(folder), connect=20), **fields)
        trust(host)
        return Box(host, folder)

    return make


def texts(events: list[Event]) -> list[str]:
    return [re.sub(r"job \d+", "job N", event.text) for event in events if isinstance(event, JobProgress)]


async def test_a_job_comes_back_and_leaves_the_queue(srun: MakeBox, slurm: Slurm):
    there, queued = srun(), []

    def ask_the_queue(*_: int) -> None:
        queued.extend(slurm.jobs())
        there.end_jobs()

    *before, last = await events_of(there.host, LONG, ask_the_queue)
    assert queued == ["RUNNING"]
    after = texts(before)[texts(before).index("started") + 1 :]
    assert texts(before)[0] == "slurm: connecting" and set(after) == {"working"}
    assert last.message.startswith(f"ran in {there.folder}/fx-lsp-job-")
    assert slurm.jobs_at_last([]) == []
    assert there.left() == []


async def test_what_a_host_has_is_found(srun: MakeBox):
    found = await probe_host(srun().host)
    assert not isinstance(found, Failed), found
    assert found.executable == sys.executable


async def test_long_lines_come_whole(srun: MakeBox, monkeypatch: pytest.MonkeyPatch):
    program = 'import json; print(json.dumps({"failed": {"message": "é\\n" * 200_000, "hint": ""}}), flush=True)'
    monkeypatch.setitem(FILES, "fx_lsp/bench/__main__.py", program.encode())
    assert (await events_of(srun().host))[-1] == Failed("é\n" * 200_000)


async def test_cancelling_ends_the_job_there(srun: MakeBox, slurm: Slurm):
    there, started = srun(), asyncio.Event()
    running = asyncio.create_task(events_of(there.host, LONG, lambda *_: started.set()))
    await asyncio.wait_for(started.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert there.left() == []
    assert slurm.jobs_at_last([]) == []


async def test_somebody_ends_the_job(srun: MakeBox, slurm: Slurm):
    there = srun()
    last = (await events_of(there.host, LONG, lambda *_: slurm.ask("scancel", "--state=RUNNING")))[-1]
    said = re.sub(r"STEP \S+ ON \S+ CANCELLED AT \S+", "STEP 1.0 ON node CANCELLED AT noon", last.message)
    assert (re.sub(r"slurmstepd\S*:", "slurmstepd:", said), last.hint) == snapshot(
        (
            "the job on slurm was terminated there: slurmstepd: error: *** STEP 1.0 ON node CANCELLED AT noon ***",
            "a scheduler does this when the time of a job is over, or when somebody cancels the job",
        )
    )
    assert there.left_at_last() == []


async def test_the_python_of_a_job_is_killed_and_the_next_job_tidies_up(srun: MakeBox, slurm: Slurm):
    there = srun()
    last = (await events_of(there.host, LONG, lambda _, gateway: os.kill(gateway, signal.SIGKILL)))[-1]
    assert last.message.replace(slurm.node, "node") == snapshot(
        "the Python on slurm ended in the middle of the job: srun: error: node: task 0: Killed"
    )
    await events_of(there.host)
    assert there.left_at_last() == []


async def test_a_full_cluster_says_that_the_job_waits(srun: MakeBox, slurm: Slurm):
    there, told = srun(connect=60), []

    async def listen() -> None:
        told.extend(await events_of(there.host))

    with slurm.full():
        waiting = asyncio.create_task(listen())
        assert await asyncio.to_thread(slurm.jobs_at_last, ["PENDING"]) == ["PENDING"]
        await asyncio.sleep(1.5)
    await waiting
    assert "slurm: srun: job N queued and waiting for resources" in texts(told)
    assert told[-1].message.startswith("ran in ")


async def cancelled_in_the_queue(there: Box, slurm: Slurm) -> None:
    """A job that waits in the queue, and that nobody wants any more."""
    waiting = asyncio.create_task(events_of(there.host))
    assert await asyncio.to_thread(slurm.jobs_at_last, ["PENDING"]) == ["PENDING"]
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_who_no_longer_wants_to_wait_leaves_the_queue(srun: MakeBox, slurm: Slurm):
    there = srun()
    with slurm.full():
        await cancelled_in_the_queue(there, slurm)
        assert slurm.jobs_at_last([]) == []


async def test_a_job_is_not_started_in_time(srun: MakeBox, slurm: Slurm):
    with slurm.full():
        last = (await events_of(srun(connect=2, python="python3").host))[-1]
        assert slurm.jobs_at_last([]) == []
    assert (re.sub(r"job \d+", "job N", last.message), last.hint) == snapshot(
        (
            "slurm does not answer: no Python was running there after 2 s; "
            "its output: srun: job N queued and waiting for resources",
            "raise `connect` of slurm in hosts.toml if it needs longer, or run it yourself: srun python3 --version",
        )
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "--partition=nowhere",
            snapshot(
                "no Python answered on slurm: the command that starts it exited with code 1: "
                "srun: error: invalid partition specified: nowhere"
            ),
        ),
        (
            "--gres=gpu:8",
            snapshot(
                "no Python answered on slurm: the command that starts it exited with code 1: "
                "srun: error: Invalid generic resource (gres) specification"
            ),
        ),
        (
            "--colour=blue",
            snapshot(
                "no Python answered on slurm: the command that starts it exited with code 255: "
                "srun: unrecognized option '--colour=blue'"
            ),
        ),
    ],
)
async def test_what_slurm_refuses(srun: MakeBox, options: str, said: str):
    assert (await events_of(srun(options).host))[-1].message == said


async def test_no_such_python_there(srun: MakeBox):
    last = (await events_of(srun(python="/no/python3").host))[-1]
    assert re.sub(r"slurmstepd\S*:", "slurmstepd:", last.message) == snapshot(
        "there is no /no/python3 on slurm: slurmstepd: error: execve(): /no/python3: No such file or directory"
    )


async def test_as_many_jobs_at_once_as_a_pool_has_hosts(srun: MakeBox, slurm: Slurm):
    hosts, queue = [srun(name=name).host for name in ("a", "b")], Queue()
    at_once: list[int] = []

    async def ran(steps: int) -> list[str]:
        said: list[str] = []
        async for _, event in queue.run(hosts, BenchmarkJob(str(steps), ()), FILES):
            said.append(event.text if isinstance(event, JobProgress) else event.message)
            if said[-1] == "started":
                at_once.append(len(await asyncio.to_thread(slurm.jobs)))
        return said

    *others, late = await asyncio.gather(ran(40), ran(40), ran(2))
    assert max(at_once) == 2
    assert late[0] == "waiting for a or b, which is busy"
    assert all(said[-1].startswith("ran in ") for said in (*others, late))


async def test_srun_on_a_login_node(box: MakeBox, slurm: Slurm):
    there = box(name="slurm", python=f"env SLURM_CONF={slurm.config} srun {sys.executable}")
    assert (await events_of(there.host))[-1].message.startswith("ran in ")
    with slurm.full():
        await cancelled_in_the_queue(there, slurm)
    assert slurm.jobs_at_last([]) == []
    assert there.left() == []


SOURCE = """\
import torch


# fx: x=f32[4, 8]
def doubled(x):
    return torch.relu(x) * 2
"""
BENCH = ("bench", "model.py::doubled", "--host", "slurm", "--variant", "eager", "--what", "forward", "--yes", "--json")


@pytest.fixture
def fx_lsp(slurm: Slurm, own_settings: Path, tmp_path: Path) -> list[str]:
    """A command, in a project, of a user whose hosts.toml names the cluster."""
    (own_settings / "fx-lsp").mkdir(mode=0o700)
    file = own_settings / "fx-lsp" / "hosts.toml"
    file.write_text(f'[hosts.slurm]\ncommand = "srun --ntasks=1 {sys.executable}"\nconnect = 60\n')
    file.chmod(0o600)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("")
    (project / "model.py").write_text(SOURCE)
    return ["env", "-C", str(project), sys.executable, "-m", "fx_lsp", *BENCH, "--python", sys.executable]


@pytest.mark.torch
def test_a_report_of_the_cluster(fx_lsp: list[str]):
    done = subprocess.run(fx_lsp, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["reports"]["slurm"]["measured"]
    assert (row["variant"], row["right"]) == ("eager", True)


@pytest.mark.torch
def test_a_command_that_is_interrupted_leaves_the_queue(fx_lsp: list[str], slurm: Slurm):
    with slurm.full():
        running = subprocess.Popen(fx_lsp, stderr=subprocess.PIPE, text=True, preexec_fn=interruptible)
        assert running.stderr is not None
        said = next(line for line in running.stderr if "queued" in line)
        assert re.sub(r"job \d+", "job N", said) == snapshot("slurm: srun: job N queued and waiting for resources\n")
        os.kill(running.pid, signal.SIGINT)
        running.communicate(timeout=30)
        assert slurm.jobs_at_last([]) == []
