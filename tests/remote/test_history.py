"""What was measured before: it is kept, told apart, and compared beyond the noise."""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from fx_lsp.features.costs.history import across, changes, history_text, latest
from fx_lsp.measured import BenchmarkRun, Cost, Machine, Measured, Report, Timing
from fx_lsp.tracing.analysis import Plan, analyse
from fx_lsp.tracing.answers.disk import read_dependencies
from fx_lsp.tracing.remote.history import StoredRun, default_history_path, keep, runs_of, source_hash
from fx_lsp.wire import to_json

SOURCE = "import torch\n\n\ndef f(x):\n    return helper(x) * 2\n\n\ndef helper(x):\n    return torch.relu(x)\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def report(started: float = 0.0, gpu: str = "H200", **medians: float) -> Report:
    """A report of times in ms, by variant, each with a noise of 1 %."""
    rows = [
        Measured(name, "", "forward", {"events": Timing(ms, ms * 0.99, ms * 1.01, ms, 100)}, True)
        for name, ms in medians.items()
    ]
    cost = Cost("", "forward", 1024, 0, ("x: f32[256]",))
    machine = Machine(gpu=gpu, torch="2.11.0")
    return Report("f", machine, None, (cost,), tuple(rows), (), started, 1.0, "abc")


def run(started: float = 0.0, host: str = "h200", gpu: str = "H200", **medians: float) -> BenchmarkRun:
    return BenchmarkRun("/p/model.py", "f", host, report(started, gpu, **medians))


def plan(source: str, name: str = "f") -> Plan:
    return analyse("/p/model.py", source, ()).plan(name)


def test_runs_are_kept_in_order():
    runs = [run(2, kernels=1.0), run(1, kernels=2.0), run(3, "a100", "A100", kernels=3.0)]
    for one in runs:
        keep(one)
    kept = [one.run for one in runs_of("/p/model.py", "f")]
    assert kept == [runs[1], runs[0], runs[2]]
    assert runs_of("/p/model.py") == runs_of("/p/model.py", "f")
    assert runs_of("/p/model.py", "g") == runs_of("/p/other.py", "f") == []
    assert latest(kept) == {("f", "h200"): runs[0], ("f", "a100"): runs[2]}


def test_old_runs_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fx_lsp.tracing.remote.history.MAX_RUNS", 3)
    for started in range(5):
        keep(run(float(started), kernels=1.0))
        keep(replace(run(float(started), kernels=1.0), target="g"))
    assert [one.run.report.started for one in runs_of("/p/model.py", "f")] == [2, 3, 4]


def test_a_history_that_cannot_be_read_is_none():
    assert runs_of("/p/model.py", "f") == []
    default_history_path().parent.mkdir(parents=True, exist_ok=True)
    default_history_path().write_bytes(b"no database" * 100)
    assert runs_of("/p/model.py", "f") == []
    keep(run(kernels=1.0))
    assert len(runs_of("/p/model.py", "f")) == 1
    aside = default_history_path().with_name("benchmarks.sqlite3.broken-1")
    assert aside.read_bytes() == b"no database" * 100


def test_only_what_is_beyond_the_noise_has_changed():
    found = changes([run(1, kernels=1.0), run(2, kernels=1.015), run(3, kernels=1.2), run(4, kernels=1.0)])
    assert [[f"{change.ratio:.2f} {change.worse}" for change in here] for here in found] == snapshot(
        [[], [], ["1.18 True"], ["0.83 False"]]
    )


def test_noise_is_also_what_a_second_measurement_says():
    before, after = run(1, kernels=1.0), run(2, kernels=1.1)
    row = after.report.measured[0]
    shaky = replace(row, timings={"events": replace(row.timings["events"], again=1.3)})
    assert changes([before, after])[1] != []
    assert changes([before, replace(after, report=replace(after.report, measured=(shaky,)))])[1] == []


