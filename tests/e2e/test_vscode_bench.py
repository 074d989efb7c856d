"""Benchmarks in VS Code: one on this machine, and what was measured on an H200."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenarios import HERE, REPOSITORY
from vscode.pictures import SHOTS, seen
from vscode.pictures import shown as shown_in
from vscode.workbench import Code

from fx_lsp.measured import BenchmarkRun, Report
from fx_lsp.tracing.remote.cases import BenchRequest, analysed
from fx_lsp.tracing.remote.history import keep, source_hash
from fx_lsp.wire import from_json

pytest.importorskip("execnet")
pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

TEXT = """\
import torch


# fx: x=f32[64, 32]
def double(x):
    return torch.relu(x) * 2
"""


@pytest.fixture(scope="module")
def measured(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "model.py").write_text(TEXT)
    return vscode.play("benchmark.mjs", folder, folder / "model.py")


@pytest.fixture(scope="module")
def shown(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two runs of one function, and of another one, whose kernels became slower meanwhile."""
    folder = tmp_path_factory.mktemp("shown") / "examples"
    folder.mkdir()
    file = Path(shutil.copy(REPOSITORY / "examples" / "norms.py", folder))
    history = vscode.run_folder / "cache" / "fx-lsp" / "benchmarks.sqlite3"
    reports = [from_json(Report, data) for data in json.loads((HERE / "vscode" / "h200.json").read_text())]
    fast, slow = (replace(reports[0], name="layer_norm", started=reports[0].started + hour) for hour in (0, 3600))
    for run in (
        *(BenchmarkRun(str(file), "rms_norm", "h200", report) for report in reports),
        BenchmarkRun(str(file), "layer_norm", "another", fast),
        BenchmarkRun(str(file), "layer_norm", "h200", fast),
        BenchmarkRun(str(file), "layer_norm", "h200", slower(slow, "kernels", 1.5)),
    ):
        keep(replace(run, report=replace(run.report, source_hash=hash_of(file, run.target))), path=history)
    found = vscode.play("benchmarks.mjs", folder, file, FX_HOSTS=str(vscode.hosts))
    return {**found, "svg": (folder / "rms_norm.h200.forward.times.svg").read_text()}


def hash_of(file: Path, name: str) -> str:
    analysis, _ = analysed(BenchRequest(str(file), name, file.read_text(), (str(file.parent),)))
    return source_hash(analysis.plan(name))


def slower(report: Report, variant: str, factor: float) -> Report:
    def changed(timing: Any) -> Any:
        times = {name: getattr(timing, name) * factor for name in ("median", "low", "high", "again")}
        return replace(timing, **times)

    rows = tuple(
        replace(row, timings={clock: changed(timing) for clock, timing in row.timings.items()})
        if row.variant == variant
        else row
        for row in report.measured
    )
    return replace(report, measured=rows)


def test_a_lens_measures_on_this_machine_and_shows_how_far_it_is(measured: dict[str, Any]) -> None:
    assert measured["tabs"] == ["model", "double · benchmark"]
    assert measured["progress"].startswith("local\n")


def test_a_benchmark_is_cancelled(measured: dict[str, Any]) -> None:
    assert measured["cancelled"]["runs"] == "0"
    assert "This function has not been measured yet" in measured["cancelled"]["text"]


def test_options_are_asked_for_one_by_one(measured: dict[str, Any]) -> None:
    assert measured["steps"] == [f"Benchmark double ({number} of 6)" for number in range(1, 7)]
    assert measured["inputs"] == "x=f32[64, 32]"


def test_a_sweep_is_a_table_bars_and_lines(measured: dict[str, Any]) -> None:
    variants = [row.split()[0] for row in measured["table"]]
    assert variants == ["variant", "eager", "torchscript"]
    assert (measured["bars"], measured["figures"], measured["options"]) == (2, ["times", "sweep"], ["N=64", "N=256"])


def test_what_was_measured_of_another_source_is_stale(measured: dict[str, Any]) -> None:
    assert measured["stale"] == "The source has changed since this measurement. Measure again…"
    assert measured["opened"] == measured["tabs"], "the lens shows the view, not a page of text"


def test_the_view_survives_a_reload_of_the_window(measured: dict[str, Any]) -> None:
    assert measured["restored"] == "double"


def test_nothing_of_the_view_is_refused_by_its_policy(measured: dict[str, Any]) -> None:
    assert measured["refused"] == []


def test_a_report_of_a_gpu(shown: dict[str, Any]) -> None:
    rows = {row.split("\t")[0].split(" ⚠")[0]: row.split("\t") for row in shown["rows"]}
    assert [*rows][:3] == ["variant", "eager", "torchscript"] and "compile max-autotune" in rows
    assert rows["variant"][1:] == ["right", "graph ms", "events ms", "wall ms", "× eager", "bandwidth", "setup"]
    assert rows["kernels"][1:3] == ["yes", "0.0909 ±0.0003"]
    assert any(name.startswith("what 320 MiB need at 4.27 TB/s") for name in rows)
    assert "differs by" in shown["warning"] or "too noisy" in shown["warning"]
    assert shown["notes"] == 0


def test_its_pictures(shown: dict[str, Any]) -> None:
    kinds = ["forward times", "forward roofline", "forward history", "both times", "both roofline"]
    assert shown["figures"] == kinds
    assert "kernels 0.0350" in shown["described"][0]
    assert shown["svg"].startswith("<svg ") and "max-autotune" in shown["svg"]
    assert "var(" not in shown["svg"] and "<style" not in shown["svg"]


def test_history_marks_what_became_slower(shown: dict[str, Any]) -> None:
    assert shown["slower"] == "Slower than in the previous run, by more than the noise: kernels, forward: 1.50×."
    assert "▲ 1.50×" in shown["marked"]


def test_hosts_have_tabs_and_a_table_across_them(shown: dict[str, Any]) -> None:
    assert shown["tabs"] == ["another", "h200", "all hosts"]
    assert shown["across"][0] == "ms\tanother\th200"
    assert shown["across"][1].startswith("forward · x: bf16[8192, 4096]")
    assert shown["fresh"] == "false"


def test_the_file_of_hosts_is_there_once_it_is_saved(shown: dict[str, Any]) -> None:
    assert not shown["created"]
    assert [row.replace("\n", " ") for row in shown["asked"]][1].startswith("box")
    assert "never used: needs your confirmation" in shown["asked"][1]


def test_a_host_is_picked_for_all_benchmarks(shown: dict[str, Any]) -> None:
    assert len(shown["offered"]) == 3 and shown["offered"][2].startswith("Ask each time")
    assert len(shown["picked"]) == 1 and shown["picked"][0].startswith("box")


def test_there_is_a_picture_of_the_view(shown: dict[str, Any]) -> None:
    assert all((SHOTS / f"{name}.png").stat().st_size > 10_000 for name in ("benchmark", "benchmark-light"))
    assert shown_in("benchmark") == seen("benchmark"), "tests/e2e/vscode/pictures.py copies the screenshots"
