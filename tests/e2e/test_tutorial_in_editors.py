"""The tutorial in editors: a session does what its pages say of an editor, one by one, and sees what they show."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scenarios import REPOSITORY, SERVER, Neovim, Run, run_emacs
from tutorial import code, missing, printed_by
from vscode.pictures import seen, shown
from vscode.workbench import Code

pytest.importorskip("triton")
pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

MODEL = "examples/tutorial/model.py"


def model(folder: Path) -> Path:
    """Return the model of the tutorial, in a folder where a user may edit it."""
    copy = Path(shutil.copytree(REPOSITORY / "examples", folder / "examples")) / "tutorial"
    return copy / "model.py"


@pytest.fixture(scope="module")
def in_neovim(neovim: Neovim, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("neovim")
    return neovim("0.11", "tutorial.lua", model(folder), folder, cache=answers, all_lenses=False)


@pytest.fixture(scope="module")
def in_emacs(emacs: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("emacs")
    return run_emacs("tutorial.el", model(folder), folder, SERVER)


@pytest.fixture(scope="module")
def in_vscode(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = model(tmp_path_factory.mktemp("vscode"))
    return vscode.play("tutorial.mjs", file.parent, file)


def costs() -> dict[str, str]:
    """Return the costs of each target that the first page shows."""
    rows = [line.split(" · ") for line in printed_by("model", f"check {MODEL}") if " ops forward " in line]
    names = [row[0].split(maxsplit=1) for row in rows]
    return {name: " · ".join([first, *row[1:3]]) for (name, first), row in zip(names, rows, strict=True)}


def has_the_graphs(session: Run | Mapping[str, Any]) -> None:
    """Check the graphs of the second page, and the hover on an expression, in both directions."""
    command = f"graph {MODEL}::rms_norm"
    assert missing(printed_by("graph", command), session["forward"].splitlines()) == []
    assert missing(printed_by("graph", f"{command} --stage backward"), session["backward"].splitlines()) == []
    assert "aten.rsqrt.default(add) -> f32[8, 32, 1]" in session["hover"]
    assert "aten.mul.Tensor(mul_6, pow_2) -> f32[8, 32, 1]" in session["hover"]


def has_the_actions(actions: list[str]) -> None:
    """Check the two code actions that the page on memory names."""
    checkpoints = [action for action in actions if action.startswith("Checkpoint this region: ")]
    assert [action.partition(": ")[2] for action in checkpoints] == [
        "show what it saves",
        "call it through torch.utils.checkpoint",
    ]


def test_neovim_shows_what_the_pages_on_graphs_say(in_neovim: Run) -> None:
    assert in_neovim["lenses"] == {name: f"{text} | graphs" for name, text in costs().items()}
    has_the_graphs(in_neovim)
    assert "scale: f32[8, 32, 1] = torch.rsqrt(" in in_neovim["hints"]


def test_neovim_underlines_the_mistake(in_neovim: Run) -> None:
    (problem,) = in_neovim["mistake"]
    assert (problem["text"], problem["severity"]) == ("self.head(x.mean(dim=1))", "ERROR")
    assert "matrices of 8×64 and 128×10 cannot be multiplied" in problem["message"]
    assert "x: f32[8, 32, 64] = self.block(x)" in in_neovim["partial"]


def test_neovim_checkpoints_the_block(in_neovim: Run) -> None:
    has_the_actions(in_neovim["actions"])
    assert "checkpoint(" in in_neovim["checkpointed"]
    assert " 66 backward · saves 66 KiB" in in_neovim["saved"]


def test_neovim_generates_the_kernel(in_neovim: Run) -> None:
    assert missing(code("kernel", 0), in_neovim["kernel"].splitlines()) == []


def test_emacs_shows_what_the_pages_on_graphs_say(in_emacs: Run) -> None:
    assert costs()["rms_norm"].replace(" backward", " ops backward") in in_emacs["costs"]
    has_the_graphs(in_emacs)


def test_emacs_underlines_the_mistake(in_emacs: Run) -> None:
    (problem,) = in_emacs["mistake"]
    assert problem["text"] == "self.head(x.mean(dim=1))"
    assert "matrices of 8×64 and 128×10 cannot be multiplied" in problem["message"]


def test_emacs_shows_the_memory_and_checkpoints_the_block(in_emacs: Run) -> None:
    assert missing(printed_by("memory", f"summary {MODEL}::Classifier"), in_emacs["summary"].splitlines()) == []
    has_the_actions(in_emacs["actions"])
    assert "checkpoint(" in in_emacs["checkpointed"]
    assert "66 ops backward · saves 66 KiB" in in_emacs["saved"]


def test_emacs_generates_the_kernel(in_emacs: Run) -> None:
    assert missing(code("kernel", 0), in_emacs["kernel"].splitlines()) == []


def test_vscode_shows_what_the_pages_on_graphs_say(in_vscode: dict[str, Any]) -> None:
    assert in_vscode["lenses"] == [f"{text} | graphs" for text in costs().values()]
    has_the_graphs(in_vscode)
    assert "scale: f32[8, 32, 1] = torch.rsqrt(" in in_vscode["code"]


def test_vscode_underlines_the_mistake(in_vscode: dict[str, Any]) -> None:
    assert "matrices of 8×64 and 128×10 cannot be multiplied" in in_vscode["mistake"]
    assert "x: f32[8, 32, 64] = self.block(x)" in in_vscode["partial"]


def test_vscode_shows_the_memory_and_checkpoints_the_block(in_vscode: dict[str, Any]) -> None:
    assert "saves 643 KiB" in in_vscode["memory"]
    has_the_actions(in_vscode["actions"])
    assert any("66 backward · saves 66 KiB" in lens for lens in in_vscode["saved"])


def test_vscode_generates_the_kernel(in_vscode: dict[str, Any]) -> None:
    assert any("scale = tl.rsqrt(" in line for line in in_vscode["kernel"].splitlines())


@pytest.mark.parametrize("name", ["tutorial-model", "tutorial-mistake"])
def test_the_pictures_of_the_pages_show_the_lenses_of_today(name: str, in_vscode: dict[str, Any]) -> None:
    assert in_vscode and shown(name) == seen(name), "tests/e2e/vscode/pictures.py copies the screenshots"
