"""The real runner behind a real sshd: kernels on the CPU, the report, and what a kill in the middle leaves."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from boxes import Box, MakeBox

from fx_lsp.measured import EAGER, KERNELS, BenchmarkCase, BenchmarkJob, Event, Failed, Finished, JobProgress, Probe
from fx_lsp.tracing.remote.jobs import probe_host, run_job

pytest_plugins = ["box_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.host]

GOLDEN = Path(__file__).parents[1] / "golden" / "kernels" / "rms_norm.py"
JOB = BenchmarkJob(
    "rms_norm",
    (BenchmarkCase("", GOLDEN.read_text()),),
    (EAGER, KERNELS),
    device="cpu",
    sampling=0.01,
    source_hash="abc",
)


async def test_a_report_comes_back(box: MakeBox):
    there = box()
    events = [event async for event in run_job(there.host, JOB)]
    last = events[-1]
    assert isinstance(last, Finished), last
    assert {row.variant: row.right for row in last.report.measured} == {EAGER: True, KERNELS: True}
    assert last.report.source_hash == "abc"
    assert "eager: compile and check" in [event.text for event in events if isinstance(event, JobProgress)]
    assert there.left() == []


async def until(there: Box, text: str, kill: bool) -> Event:
    """Runs until the runner says `text`; leaves then, or ends what the job's processes are children of."""
    async with aclosing(run_job(there.host, replace(JOB, variants=(EAGER,)))) as events:
        async for event in events:
            if isinstance(event, JobProgress) and event.text.endswith(text):
                if not kill:
                    return event
                os.kill(gateway(there), signal.SIGKILL)
    return event


def gateway(there: Box) -> int:
    """The parent of the runner, which is the oldest process of the job."""
    marked = [int(line.split()[0]) for line in processes(there)]
    return int(Path("/proc", str(min(marked)), "stat").read_text().rpartition(")")[2].split()[1])


def processes(there: Box) -> list[str]:
    """What runs for the box's jobs: process numbers and commands."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FX_LSP_JOB={there.folder}".encode() in (process / "environ").read_bytes():
                found.append(f"{process.name} {(process / 'cmdline').read_text()}")
        except OSError:
            pass
    return found


async def test_leaving_ends_every_process(box: MakeBox):
    there = box()
    await until(there, "compile and check", kill=False)
    assert there.left() == []


async def test_a_dead_supervisor_takes_the_job_with_it(box: MakeBox):
    there = box()
    last = await until(there, "eager: compile and check", kill=True)
    assert isinstance(last, Failed)
    assert "killed in the middle of the job" in last.message
    assert there.left_at_last() == []


async def test_what_a_host_has(box: MakeBox):
    there = box()
    found = await probe_host(there.host)
    assert isinstance(found, Probe), found
    assert (found.executable, found.temporary) == (sys.executable, str(there.folder))
    assert found.torch and found.triton and found.disk_free
    assert there.left() == []
