"""`fx-lsp kernel --tune`: candidates, the race on a host, and the choices that a project keeps."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from terminal import Done, fx_lsp
from warm import warm_python

from fx_lsp.choices import Choices
from fx_lsp.commands.tune import table
from fx_lsp.errors import ProtocolError
from fx_lsp.measured import (
    BenchmarkJob,
    Event,
    Finished,
    JobProgress,
    KernelTime,
    Machine,
    Measured,
    Report,
    Timing,
)
from fx_lsp.model import Failure
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.kernel_files.tuned import TUNED, TunedKernels, keep_tuned, read_tuned, tuned_for
from fx_lsp.tracing.remote import tuning
from fx_lsp.tracing.remote.cases import BenchRequest, analysed
from fx_lsp.tracing.remote.history import source_hash
from fx_lsp.tracing.remote.tuning import EACH, MIXED, PLAIN, RIVALS, EarlierRace, RaceField, Winner, fastest, raced

SOURCE = """\
import torch


# fx: x=f32[64, 8], w=f32[8, 8]
def scaled(x, w):
    return torch.softmax(torch.relu(x).sum(0) @ w, 0)


# fx: x=f32[4, 8]
def wrong(x):
    return x @ x
"""

Times = Callable[[str], float]


def timing(milliseconds: float) -> Timing:
    return Timing(milliseconds, milliseconds, milliseconds, milliseconds, 10)


def report(job: BenchmarkJob, times: Times, kernels: tuple[KernelTime, ...] = ()) -> Report:
    rows = (
        Measured(name, "", "forward", {"graph": timing(times(name)), "wall": timing(times(name))}, right=True)
        for name in job.variants or ()
    )
    return Report("scaled", Machine(gpu="GPU"), None, (), tuple(rows), (), 0.0, 1.0, kernels=kernels)


class Host:
    """A host that reports these times, one function for each round, and remembers its jobs."""

    def __init__(self, *rounds: Times, kernels: Callable[[BenchmarkJob], tuple[KernelTime, ...]] = lambda job: ()):
        self.rounds, self.kernels, self.jobs = rounds, kernels, list[BenchmarkJob]()

    async def race(self, job: BenchmarkJob) -> AsyncGenerator[Event, None]:
        self.jobs.append(job)
        yield JobProgress("timing", 1, 2)
        yield Finished(report(job, self.rounds[len(self.jobs) - 1], self.kernels(job)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "model.py").write_text(SOURCE)
    return tmp_path / "model.py"


def end_of(
    file: Path, name: str, host: Host, earlier: EarlierRace | None = None, seconds: float = 1000.0
) -> Event | Winner | Failure | None:
    """The last item of a race between the candidates that an engine generates."""

    async def run() -> Event | Winner | Failure | None:
        engine = Engine(EngineSettings(interpreter=warm_python(), trace_on_open=False), lambda _: None, lambda _: None)
        asked = BenchRequest(str(file), name, file.read_text(), (str(file.parent),), choices=Choices())
        field, job = RaceField(engine, asked, earlier), BenchmarkJob("", (), seconds=seconds)
        try:
            items = [item async for item in raced(field, job, host.race)]
        finally:
            await engine.shutdown()
        return items[-1]

    return asyncio.run(run())


@pytest.mark.torch
def test_the_candidates_race_with_pytorch_and_the_fastest_wins(file: Path):
    host = Host(lambda name: {"Inductor": 1.0}.get(name, 2.0))
    end = end_of(file, "scaled", host)
    assert isinstance(end, Winner) and (end.name, end.candidate.choices.engine) == ("Inductor", "inductor")
    (job,) = host.jobs
    assert job.race and job.profile
    assert job.variants == snapshot(
        (
            "eager",
            "compile",
            "compile max-autotune",
            "kernels",
            "each by Inductor",
            "all by Inductor",
            "PyTorch's matmuls",
            "own matmuls",
            "nothing recomputed",
            "Inductor",
            "Inductor max-autotune",
        )
    )
    (case,) = job.cases
    assert len(set(case.others.values())) == len(case.others), "no two candidates are the same"
    assert end.not_run == snapshot(
        {
            "estimated": "It is the same file as kernels.",
            "traced sizes": "It is the same file as kernels.",
            "PyTorch's partition": "It is the same file as kernels.",
        }
    )


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch):
    """Only three candidates."""
    monkeypatch.setattr(tuning, "VARIATIONS", {n: tuning.VARIATIONS[n] for n in (PLAIN, "estimated", "Inductor")})


@pytest.mark.torch
@pytest.mark.usefixtures("few")
def test_a_race_that_ran_out_of_time_goes_on_with_what_is_left(file: Path):
    """And with the fastest of those that were measured, whose time is measured again."""
    end = end_of(file, "scaled", Host(lambda name: 2.0), seconds=0.01)
    assert isinstance(end, Winner) and {*end.milliseconds} == {PLAIN, *RIVALS}
    assert end.not_run["Inductor"] == "The time was over before it was generated."
    kept = EarlierRace("GPU", end.name, {}, end.milliseconds, end.digests)
    times: Times = lambda name: {"Inductor": 1.0}.get(name, 3.0)  # noqa: E731
    host = Host(times, times)
    later = end_of(file, "scaled", host, kept)
    assert isinstance(later, Winner) and later.name == "Inductor"
    assert {*(host.jobs[0].variants or ())} == {*later.milliseconds} - {PLAIN, *RIVALS} | {end.name}
    full = EarlierRace("GPU", later.name, {}, later.milliseconds, later.digests)
    assert isinstance(end_of(file, "scaled", host, full), Winner)
    assert {*(host.jobs[1].variants or ())} == {*later.milliseconds}, "nothing was left: all race again"


@pytest.mark.torch
@pytest.mark.usefixtures("few")
def test_what_was_not_run_has_a_reason(file: Path):
    class Broken(Host):
        async def race(self, job: BenchmarkJob) -> AsyncGenerator[Event, None]:
            async for event in super().race(job):
                if isinstance(event, Finished):
                    rows = (
                        replace(row, timings={}, error="It was stopped.") if row.variant != PLAIN else row
                        for row in event.report.measured
                    )
                    event = Finished(replace(event.report, measured=tuple(rows)))
                yield event

    end = end_of(file, "scaled", Broken(lambda name: 2.0))
    assert isinstance(end, Winner) and end.name == PLAIN and end.not_run["eager"] == "It was stopped."
    printed = table(entry(file, winner=PLAIN, milliseconds=end.milliseconds), end.not_run).splitlines()
    assert printed[1].split() == [PLAIN, "2.0000", "2.0000", "<", "kept"]
    assert all(" not run: " in line for line in printed[2:]) and len(printed) == 2 + len(end.not_run)


@pytest.mark.torch
def test_the_faster_of_kernel_and_region_is_chosen_one_by_one(file: Path):
    def kernels(job: BenchmarkJob) -> tuple[KernelTime, ...]:
        text = job.cases[0].others.get(EACH)
        if text is None:
            return ()
        regions = [d.name for d in ast.parse(text).body if isinstance(d, ast.FunctionDef) and "_compiled" in d.name]
        slow, *others = (region.removesuffix("_compiled") for region in regions)
        assert others, "there are kernels that stay"
        ours = {slow: 9.0, **dict.fromkeys(others, 1.0)}
        times = [*((PLAIN, k, t) for k, t in ours.items()), *((EACH, region, 5.0) for region in regions)]
        return tuple(KernelTime(variant, "", "forward", kernel, 1.0, time) for variant, kernel, time in times)

    host = Host(lambda name: 2.0, lambda name: {MIXED: 1.0}.get(name, 2.0), kernels=kernels)
    end = end_of(file, "scaled", host)
    assert isinstance(end, Winner) and end.name == MIXED
    assert end.candidate.choices.inductor == "scaled_forward_kernel_sum_1"
    assert MIXED in (host.jobs[1].variants or ()) and not host.jobs[1].profile


@pytest.mark.torch
@pytest.mark.parametrize(
    ("rival", "engine", "function"),
    [
        ("eager", "eager", "original()"),
        ("compile", "compile", "torch.compile(original())"),
        (
            "compile max-autotune",
            "compile-max-autotune",
            'torch.compile(original(), mode="max-autotune-no-cudagraphs")',
        ),
    ],
)
def test_a_faster_rival_is_kept_as_a_file_that_calls_the_original(file: Path, rival: str, engine: str, function: str):
    end = end_of(file, "scaled", Host(lambda name: {rival: 1.0}.get(name, 2.0)))
    assert isinstance(end, Winner) and (end.name, end.candidate.choices.engine) == (rival, engine)
    space: dict[str, Any] = {"__name__": "kernels"}
    exec(compile(end.candidate.text, "kernels.py", "exec"), space)
    assert f"\nscaled = {function}\n" in end.candidate.text and "the fastest" in end.candidate.text
    if engine == "eager":
        arguments, _ = space["arguments"](0, "cpu")
        assert space["scaled"](*arguments).shape == (8,)


@pytest.mark.torch
def test_a_target_that_is_not_traced_is_not_raced(file: Path):
    host = Host()
    assert isinstance(end_of(file, "wrong", host), Failure) and not host.jobs


@pytest.mark.parametrize(
    ("times", "winner"),
    [
        ({"a": {"forward graph": 1.00, "forward wall": 9}, "b": {"forward graph": 2.0, "forward wall": 1}}, "a"),
        ({"a": {"forward graph": 1.00, "forward wall": 9}, "b": {"forward graph": 1.02, "forward wall": 1}}, "b"),
        ({"a": {"forward graph": 1.0, "both graph": 3.0}, "b": {"forward graph": 1.1, "both graph": 1.0}}, "b"),
        ({"a": {"forward wall": 1.0}, "b": {"forward wall": 3.0, "forward graph": 1.0}}, "b"),
        ({}, None),
    ],
)
def test_the_gpu_decides_and_of_equals_the_wall_clock(times: dict[str, dict[str, float]], winner: str | None):
    assert fastest(times) == winner


def entry(file: Path, **changed: object) -> TunedKernels:
    asked = BenchRequest(str(file), "scaled", file.read_text(), (str(file.parent),))
    source = source_hash(analysed(asked)[0].plan("scaled"))
    times = {"plain": {"forward graph": 0.5, "forward wall": 0.7}, "compile": {"forward graph": 1.0}}
    values = {"card": "GPU", "choices": {"fuse": "no"}, "milliseconds": times, "source": source, "winner": "plain"}
    return TunedKernels("model.py::scaled", torch="2.11", triton="3.6", inputs=("x",), **{**values, **changed})  # type: ignore[arg-type]


def test_a_project_keeps_one_entry_for_each_case(file: Path):
    root = str(file.parent)
    first, second, other = entry(file), entry(file, choices={}), entry(file, card="another GPU")
    for each in (first, second, other):
        keep_tuned(root, each)
    assert read_tuned(root) == [second, other]
    assert tuned_for(read_tuned(root), second.target, second.source) == other, "the last one, on any card"
    assert tuned_for(read_tuned(root), second.target, "other code") is None


def test_a_file_of_another_form(file: Path):
    (file.parent / TUNED).write_text('[{"target": 3}]')
    with pytest.raises(ProtocolError, match=r"fx_lsp_tuned\.json cannot be read: .*; delete it, or restore it"):
        read_tuned(str(file.parent))


def kernel(file: Path, *arguments: str, name: str = "scaled") -> Done:
    return fx_lsp(file.parent, "kernel", f"model.py::{name}", *arguments)


@pytest.mark.torch
def test_later_files_have_the_choices_that_were_kept(file: Path):
    plain, traced = kernel(file).stdout, kernel(file, "--sizes", "traced").stdout
    keep_tuned(str(file.parent), entry(file, card='GPU """\nimport os\n"""'))
    tuned, chosen = kernel(file).stdout, kernel(file, "--sizes", "traced").stdout
    assert tuned.count("@triton.jit") > plain.count("@triton.jit")
    assert "The fastest of those measured on GPU ''' import os ''', torch 2.11: forward 0.5 ms\n(compile 1)." in tuned
    assert 'import os\n"' not in tuned and ast.parse(tuned)
    assert chosen.count("@triton.jit") == traced.count("@triton.jit"), "options come first"
    file.write_text(SOURCE.replace("relu", "tanh"))
    assert "measured on" not in kernel(file).stdout, "the code has changed"


@pytest.mark.torch
def test_tuning_needs_a_gpu(file: Path):
    done = kernel(file, "--tune", "local")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "fx-lsp: torch finds no CUDA device. This torch is built for the CPU: install a build for CUDA.\n"
    )
    assert not (file.parent / TUNED).exists()


@pytest.mark.torch
def test_a_target_that_does_not_exist(file: Path):
    keep_tuned(str(file.parent), entry(file))
    done = kernel(file, name="absent")
    assert done.returncode == 1 and "has no function or module 'absent'" in done.stderr
