"""`fx-lsp check --since REV --costs` shows what a change costs, at the lines that cost more or less."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from terminal import Done, fx_lsp, git

from fx_lsp.features.costs.changes import CostChange, CostPlace, TargetCosts, change_text, changed_target, lines_between

FILE = "/project/model.py"


def costs(amount: int, lines: dict[int, int]) -> TargetCosts:
    return TargetCosts({"flops": amount}, {"flops": {(FILE, line): part for line, part in lines.items()}}, {})


def change(before: TargetCosts, after: TargetCosts, lines: dict[int, int]) -> CostChange:
    """The change of one cost; `lines` are where those before have gone."""
    changed = changed_target("f", before, after, lambda place: (FILE, lines[place[1]]) if place[1] in lines else None)
    assert changed is not None
    return changed.changes[0]


def test_the_lines_of_a_change_are_those_that_cost_more_the_largest_part_first():
    after = costs(1000, {2: 100, 3: 300, 5: 600})
    assert change(costs(200, {1: 100, 2: 100}), after, {1: 2, 2: 3}).places == (
        CostPlace(FILE, 5),
        CostPlace(FILE, 3),
    )


def test_a_change_that_costs_less_names_the_removed_line():
    (place,) = change(costs(300, {1: 100, 2: 200}), costs(100, {1: 100}), {1: 1}).places
    assert place == CostPlace(FILE, 2, is_removed=True)


def test_costs_that_only_move_are_not_a_change():
    assert changed_target("f", costs(100, {1: 100}), costs(100, {7: 100}), lambda place: (FILE, 7)) is None


def test_costs_that_differ_by_less_than_is_shown_are_not_a_change():
    assert changed_target("f", costs(10_000_000, {1: 1}), costs(10_000_001, {1: 2}), lambda place: place) is None


def test_a_line_that_is_replaced_by_another_is_the_same_line():
    assert lines_between(["a", "b", "c", "d"], ["new", "a", "changed", "c"]) == {1: 2, 2: 3, 3: 4}
    assert lines_between(["a", "b"], ["a", "two", "lines"]) == {1: 1}


def test_amounts_as_text():
    assert change_text(CostChange("graph-breaks", 2, 43, ())) == "2 → 43"
    assert change_text(CostChange("saved", 12 << 20, 27 << 19, ())) == "12 MiB → 13.5 MiB (+12.5 %)"
    assert change_text(CostChange("flops", 2000, 0, ())) == "2 KFLOP → 0 FLOP (-100 %)"
    assert change_text(CostChange("flops", 0, 2000, ())) == "0 FLOP → 2 KFLOP"


MODEL = """\
import torch
from torch import nn

from sizes import WIDTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, 2 * WIDTH)
        self.last = nn.Linear(2 * WIDTH, WIDTH)

    # fx: x=f32[32, 64]
    def forward(self, x):
        hidden = self.first(x)
        hidden = torch.relu(hidden)
        return self.last(hidden)


# fx: x=f32[128]
def steady(x):
    return torch.sin(x)


# fx: x=f32[128]
def scaled(x):
    y = torch.sin(x)
    return y * 2
"""
CHANGED = (
    MODEL.replace("torch.relu(hidden)", "torch.tanh(torch.relu(hidden))")
    .replace("class Net", "# A network.\nclass Net")
    .replace("    return y * 2\n", "    if y.sum().item() > 0:\n        y = y + 1\n    return y * 2\n")
)
NEW = "\n\n# fx: x=f32[4]\ndef new(x):\n    return torch.relu(x)\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "sizes.py").write_text("WIDTH = 64\n")
    write(folder, MODEL)
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def project(repository: Path) -> Path:
    """The repository without a change."""
    git(repository, "checkout", "-q", ".")
    return repository


def check(folder: Path, *arguments: str) -> Done:
    return fx_lsp(folder, "check", "--since", "HEAD", "--costs", *arguments)


def write(folder: Path, text: str) -> None:
    (folder / "model.py").write_text(text)


@pytest.mark.torch
def test_a_change_is_priced_at_its_lines(project: Path):
    write(project, CHANGED + NEW)
    done = check(project)
    assert done.returncode == 0
    assert done.stdout == snapshot("""\
model.py::Net
  saved for backward   16 KiB → 32 KiB (+100 %), at model.py:17
  peak of activations  88.8 KiB → 96.2 KiB (+8.45 %), at model.py:17
  read and written     441.5 KiB → 521.5 KiB (+18.1 %), at model.py:17
  operations           26 → 30, at model.py:17
model.py::scaled
  graph breaks      0 → 1, at model.py:29
  host syncs        0 → 1, at model.py:29
  read and written  5.5 KiB → 6.5 KiB (+18.2 %), at model.py:30
  operations        5 → 6, at model.py:30
