"""Inputs in pyproject.toml: which target they are for, what is wrong with them, and that edits of them count."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from benches import Bench
from inline_snapshot import snapshot
from waiting import until

from fx_lsp.model import WrittenInputs
from fx_lsp.tracing.analysis import analyse
from fx_lsp.tracing.source.project import PYPROJECT, Project, concerns, read_project

TEXT = "import torch\n\n# fx: x=f32[2]\ndef f(x, y):\n    return torch.relu(x) @ y\n"


def settings(folder: Path, entries: str) -> None:
    (folder / PYPROJECT).write_text(f"[tool.fx-lsp.inputs]\n{entries}\n")


def test_a_key_is_a_target_below_the_nearest_pyproject(tmp_path: Path):
    (tmp_path / "outer").mkdir()
    settings(tmp_path, '"outer/m.py::f" = "x=f32[8]"\n"./n.py::Block.extra" = "x=f32[4]"')
    assert read_project(str(tmp_path / "outer" / "m.py")).inputs == {"f": "x=f32[8]"}
    assert read_project(str(tmp_path / "n.py")).inputs == {"Block.extra": "x=f32[4]"}
    assert read_project(str(tmp_path / "m.py")) == Project()
    settings(tmp_path / "outer", '"m.py::g" = "x=f32[1]"')
    assert read_project(str(tmp_path / "outer" / "m.py")).inputs == {"g": "x=f32[1]"}


def test_the_comment_counts_before_the_settings(tmp_path: Path):
    settings(tmp_path, '"m.py::f" = "y=f32[2, 4]"')
    file = str(tmp_path / "m.py")
    comment, written = analyse(file, TEXT, ()).request("f", {}, 5.0).given
    assert (comment.source, comment.text) == ("comment", "x=f32[2]")
    assert written == WrittenInputs("y=f32[2, 4]", "settings", None, "pyproject.toml")


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path):
    file = str(tmp_path / "m.py")
    analysis = analyse(file, TEXT, ())
    assert not analysis.project_changed()
    settings(tmp_path, '"other.py::f" = "y=f32[2, 4]"')
    assert not analysis.project_changed()
    settings(tmp_path, '"m.py::f" = "y=f32[2, 4]"')
    assert analysis.project_changed()
    assert analyse(file, TEXT, ()).key("f", "python", 5.0) != analysis.key("f", "python", 5.0)


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("[tool", "is not read: "),
        ("tool = 3", "[tool.fx-lsp.inputs] is not a table"),
        ("[tool.fx-lsp]\ninputs = 3", "[tool.fx-lsp.inputs] is not a table"),
        ('[tool.other]\nname = "x"', ""),
    ],
)
def test_what_is_no_table_is_said_once(tmp_path: Path, text: str, trouble: str, monkeypatch: pytest.MonkeyPatch):
    said: list[tuple[object, ...]] = []
    monkeypatch.setattr(logging.getLogger("fx_lsp.tracing.source.project"), "warning", lambda *args: said.append(args))
    (tmp_path / PYPROJECT).write_text(text)
    found = {read_project(str(tmp_path / name)).trouble for name in ("m.py", "n.py")}
    assert len(found) == 1 and trouble in found.pop()
    assert len(said) == bool(trouble)


SEVERITIES = """\
[tool.fx-lsp.severity]
upcast = "error"
"grap-break" = "error"
shape = "of"
syntax = "warning"
copy = "off"
"""


def test_severities_and_what_is_wrong_with_them_at_their_lines(tmp_path: Path):
    (tmp_path / PYPROJECT).write_text(SEVERITIES)
    project = read_project(str(tmp_path / "m.py"))
    assert project.severities == {"upcast": "error", "copy": "off"}
    first, second, third = (sentence.replace(str(tmp_path), "…") for sentence in project.wrong)
    assert first == snapshot(
        "…/pyproject.toml:3: `grap-break` is not a code whose severity can be set; choose one of graph-break"
    )
    assert second == snapshot(
        "…/pyproject.toml:4: the severity of `shape` is 'of'; choose one of error, warning, information, off"
    )
    assert third.startswith(
        "…/pyproject.toml:5: `syntax` is not a code whose severity can be set; choose one of all-pairs"
    )
    assert project.trouble == project.wrong[0]
    (tmp_path / PYPROJECT).write_text("[tool.fx-lsp]\nseverity = 3\n")
    assert "[tool.fx-lsp.severity] is not a table" in read_project(str(tmp_path / "m.py")).trouble


def test_an_undecodable_file_is_no_exception(tmp_path: Path):
    (tmp_path / PYPROJECT).write_bytes(b"\xff\xfe")
    assert "is not read" in read_project(str(tmp_path / "m.py")).trouble


def test_an_entry_that_is_no_text_is_left_to_be_refused(tmp_path: Path):
    settings(tmp_path, '"m.py::f" = {x = "f32[8]"}')
    assert read_project(str(tmp_path / "m.py")).inputs == {"f": "{'x': 'f32[8]'}"}


def test_a_function_that_is_named_is_traced_whatever_it_looks_like(tmp_path: Path):
    settings(tmp_path, '"m.py::takes" = "text=3"')
    analysis = analyse(str(tmp_path / "m.py"), "def takes(text):\n    return text\n", ())
    assert list(analysis.targets) == ["takes"]
    assert analysis.trouble == ""


def test_what_written_inputs_are_made_of_belongs_to_the_slice(tmp_path: Path):
    text = TEXT.replace("x=f32[2]", "x=make(f32[2])") + "\ndef make(x):\n    return x\n\nwidth = 3\nheight = 4\n"
    settings(tmp_path, '"m.py::f" = "y=(width, 1)"')
    sliced = analyse(str(tmp_path / "m.py"), text, ()).request("f", {}, 5.0).sliced
    assert "def make" in sliced and "width = 3" in sliced and "height" not in sliced


def test_a_name_that_is_not_in_the_file_is_said(tmp_path: Path):
    settings(tmp_path, '"m.py::h" = "x=f32[8]"')
    trouble = analyse(str(tmp_path / "m.py"), TEXT, ()).trouble
    assert trouble.startswith("pyproject.toml: ") and "has no function or module 'h'" in trouble


def test_only_a_pyproject_above_a_file_concerns_it():
    assert concerns(["/p/pyproject.toml"], "/p/src/m.py")
    assert not concerns(["/p/other/pyproject.toml", "/p/src/n.py"], "/p/src/m.py")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for engine in bench.engines:
        await engine.shutdown()


async def test_an_edit_of_the_settings_is_traced(bench: Bench, tmp_path: Path):
    engine = bench.begun(TEXT)
    await engine.outcome(bench.file, "f")
    await bench.quiet(engine)
    settings(tmp_path, '"m.py::f" = "y=f32[2, 4]"')
    engine.changed_on_disk([str(tmp_path / PYPROJECT)])
    await until(lambda: len(bench.tracers.requests) >= 2)
    assert [[g.source for g in request.given] for request in bench.tracers.requests] == [
        ["comment"],
        ["comment", "settings"],
    ]


async def test_settings_that_cannot_be_read_are_a_warning(bench: Bench, tmp_path: Path):
    (tmp_path / PYPROJECT).write_text("[tool")
    engine = bench.begun(TEXT)
    await engine.outcome(bench.file, "f")
    await bench.quiet(engine)
    assert bench.statuses[-1].health == "warning"
    assert str(tmp_path / PYPROJECT) in bench.statuses[-1].message
