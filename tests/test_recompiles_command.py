"""`fx-lsp recompiles`: the calls of a program that are compiled again, for people and for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from warm import warm_python

pytestmark = pytest.mark.torch

MODEL = """\
import torch


def scaled(x, mode):
    return x.relu() if mode == "relu" else x.tanh()


if __name__ == "__main__":
    scaled(torch.randn(8, 4), "relu")
    scaled(torch.randn(8, 4), "tanh")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def recompiles(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fx_lsp", "recompiles", *arguments, "--python", warm_python(), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_the_calls_of_a_program_are_compiled_in_their_order(folder: Path) -> None:
    done = recompiles(folder, "model.py::scaled", "--calls")
    assert done.returncode == 0, done.stderr
    assert "# call 1         line 9: x=f32[8, 4], mode='relu'\n" in done.stdout
    assert "# call 2         line 10: x=f32[8, 4], mode='tanh'\n" in done.stdout
    assert "compiled again: the guard `mode == 'relu'` fails (line 5)\n" in done.stdout
    assert "what if" not in done.stdout


def test_the_turns_of_a_loop_are_calls(folder: Path) -> None:
    loop = "if __name__ == '__main__':\n    for size in range(2, 6):\n        scaled(torch.randn(size, 4), 'relu')\n"
    (folder / "model.py").write_text(MODEL.partition("if __name__")[0] + loop)
    calls = json.loads(recompiles(folder, "model.py::scaled", "--calls", "--json").stdout)["calls"]
    assert [call["arguments"].partition(",")[0] for call in calls] == [f"x=f32[{size}" for size in range(2, 6)]
    assert [bool(call["compiled_again"]) for call in calls] == [False, True, False, False]


def test_the_json_has_guards_and_other_arguments(folder: Path) -> None:
    contract = json.loads(recompiles(folder, "model.py::scaled", "--json").stdout)
    assert [bool(call["compiled_again"]) for call in contract["calls"]] == [False, True]
    (reason,) = contract["calls"][1]["compiled_again"][0]
    assert (reason["condition"], reason["source"], reason["parameters"]) == (
        "L['mode'] == 'relu'",
        "L['mode']",
        ["mode"],
    )
    change = next(change for change in contract["changes"] if change["parameter"] == "mode")
    assert change["compiled_again"] == 2


def test_a_target_that_is_not_there_is_an_error(folder: Path) -> None:
    assert recompiles(folder, "model.py::absent").returncode == 1
