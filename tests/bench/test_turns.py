"""How variants take turns, with processes that only pretend."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fx_lsp import wire
from fx_lsp.bench.runner.children import ChildError
from fx_lsp.bench.runner.entries import RunningJob, VariantRun, rows
from fx_lsp.bench.runner.turns import run_case
from fx_lsp.measured import (
    INDUCTOR_KERNELS,
    VARIANTS,
    BenchmarkCase,
    BenchmarkJob,
    Event,
    Failed,
    Finished,
    JobProgress,
    Machine,
    Measured,
    Report,
    Timing,
)

JOB = BenchmarkJob("f", (BenchmarkCase("", "the file"),), what=("forward",))
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Pretending:
    """Answers as `answers` has it, and keeps what it was asked in `log`."""

    def __init__(self, log: list[str], answers: dict[str, Answer]) -> None:
        self.log, self.answers, self.name, self.marks = log, answers, "", list[float]()

    def ask(self, request: dict[str, Any], seconds: float, hear: Callable[[str], None] | None = None) -> dict[str, Any]:
        self.name = request.get("variant", self.name)
        self.log.append(f"{self.name} {request['do']} {request.get('clock', '')}".strip())
        self.marks += [0.0, 0.1]
        return self.answers.get(f"{self.name} {request['do']}", self.answers[request["do"]])(request)

    def kill(self) -> None:
        self.log.append(f"{self.name} ends")


READY: dict[str, Any] = {
    "verdicts": [],
    "clocks": ["events", "graph"],
    "reason": "",
    "warnings": [],
    "free": 9,
    "peak": 1,
}
SAMPLES: dict[str, Any] = {"samples": [1.0, 2.0, 3.0], "seconds": 0.1, "wrong": [], "verdicts": []}


def case(
    tmp_path: Path, names: tuple[str, ...], **answers: Answer
) -> tuple[list[str], dict[str, Measured], list[str], list[JobProgress]]:
    """What processes were asked, the rows, the warnings, and what was told."""
    log: list[str] = []
    told: list[Event] = []
    known = {
        "setup": lambda _: READY,
        "measure": lambda _: SAMPLES,
        **{k.replace("_", " "): v for k, v in answers.items()},
    }

    class Pretended(RunningJob):
        def child(self, prefix: Any = ()) -> Any:
            return Pretending(log, known)

    bench = Pretended(JOB, told.append, tmp_path, {}, time.monotonic() + 100, 1 + 7 * len(names), done=1)
    entries = [VariantRun(0, name) for name in names]
    warnings = run_case(bench, entries, JOB.what, len(names))
    found = {row.variant: row for row in rows(JOB, entries, (), None)}
    return log, found, warnings, [e for e in told if isinstance(e, JobProgress)]


def test_all_are_set_up_and_then_take_turns(tmp_path: Path):
    log, found, warnings, told = case(tmp_path, ("eager", "kernels"))
    assert log[:2] == ["eager setup", "kernels setup"]
    events = ["eager measure events", "kernels measure events"] * 6  # two measurements of three turns each
    graph = ["eager measure graph", "kernels measure graph"] * 6
    assert log[2:] == [*events, *graph, "eager ends", "kernels ends"]
    assert found["kernels"].timings["graph"] == Timing(2.0, 1.0, 3.0, 2.0, 18)
    assert warnings == [] and (told[-1].done, told[-1].total) == (15, 15)


def test_the_longest_setup_comes_last_and_has_the_time_that_is_left(tmp_path: Path):
    log, _, _, _ = case(tmp_path, ("eager", "compile max-autotune", "kernels"))
    assert log[:3] == ["eager setup", "kernels setup", "compile max-autotune setup"]


def test_where_memory_is_short_some_measure_before_others_are_set_up(tmp_path: Path):
    log, found, warnings, _ = case(
        tmp_path, ("eager", "compile", "kernels"), compile_setup=lambda _: {**READY, "peak": 5}
    )
    assert log[:2] == ["eager setup", "compile setup"]
    assert log.index("kernels setup") > log.index("compile ends")
    assert all(row.timings for row in found.values())
    assert warnings == [
        "The GPU's memory was too small for all variants at once: some were not measured in alternation."
    ]


def test_what_is_wrong_is_not_timed(tmp_path: Path):
    wrong = {**READY, "verdicts": ["out is wrong."]}
    log, found, _, _ = case(tmp_path, ("eager", "kernels"), kernels_setup=lambda _: wrong)
    assert found["kernels"].right is False and not found["kernels"].timings and found["eager"].timings
    assert "kernels measure events" not in log


def test_a_process_that_dies_while_it_measures_keeps_what_it_has(tmp_path: Path):
    def dies(request: dict[str, Any]) -> dict[str, Any]:
        if request["clock"] == "graph":
            raise ChildError("Its process ended by SIGSEGV.")
        return SAMPLES

    _, found, _, _ = case(tmp_path, ("eager", "kernels"), kernels_measure=dies)
    row = found["kernels"]
    assert set(row.timings) == {"events"} and not row.error and "Its process ended by SIGSEGV." in row.warnings
    assert set(found["eager"].timings) == {"events", "graph"}


def test_a_clock_that_does_not_work_is_left_out(tmp_path: Path):
    def refuses(request: dict[str, Any]) -> dict[str, Any]:
        return {"error": "RuntimeError: cannot be captured"} if request["clock"] == "graph" else SAMPLES

    log, found, _, _ = case(tmp_path, ("kernels",), measure=refuses)
    assert log.count("kernels measure graph") == 1
    assert set(found["kernels"].timings) == {"events"}
    assert "graph: RuntimeError: cannot be captured" in found["kernels"].warnings


def test_nothing_that_works_is_an_error(tmp_path: Path):
    _, found, _, _ = case(tmp_path, ("kernels",), measure=lambda _: {"error": "OutOfMemoryError: too large"})
    assert found["kernels"].error == "OutOfMemoryError: too large" and not found["kernels"].timings


@pytest.mark.parametrize(("times", "right"), [(1, True), (2, False)])
def test_one_timed_call_that_looks_wrong_is_a_doubt_and_two_are_none(tmp_path: Path, times: int, right: bool):
    left = [times]

    def measure(_: dict[str, Any]) -> dict[str, Any]:
        left[0] -= 1
        return {**SAMPLES, "wrong": ["In a timed call, out is wrong."] if left[0] >= 0 else []}

    _, found, _, _ = case(tmp_path, ("kernels",), measure=measure)
    row = found["kernels"]
    assert (row.right, bool(row.timings)) == (right, right)
    assert ("One of several findings: In a timed call, out is wrong." in row.warnings) == right


def test_when_the_time_is_over_what_is_there_counts(tmp_path: Path):
    bench = RunningJob(JOB, lambda _: None, tmp_path, {}, time.monotonic() - 1, 8)
    entries = [VariantRun(0, "eager"), VariantRun(0, "kernels")]
    run_case(bench, entries, JOB.what, 2)
    assert [e.error for e in entries] == ["The job's time limit passed before everything was measured."] * 2
    assert not any(tmp_path.iterdir())  # nothing was started


def test_the_table_of_variants_is_the_one_that_everybody_knows():
    from fx_lsp.bench.variant.variants import TABLE

    assert (*TABLE, INDUCTOR_KERNELS) == VARIANTS


REPORT = Report(
    "f", Machine(), None, (), (Measured("eager", "", "both", {"wall": Timing(1, 2, 3, 4, 5)}),), (), 0.0, 1.0
)


@pytest.mark.parametrize("event", [JobProgress("timing", 1, 2), Finished(REPORT), Failed("no torch", "install it")])
def test_events_cross_as_json(event: Event):
    assert wire.event_from_json(wire.event_to_json(event)) == event