def test_only_the_same_is_compared():
    runs = [run(1, kernels=1.0), run(2, "a100", "A100", kernels=3.0), run(3, eager=9.0), run(4, kernels=2.0)]
    larger = replace(runs[0].report.costs[0], inputs=("x: f32[1024]",))
    runs.append(replace(runs[0], report=replace(report(5, kernels=7.0), costs=(larger,))))
    assert [len(here) for here in changes(runs)] == [0, 0, 0, 1, 0]


def test_the_history_as_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("time.localtime", time.gmtime)
    runs = [run(1e9, eager=3.0, kernels=1.0), run(1e9 + 3600, eager=3.0, kernels=1.5), run(1e9 + 7200, kernels=1.0)]
    assert history_text([replace(runs[0], stale=True), *runs[1:]]) == snapshot("""\
2001-09-09 01:46  h200 · H200 · torch 2.11.0  (of an older version of the source)
  eager    forward      3.0000 ms by events
  kernels  forward      1.0000 ms by events

2001-09-09 02:46  h200 · H200 · torch 2.11.0
  eager    forward      3.0000 ms by events
  kernels  forward      1.5000 ms by events  ! 1.50× slower than before (1.0000 ms)

2001-09-09 03:46  h200 · H200 · torch 2.11.0
  kernels  forward      1.0000 ms by events    1.50× faster than before (1.5000 ms)
""")
    assert history_text([]) == snapshot("no measurements yet\n")


def test_hosts_beside_each_other():
    assert across({"h200": report(eager=3.0, kernels=1.0), "a100": report(eager=5.25, gpu="A100")}) == snapshot("""\
ms on all hosts:
                       h200    a100
  forward · eager    3.0000  5.2500
  forward · kernels  1.0000       –
""")


@pytest.mark.parametrize(
    ("edit", "stale"),
    [
        (("* 2", "* 3"), True),
        (("torch.relu", "torch.tanh"), True),
        (("import torch\n", "import torch\n\n# a remark\n"), False),
        (("import torch\n", "import torch\n\n\ndef other(x):\n    return torch.exp(x)\n"), False),
    ],
)
def test_a_run_is_stale_once_what_the_target_reaches_has_changed(edit: tuple[str, str], stale: bool):
    measured = StoredRun(replace(run(), report=replace(report(), source_hash=source_hash(plan(SOURCE)))))
    assert measured.as_of(plan(SOURCE.replace(*edit)), {}).stale is stale
    assert measured.as_of(None, {}).stale, "the target is gone"


def test_a_run_is_stale_once_what_the_target_imports_has_changed(tmp_path: Path):
    helper = tmp_path / "helper.py"
    helper.write_text("FACTOR = 2\n")
    keep(
        replace(run(), report=replace(report(), source_hash=source_hash(plan(SOURCE)))),
        read_dependencies([str(helper)], {}),
    )
    (measured,) = runs_of("/p/model.py")
    assert not measured.as_of(plan(SOURCE), {}).stale
    assert measured.as_of(plan(SOURCE), {str(helper): "FACTOR = 3\n"}).stale, "it is not saved yet"
    helper.write_text("FACTOR = 4\n")
    assert measured.as_of(plan(SOURCE), {}).stale


def test_runs_from_before_imports_were_kept(tmp_path: Path):
    data = zlib.compress(json.dumps(to_json(report(kernels=1.0))).encode())
    with sqlite3.connect(tmp_path / "old.sqlite3") as connection:
        connection.executescript(
            "CREATE TABLE runs (id INTEGER PRIMARY KEY, file TEXT NOT NULL, target TEXT NOT NULL, host TEXT NOT NULL, "
            "started REAL NOT NULL, report BLOB NOT NULL); PRAGMA user_version = 1;"
        )
        connection.execute("INSERT INTO runs VALUES (1, '/p/model.py', 'f', 'h200', 0.0, ?)", (data,))
    assert runs_of("/p/model.py", "f", tmp_path / "old.sqlite3") == [StoredRun(run(kernels=1.0))]
    assert runs_of("/p/model.py", "f", tmp_path / "old.sqlite3") == [StoredRun(run(kernels=1.0))]
