"""Recorded calls on disk: which of them a tracer is offered, and how old ones go."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fx_lsp.model import WrittenInputs
from fx_lsp.tracing.analysis import analyse
from fx_lsp.tracing.calls.recordings import (
    KEPT_RUNS,
    new_run,
    read_calls,
    recorded_calls,
    recordings,
    run_files,
    settle,
    store_of,
)

Put = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = tmp_path / "project"
    found.mkdir()
    (found / "m.py").write_text("import torch\n\ndef f(x):\n    return torch.relu(x)\n")
    return found


@pytest.fixture
def put(project: Path) -> Put:
    """Write the file of one process of a run."""

    def write(
        run: str, *texts: str, name: str = "f", file: str = "m.py", process: int = 1, root: Path = project
    ) -> Path:
        store = store_of(str(root))
        store.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"file": file, "name": name, "text": t, "command": f"run {run}"}) for t in texts]
        path = store / f"{run}-{process}.jsonl"
        path.write_text("".join(f"{line}\n" for line in ['{"command": "x"}', *lines]))
        return path

    return write


def texts(project: Path, name: str = "f", file: str = "m.py") -> list[str]:
    return [given.text for given in recordings(str(project)).get((file, name), ())]


def test_the_newest_run_counts_first_and_each_text_once(project: Path, put: Put):
    put("1", "x=f32[1]", "x=f32[2]")
    put("2", "x=f32[2]", "x=f32[3]")
    assert texts(project) == ["x=f32[2]", "x=f32[3]", "x=f32[1]"]
    assert recordings(str(project))["m.py", "f"][0] == WrittenInputs("x=f32[2]", "recorded", None, "from `run 2`")


def test_three_calls_at_most(project: Path, put: Put):
    put("1", *(f"x=f32[{n}]" for n in range(6)))
    assert texts(project) == ["x=f32[0]", "x=f32[1]", "x=f32[2]"]


def test_what_was_cut_off_or_is_no_record_counts_for_nothing(project: Path, put: Put):
    path = put("1", "x=f32[1]")
    with path.open("a") as stream:
        stream.write('[]\n3\n{"file": "m.py"}\n\x00\n{"file": "m.py", "name": "f", "te')
    assert texts(project) == ["x=f32[1]"]
    assert recordings(str(project.parent)) == {}


def test_a_running_program_is_read_as_it_goes(project: Path, put: Put):
    put("1", "x=f32[1]")
    assert texts(project) == ["x=f32[1]"]
    put("1", "x=f32[1]", "x=f32[2]")
    assert texts(project) == ["x=f32[1]", "x=f32[2]"]


def test_any_directory_above_a_file_may_have_been_the_root(project: Path, put: Put):
    put("1", "x=f32[1]", "x=f32[2]")
    put("2", "x=f32[2]", "x=f32[3]", file="project/m.py", root=project.parent)
    put("2", "x=f32[9]", file="other/m.py", root=project.parent, process=2)
    given = recorded_calls(str(project / "m.py"))["f"]
    assert [g.text for g in given] == ["x=f32[1]", "x=f32[2]", "x=f32[3]"]


def test_the_files_of_a_run_become_one(project: Path, put: Put):
    store = store_of(str(project))
    put("1", "x=f32[1]", process=1)
    put("1", "x=f32[1]", "x=f32[2]", process=2)
    put("1", process=3)
    assert len(run_files(store, "1")) == 3
    settle(store, "1", str(project))
    assert [path.name for path in store.iterdir()] == ["1.jsonl"]
    assert [call.text for call in read_calls(store.iterdir())] == ["x=f32[1]", "x=f32[2]"]


def test_a_run_without_calls_leaves_nothing(project: Path, put: Put):
    put("1")
    settle(store_of(str(project)), "1", str(project))
    assert list(store_of(str(project)).iterdir()) == []


def test_old_runs_are_thinned_out(project: Path, put: Put):
    store = store_of(str(project))
    (project / "n.py").touch()
    for run in range(10, 10 + KEPT_RUNS + 3):
        put(str(run), *(f"x=f32[{run}, {n}]" for n in range(5)))
        put(str(run), f"x=f32[{run}]", name="only_then", file="n.py" if run == 11 else "gone.py", process=2)
        settle(store, str(run), str(project))
    names = sorted(path.name for path in store.iterdir())
    assert names == ["0.jsonl", *(f"{run}.jsonl" for run in range(13, 13 + KEPT_RUNS))]
    old = [(call.name, call.text) for call in read_calls([store / "0.jsonl"])]
    assert old == [*(("f", f"x=f32[12, {n}]") for n in range(3)), ("only_then", "x=f32[11]")]
    assert texts(project, "only_then", "n.py") == ["x=f32[11]"]


def test_names_of_runs_sort_by_time():
    first, second = new_run(), new_run()
    assert first <= second and "-" not in first


def test_what_is_recorded_counts_after_the_comment(project: Path, put: Put):
    file = project / "m.py"
    put("1", "x=f32[1]")
    text = file.read_text().replace("def f", "# fx: x=f32[7]\ndef f")
    given = analyse(str(file), text, ()).request("f", {}, 5.0).given
    assert [(g.source, g.text) for g in given] == [("comment", "x=f32[7]"), ("recorded", "x=f32[1]")]


def test_a_new_recording_makes_an_analysis_old(project: Path, put: Put):
    file = project / "m.py"
    before = analyse(str(file), file.read_text(), ())
    assert not before.project_changed()
    put("1", "x=f32[1]")
    assert before.project_changed()
    after = analyse(str(file), file.read_text(), ())
    assert not after.project_changed()
    assert after.key("f", "python", 5.0) != before.key("f", "python", 5.0)
