"""`fx-lsp.el` in Emacs, with the real server and the real torch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scenarios import ASKING, BLOCKED_SECONDS, GATE, SERVER, SMALL, Run, run_emacs

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def small(emacs: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("emacs")
    (folder / "small.py").write_text(SMALL)
    return run_emacs("drive.el", folder / "small.py", folder, SERVER)


def test_the_user_is_asked_trusts_and_revokes(emacs: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "m.py").write_text(GATE)
    shown = run_emacs("trust.el", folder / "m.py", tmp_path, ASKING)
    assert len(shown["questions"]) >= 2 and not shown["traced"]
    assert f"Do you trust {folder}?" in shown["questions"][0]["prompt"]
    assert shown["questions"][0]["choices"] == ["Trust", "Not now", "Never"]


def test_lsp_mode_starts_it_next_to_another_python_server(emacs: str, tmp_path: Path) -> None:
    has_lsp_mode = subprocess.run([emacs, "-q", "--batch", "--eval", "(require 'lsp-mode)"], capture_output=True)
    if has_lsp_mode.returncode:
        pytest.skip("lsp-mode is not installed")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").touch()
    (project / ".git").mkdir()
    (file := project / "small.py").write_text(SMALL)
    other = [shutil.which("ruff", path=str(Path(sys.executable).parent)) or "ruff", "server"]
    shown = run_emacs("lsp_mode.el", file, tmp_path, SERVER, FX_OTHER="\n".join(other))
    assert sorted(shown["servers"]) == ["fx-lsp", "other"]
    assert any("cannot be multiplied" in message for message in shown["problems"])
    assert shown["graph"]["name"] == "small.gate.forward.py" and shown["graph"]["readonly"]
    assert "aten.relu.default(" in shown["graph"]["text"]
    assert [row.split()[0] for row in shown["rows"]][:3] == ["torch", "dynamo", "joint"]
    assert shown["hosts"] == ["local"]


def test_shape_error_on_the_expression(small: Run) -> None:
    (problem,) = small["problems"]
    assert problem["text"] == "y @ w"
    assert "cannot be multiplied" in problem["message"]


def test_hover(small: Run) -> None:
    assert "aten.relu.default(" in small["hover"]


def test_graph_of_the_function_at_point(small: Run) -> None:
    assert small["graph"]["name"] == "small.gate.forward.py"
    assert small["graph"]["mode"] == "python-mode"
    assert small["graph"]["readonly"]
    assert "aten.relu.default(" in small["graph"]["text"]


def test_lines_that_belong_together_are_marked(small: Run) -> None:
    marked = "\n".join(small["related"])
    assert "aten.mm.default(x, w)" in marked
    assert "aten.mul" not in marked
    assert small["source"] == ["return h * x.sum()"]


def test_graph_of_the_module_around_point(small: Run) -> None:
    assert small["backward"]["name"] == "small.Block.backward.py"
    assert "def backward(" in small["backward"]["text"]


def test_passes_of_the_function_at_point_to_choose_from(small: Run) -> None:
    stages = [row.split()[0] for row in small["rows"]]
    assert stages[:5] == ["torch", "dynamo", "joint", "forward", "backward"]
    chosen = small["pass"]
    assert chosen["name"].startswith("small.gate.") and chosen["name"].endswith(".diff")
    assert chosen["mode"] == "diff-mode"
    assert chosen["readonly"]
    assert "\n@@ " in chosen["text"]


def test_unsaved_edit_updates_the_open_graph(small: Run) -> None:
    assert not small["saved"]
    assert "aten.tanh.default(" in small["edited"]["text"]
    assert "aten.relu" not in small["edited"]["text"]


def test_benchmark_of_the_function_at_point(small: Run) -> None:
    assert not small["benchmark"]["waited"], "it goes on in the background"
    assert "measuring on local" in small["benchmark"]["measuring"]
    assert "measuring" not in small["measured"]
    assert "forward · " in small["measured"]


def test_nothing_is_complained_about(small: Run) -> None:
    assert "unknown" not in small["printed"]


def test_editor_is_never_blocked(small: Run) -> None:
    assert small["gap"] < BLOCKED_SECONDS


def test_the_share_of_each_line_is_behind_it(small: Run) -> None:
    costs = {cost["line"]: cost["text"].strip() for cost in small["costs"]}
    assert costs[small.line("torch.relu(x @ w)")] == costs[small.line("self.proj(x)")] == "█ 100%"
    assert small["hidden"]
