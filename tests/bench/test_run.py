"""Whole runs on the CPU: a process for each variant, whatever becomes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from generated import HONEST, generated

from fx_lsp import wire
from fx_lsp.bench.runner.job import run
from fx_lsp.measured import BenchmarkCase, BenchmarkJob, Event, Failed, Finished, JobProgress, Report, Rival

GOLDEN = Path(__file__).parents[1] / "golden" / "kernels" / "rms_norm.py"
JOB = BenchmarkJob(
    "f", (BenchmarkCase("", generated(HONEST)),), ("eager",), what=("forward", "both"), device="cpu", sampling=0.01
)

pytestmark = pytest.mark.torch


def report(job: BenchmarkJob) -> Report:
    last = run(job, lambda event: None)
    assert isinstance(last, Finished), last
    return last.report


OURS = """
import torch
def fast(x, weight): return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
def wrong(x, weight): return x * weight
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, list[Event]]:
    """A run of a generated file beside what else runs on any machine, and rivals; and what was told meanwhile."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "ours.py").write_text(OURS)
    job = replace(
        JOB,
        name="rms_norm",
        cases=(BenchmarkCase("", GOLDEN.read_text()),),
        variants=("eager", "symbolic_trace", "torchscript", "compile reduce-overhead", "kernels"),
        rivals=(Rival("fast", "ours:fast"), Rival("wrong", "ours:wrong"), Rival("absent", "theirs:f")),
        what=("forward", "backward"),
        paths=(str(folder),),
        source_hash="1234",
        profile=True,
    )
    told: list[Event] = []
    last = run(job, told.append)
    assert isinstance(last, Finished) and told[-1] is last
    return last.report, told


def test_each_variant_is_a_row_of_each_direction(everything: tuple[Report, list[Event]]):
    found, _ = everything
    order = ["eager", "symbolic_trace", "torchscript", "compile reduce-overhead", "kernels", "fast", "wrong", "absent"]
    assert [(r.what, r.variant) for r in found.measured] == [(w, v) for w in ("forward", "backward") for v in order]
    timed = {(r.variant, r.what) for r in found.measured if r.right and "wall" in r.timings}
    assert timed == {
        (v, w) for v in ("eager", "symbolic_trace", "torchscript", "fast") for w in ("forward", "backward")
    }


def test_kernels_without_a_gpu_are_checked_and_not_timed(everything: tuple[Report, list[Event]]):
    row = next(r for r in everything[0].measured if r.variant == "kernels")
    assert row.right and not row.timings and row.error == "It runs in Triton's interpreter: checked, not timed."


def test_what_does_not_run_says_why(everything: tuple[Report, list[Event]]):
    rows = {r.variant: r for r in everything[0].measured}
    assert rows["compile reduce-overhead"].error == "It needs a CUDA device."
    assert rows["absent"].error == "theirs:f cannot be imported: ModuleNotFoundError: No module named 'theirs'"
    assert rows["wrong"].right is False and not rows["wrong"].timings
    assert rows["wrong"].verdicts[0].startswith("out is wrong: off by ")


def test_a_report_knows_what_is_needed_and_where_it_ran(everything: tuple[Report, list[Event]]):
    found, _ = everything
    inputs = ("x: f32[4, 64]", "weight: f32[64]")
    assert [(c.what, c.bytes, c.flops, c.inputs) for c in found.costs] == [
        ("forward", 4 * (256 + 64 + 256), 0, inputs),
        ("backward", 4 * (256 + 64 + 256 + 256 + 64), 0, inputs),
    ]
    assert found.ceilings is None and found.machine.torch and found.machine.threads and found.source_hash == "1234"
    assert {k.variant for k in found.kernels} == {"eager", "symbolic_trace", "torchscript", "fast"}
    assert any(k.kernel == "aten::rsqrt" and k.calls == 1 for k in found.kernels if k.variant == "eager")


def test_progress_is_told(everything: tuple[Report, list[Event]]):
    told = [e for e in everything[1] if isinstance(e, JobProgress)]
    texts = {e.text for e in told}
    assert {"eager: ready", "kernels: compile and check", "timing backward by wall, measurement 2 of 2"} <= texts
    assert [e.done for e in told] == sorted(e.done for e in told) and told[-1].done <= told[-1].total


ENDINGS = {
    "os.kill(os.getpid(), 11)": "Its process ended by SIGSEGV",
    "os._exit(3)": "Its process ended with code 3.",
    "raise ValueError('no')": "ValueError: no",
    "raise SystemExit('over')": "Its process ended with code 1: over.",
}


def test_a_variant_that_fails_is_a_row():
    """And what it prints and reads reaches nobody."""
    talking = f"print('{{}}', flush=True); os.write(1, b'{{}}'); assert not sys.stdin.read(); {HONEST}"
    cases = tuple(BenchmarkCase(entry, generated(entry)) for entry in (*ENDINGS, talking))
    found = report(replace(JOB, cases=cases, variants=("kernels",), what=("forward",)))
    *ended, spoke = found.measured
    assert {row.label: row.error for row in ended if not row.error.startswith(ENDINGS[row.label])} == {}
    assert not any(row.timings or row.right for row in ended) and all(row.crashed for row in ended)
    assert spoke.right and spoke.timings and not spoke.crashed


def test_a_variant_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_lsp.bench.runner.turns._MIN_SETUP_SECONDS", 1.0)
    job = replace(JOB, cases=(BenchmarkCase("", generated("time.sleep(1000)")),), variants=("kernels",), seconds=30.0)
    error = report(job).measured[0].error
    assert error.startswith("It was stopped: no answer within ")


def test_a_clock_that_is_stopped_is_seen_from_outside():
    slow = "import fx_lsp.bench.variant.measuring as m\nreal = m.now\nm.now = lambda: real() // 20\n"
    entry = "time.sleep(0.02)\nreturn torch.sigmoid(x) * weight"
    job = replace(
        JOB, cases=(BenchmarkCase("", generated(entry, slow)),), variants=("kernels",), what=("forward",), sampling=0.1
    )
    (row,) = report(job).measured
    assert row.right is False and not row.timings
    assert row.verdicts[0].startswith("Its clock was manipulated: it reports ")


def test_a_file_without_an_original_has_no_report():
    file = '"""f.\n\nIt is not compared with the original: it is random.\n"""\ndef f(x): ...\n'
    last = run(replace(JOB, cases=(BenchmarkCase("", file),)), lambda event: None)
    assert last == Failed("It is not compared with the original: it is random.")


def test_cases_of_a_sweep_are_measured_each_and_forward_alone_without_gradients():
    cases = tuple(BenchmarkCase(f"N={n}", generated(HONEST, shape=f"(4, {n})", grad=False)) for n in (8, 16))
    found = report(replace(JOB, cases=cases))
    assert [(r.label, r.variant, r.what) for r in found.measured] == [
        ("N=8", "eager", "forward"),
        ("N=16", "eager", "forward"),
    ]
    assert [(c.label, c.bytes) for c in found.costs] == [("N=8", 288), ("N=16", 576)]
    assert "No input requires a gradient: only forward is measured." in found.warnings


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"variants": ("fast",)}, "There is no variant fast."),
        ({"cases": ()}, "There is nothing to measure."),
        ({"device": "cuda"}, "torch finds no CUDA device."),
    ],
)
def test_a_job_that_cannot_run_fails_with_a_sentence(change: dict[str, object], said: str):
    last = run(replace(JOB, **change), lambda event: None)  # pyright: ignore[reportArgumentType]
    assert isinstance(last, Failed) and last.message == said and (last.hint or said.startswith("There is noth"))


def test_a_python_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    last = run(JOB, lambda event: None)
    assert last == Failed(
        "The Python of this host has no torch.", "Install torch and triton there, or name another Python."
    )


@pytest.mark.parametrize("end", ["stdin", "kill"])
def test_nothing_is_left_when_the_listener_goes(tmp_path: Path, end: str):
    """The end of standard input, as when a supervisor dies, ends the run with its folder; so does its own death."""
    folder = tmp_path / "job"
    folder.mkdir()
    hanging = replace(JOB, cases=(BenchmarkCase("", generated("open(sys.path[-1], 'w').close(); time.sleep(1000)")),))
    marker = tmp_path / "running"
    hanging = replace(hanging, variants=("kernels",), paths=(str(marker),))
    (folder / "job.json").write_text(json.dumps(wire.to_json(hanging)))
    command = [sys.executable, "-m", "fx_lsp.bench", str(folder / "job.json"), "--watch", "--remove", str(folder)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert until(marker.exists)
    children = variants_of(process.pid)
    assert children
    if end == "kill":
        process.kill()
    else:
        assert process.stdin is not None
        process.stdin.close()
        assert until(lambda: not folder.exists())
    assert process.wait(20) != 0
    assert end == "kill" or not any(temporary.glob("fx-lsp-bench-*"))
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


def until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def variants_of(parent: int) -> list[int]:
    """The processes that another one started."""
    if not os.path.isdir("/proc"):
        pytest.skip("processes are listed in /proc")
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (entry / "stat").exists():
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            found += [int(entry.name)] if int(fields[1]) == parent else []
    return found
