"""Cases of a sweep as tasks of a real Ray cluster of one machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from inline_snapshot import snapshot

from fx_lsp.measured import Case, Event, Failed, Found, Job, Machine, Measured, Progress, Report
from fx_lsp.tracing.remote.cluster import merged, run_on_cluster
from fx_lsp.tracing.remote.hosts import Cluster
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


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


async def events_of(cluster: Cluster, *labels: str) -> list[Event]:
    job = Job("f", tuple(Case(label, "") for label in labels))
    async with aclosing(run_on_cluster(cluster, job, FILES, gpus=0)) as events:
        return [event async for event in events]


def trusted() -> Cluster:
    cluster = Cluster("lab", "auto")
    trust(cluster)
    return cluster


async def test_a_sweep_is_spread_and_put_together(ray: None):
    *before, last = await events_of(trusted(), "N=1", "N=2", "N=3")
    assert isinstance(last, Found)
    assert [row.label for row in last.report.measured] == ["N=1", "N=2", "N=3"]
    assert (last.report.seconds, last.report.warnings) == (3.0, ())
    assert [event.text for event in before if isinstance(event, Progress)] == ["connecting", "N=1", "N=2", "N=3"]


async def test_a_case_that_fails(ray: None):
    assert (await events_of(trusted(), "N=1", "bad"))[-1] == Failed("It is bad.")


async def test_a_cluster_that_nobody_said_yes_to():
    assert await events_of(Cluster("lab", "auto"), "N=1") == snapshot(
        [Failed(message="lab (Ray at auto) was not used before, and nobody has said yes to it")]
    )


async def test_without_ray(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert (await events_of(trusted(), "N=1"))[-1] == snapshot(
        Failed(
            message="Ray clusters need ray, which is not installed beside fx-lsp",
            hint="install the cluster's version of it",
        )
    )


def test_cases_of_several_machines_say_so():
    rows = [Measured("kernels", label, "forward") for label in ("N=1", "N=2")]
    cards = [Machine(gpu="H200"), Machine(gpu="A100")]
    reports = [Report("f", c, None, (), (r,), ("hot",), 1.0, 2.0) for c, r in zip(cards, rows, strict=True)]
    whole = merged(reports)
    assert (whole.measured, whole.seconds) == (tuple(rows), 4.0)
    assert whole.warnings == snapshot(("The cases ran on different machines: H200, A100.", "hot"))
