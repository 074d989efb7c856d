"""Several graphs in columns in VS Code, with the real server and the real torch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from scenarios import REPOSITORY
from vscode.workbench import SHOTS, Code

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def compared(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    workspace = Path(shutil.copytree(REPOSITORY / "examples", tmp_path_factory.mktemp("compare") / "examples"))
    return vscode.play("compare.mjs", workspace, workspace / "attention.py")


def test_stages_passes_and_other_functions_are_offered(compared: dict[str, Any]) -> None:
    assert {"forward", "backward", "joint", "joint:remove_noop_ops"} <= set(compared["offered"])


def test_each_graph_is_a_column(compared: dict[str, Any]) -> None:
    assert compared["heads"] == [
        "attention.py::attention · forward",
        "attention.py::attention · joint",
        "attention.py::attention · joint:remove_noop_ops",
    ]
    assert compared["tabs"] == ["attention", "attention · comparison"]


def test_the_same_row_is_chosen_in_all_columns(compared: dict[str, Any]) -> None:
    rows, unlike = compared["rows"]
    assert 0 < unlike < rows
    assert len(compared["chosen"]) == 3 and len(set(compared["chosen"])) > 1


def test_only_the_rows_that_differ_are_shown_on_request(compared: dict[str, Any]) -> None:
    assert compared["only"] == compared["rows"][1]


def test_there_is_a_picture_in_each_theme(compared: dict[str, Any]) -> None:
    assert all((SHOTS / f"{name}.png").stat().st_size > 10_000 for name in ("compare", "compare-only", "compare-light"))
