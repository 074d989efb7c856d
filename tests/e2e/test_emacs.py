"""`fx-lsp.el` in Emacs, with the real server and the real torch."""

from __future__ import annotations

import sys

import pytest
from scenarios import BLOCKED_SECONDS, HERE, REPOSITORY, SERVER, Run, emacs, require, run
from test_neovim import SMALL

pytestmark = [pytest.mark.editor, pytest.mark.torch]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    program = require(emacs(), "Emacs with eglot")
    folder = tmp_path_factory.mktemp("emacs")
    file = folder / "small.py"
    file.write_text(SMALL)
    env = {
        "FX_FILE": str(file),
        "FX_SERVER": "\n".join(SERVER),
        "FX_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
    }
    load = ["-l", str(REPOSITORY / "editors" / "emacs" / "fx-lsp.el"), "-l", str(HERE / "emacs" / "drive.el")]
    return run([program, "-q", "--batch", *load], folder, SMALL, env, 480)


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