""")
    assert "\nno costs before or after the change, and so not compared: model.py::new\n" in done.stderr
    assert "  steady " in done.stderr, "mistakes and targets are on standard error"


@pytest.mark.torch
def test_one_table_for_a_pull_request(project: Path):
    write(project, CHANGED)
    assert check(project, "--format", "github").stdout == snapshot("""\
| target | cost | before → after | lines |
| --- | --- | --- | --- |
| `model.py::Net` | saved for backward | 16 KiB → 32 KiB (+100 %) | model.py:17 |
|  | peak of activations | 88.8 KiB → 96.2 KiB (+8.45 %) | model.py:17 |
|  | read and written | 441.5 KiB → 521.5 KiB (+18.1 %) | model.py:17 |
|  | operations | 26 → 30 | model.py:17 |
| `model.py::scaled` | graph breaks | 0 → 1 | model.py:29 |
|  | host syncs | 0 → 1 | model.py:29 |
|  | read and written | 5.5 KiB → 6.5 KiB (+18.2 %) | model.py:30 |
|  | operations | 5 → 6 | model.py:30 |
""")


@pytest.mark.torch
def test_a_break_after_which_nothing_is_captured_is_a_graph_break(project: Path):
    write(project, MODEL.replace("    return y * 2\n", "    if (y < 2).all():\n        return y\n    return y * 2\n"))
    assert "  graph breaks  0 → 1, at model.py:28\n" in check(project).stdout


@pytest.mark.torch
def test_costs_as_data(project: Path):
    write(project, CHANGED)
    (net, scaled) = json.loads(check(project, "--json").stdout)["costs"]["changed"]
    assert [change["cost"] for change in net["costs"]] == ["saved", "peak", "moved", "operations"]
    assert scaled["costs"][0] == {
        "cost": "graph-breaks",
        "before": 0,
        "after": 1,
        "lines": [{"file": str(project / "model.py"), "line": 29, "removed": False}],
    }


@pytest.mark.torch
def test_a_change_without_a_cost_prints_nothing(project: Path):
    write(project, MODEL.replace("hidden", "inner") + "\n# The end.\n")
    assert check(project).stdout == check(project, "--format", "github").stdout == ""


@pytest.mark.torch
def test_a_change_that_removes_an_imported_file_is_priced_too(project: Path):
    (project / "sizes.py").unlink()
    write(project, MODEL.replace("from sizes import WIDTH", "WIDTH = 64").replace("2 * WIDTH", "WIDTH"))
    target, saved, *_ = check(project).stdout.splitlines()
    assert target == "model.py::Net"
    assert " ".join(saved.split()) == "saved for backward 16 KiB → 8 KiB (-50 %), at model.py:16"


@pytest.mark.torch
def test_a_change_of_an_imported_file_is_priced_too(project: Path):
    (project / "sizes.py").write_text("WIDTH = 128\n")
    write(project, MODEL.replace("f32[32, 64]", "f32[32, 128]"))
    assert check(project).stdout == snapshot("""\
model.py::Net
  inputs                     x: f32[32, 64] → f32[32, 128] (these are the costs of different calls)
  saved for backward         16 KiB → 32 KiB (+100 %), at model.py:16
  peak of activations        88.8 KiB → 305.5 KiB (+244 %), at model.py:15
  floating-point operations  3.15 MFLOP → 12.6 MFLOP (+300 %), at model.py:15, model.py:17
  read and written           441.5 KiB → 1.2 MiB (+187 %), at model.py:15, model.py:17, model.py:16
""")


@pytest.mark.parametrize("wrong", [["--costs"], ["--costs", "--since", "HEAD", "--format", "sarif"]])
def test_wrong_usage(tmp_path: Path, wrong: list[str]):
    done = fx_lsp(tmp_path, "check", *wrong)
    assert done.returncode == 2
    assert done.stderr == "fx-lsp: --costs needs --since, excludes --watch, and its formats are text, json, github\n"


@pytest.mark.torch
def test_costs_with_another_interpreter(tmp_path: Path):
    other = tmp_path / "other"
    venv.create(other, system_site_packages=True, symlinks=True)
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (site,) = other.rglob("site-packages")
    (site / "more.pth").write_text("\n".join(paths))
    text = "import sys\nimport torch\n\n\n# fx: x=f32[8]\ndef f(x):\n    y = x.exp()\n"
    write(tmp_path, f'{text}    return y.sin() if "other" in sys.prefix else y\n')
    done = fx_lsp(tmp_path, "check", "model.py", "--compare-python", str(other))
    assert done.stdout == snapshot("""\
model.py::f
  peak of activations  96 B → 64 B (-33.3 %), at model.py:7
  read and written     384 B → 160 B (-58.3 %), at model.py:8
  operations           7 → 4, at model.py:8
""")
    assert fx_lsp(tmp_path, "check", "model.py", "--compare-python", sys.executable).stdout == ""
