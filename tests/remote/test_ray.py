"""Cases of a sweep as tasks of a real Ray cluster of one machine, which has two GPUs in name."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import boxes
import pytest
from inline_snapshot import snapshot
from sshd import free_port

from fx_lsp.measured import BenchmarkCase, BenchmarkJob, Event, Failed, Finished, JobProgress, Machine, Measured, Report
from fx_lsp.tracing.remote.cluster import merged, run_on_cluster
from fx_lsp.tracing.remote.hosts import Cluster, Host
from fx_lsp.tracing.remote.trust import trust

pytest_plugins = ["box_fixtures"]
pytestmark = pytest.mark.usefixtures("own_settings")

RUNNER = """
import json
job = json.load(open("job.json"))
label = job["cases"][0]["label"]
row = {"variant": "kernels", "label": label, "what": "forward", "right": True}
report = {"name": job["name"], "machine": {"gpu": "G"}, "ceilings": None, "costs": [], "measured": [row],
          "warnings": [], "started": 5.0, "seconds": 1.0}
ends = {"found": {"report": report}} if label != "bad" else {"failed": {"message": "It is bad.", "hint": ""}}
print(json.dumps(ends))
"""
FILES = {"fx_lsp/__init__.py": b"", "fx_lsp/bench/__init__.py": b"", "fx_lsp/bench/__main__.py": RUNNER.encode()}


OPTIONS = (
    "--num-cpus=2",
    "--num-gpus=2",
    "--object-store-memory=80000000",
    "--node-ip-address=127.0.0.1",
    "--min-worker-port=0",
    "--max-worker-port=0",
    "--include-dashboard=false",
    "--disable-usage-stats",
)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where jobs of the cluster keep their files."""
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def ray(jobs: Path) -> Iterator[Cluster]:
    """A cluster with a token of its own, whose files go with it."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    port, token = free_port(), {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}", *OPTIONS]
    with TemporaryDirectory(prefix="ray-") as folder, pytest.MonkeyPatch.context() as environment:
        environment.delenv("CUDA_VISIBLE_DEVICES", raising=False)  # it says that there are none
        for name, value in token.items():
            environment.setenv(name, value)
        with (Path(folder) / "log").open("w+b") as log:
            head = subprocess.Popen(
                [*command, f"--temp-dir={folder}"],
                env={**os.environ, "TMPDIR": str(jobs)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            end = time.monotonic() + 60
            while b"Ray runtime started" not in (said := Path(log.name).read_bytes()):
                assert head.poll() is None and time.monotonic() < end, said.decode()
                time.sleep(0.1)
            yield Cluster("lab", f"127.0.0.1:{port}")
            import_module("ray").shutdown()
            head.terminate()
            head.wait(30)


async def events_of(cluster: Cluster, *labels: str) -> list[Event]:
    trust(cluster)
    job = BenchmarkJob("f", tuple(BenchmarkCase(label, "") for label in labels))
    async with aclosing(run_on_cluster(cluster, job, FILES)) as events:
        return [event async for event in events]


@pytest.mark.host
async def test_a_sweep_is_spread_and_put_together(ray: Cluster):
    *before, last = await events_of(ray, "N=1", "N=2", "N=3")
    assert isinstance(last, Finished), last
    assert [row.label for row in last.report.measured] == ["N=1", "N=2", "N=3"]
    assert (last.report.seconds, last.report.warnings) == (3.0, ())
    texts = [event.text for event in before if isinstance(event, JobProgress)]
    assert texts == ["connecting", "measuring", "N=1", "N=2", "N=3"]


@pytest.mark.host
async def test_a_case_that_fails(ray: Cluster):
    assert (await events_of(ray, "N=1", "bad"))[-1] == Failed("It is bad.")


@pytest.mark.host
async def test_cancelling_ends_what_runs_and_what_waits(ray: Cluster, jobs: Path):
    trust(ray)
    there = boxes.Box(Host("lab"), jobs)
    job = BenchmarkJob(boxes.LONG.name, tuple(BenchmarkCase(label, "") for label in ("N=1", "N=2", "N=3")))
    async with aclosing(run_on_cluster(ray, job, boxes.FILES)) as events:
        async for event in events:
            if event == JobProgress("measuring", 0, 3):
                break
        while sum("fx_lsp.bench" in left for left in there.left()) < 2:
            await asyncio.sleep(0.1)
    assert there.left_at_last() == []


@pytest.mark.host
async def test_a_cluster_that_has_no_gpu(ray: Cluster):
    trust(ray)
    async with aclosing(run_on_cluster(ray, BenchmarkJob("f", (BenchmarkCase("N=1", ""),)), FILES, gpus=3)) as events:
        said = [await anext(events), await anext(events)]
    assert said[-1] == snapshot(JobProgress("waiting for a GPU: the cluster has none free", 0, 1))


async def test_a_cluster_that_nobody_said_yes_to():
    job = BenchmarkJob("f", (BenchmarkCase("N=1", ""),))
    assert [event async for event in run_on_cluster(Cluster("lab", "auto"), job, FILES)] == snapshot(
        [Failed(message="lab (Ray at auto) has not been used before, and you have not confirmed it")]
    )


async def test_without_ray(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert (await events_of(Cluster("lab", "auto"), "N=1"))[-1] == snapshot(
        Failed(
            message="Ray clusters need ray, which is not installed next to fx-lsp",
            hint="install the same version as the cluster",
        )
    )


async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch):
    answer = threading.Event()
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: answer.wait())
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("fx_lsp.tracing.remote.cluster.CONNECT_SECONDS", 0.1)
    assert (await events_of(Cluster("lab", "10.0.0.1:6379"), "N=1"))[-1] == snapshot(
        Failed(
            message="Ray at 10.0.0.1:6379 does not answer: there was no cluster after 0.1 s",
            hint="is it running, and is its token in this environment (RAY_AUTH_MODE, RAY_AUTH_TOKEN)? try: ray status",
        )
    )
    answer.set()


def test_cases_of_several_machines_say_so():
    rows = [Measured("kernels", label, "forward") for label in ("N=1", "N=2")]
    cards = [Machine(gpu="H200"), Machine(gpu="A100")]
    reports = [Report("f", c, None, (), (r,), ("hot",), 1.0, 2.0) for c, r in zip(cards, rows, strict=True)]
    whole = merged(reports)
    assert (whole.measured, whole.seconds) == (tuple(rows), 4.0)
    assert whole.warnings == snapshot(("The cases ran on different machines: H200, A100.", "hot"))
