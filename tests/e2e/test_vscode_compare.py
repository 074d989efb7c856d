"""Several graphs in columns in VS Code, with the real server and the real torch."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from scenarios import REPOSITORY, require
from vscode.workbench import SHOTS, running, tools
from warm import warm_python

pytestmark = [pytest.mark.editor, pytest.mark.torch]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    require("", "VS Code")
    folder = tmp_path_factory.mktemp("code")
    workspace = Path(shutil.copytree(REPOSITORY / "examples", tmp_path_factory.mktemp("compare") / "examples"))
    settings = {
        "fx-lsp.interpreter": warm_python(),
        "fx-lsp.cache.path": str(folder / "cache.db"),
        "fx-lsp.limits.seconds": 300,
    }
    with running(tools(), folder, settings) as code:
        return code.play("compare.mjs", workspace, workspace / "attention.py")


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
