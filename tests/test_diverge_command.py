"""`fx-lsp diverge`: where numbers begin to differ, for people and for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from warm import warm_python

from fx_lsp.sandbox import seccomp

pytestmark = pytest.mark.torch

MODEL = """\
import torch


# fx: x=f32[4, 8]
def scaled(x):
    y = torch.relu(x) + 1.0
    return (y * 0.5).sigmoid()
"""

OWN = """\
import torch
from torch import fx


def shift(gm: fx.GraphModule):
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        node.args = (node.args[0], 1.1)
    return gm
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def diverge(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fx_lsp", "diverge", *arguments, "--python", warm_python(), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_the_compiler_agrees(folder: Path):
    done = diverge(folder, "model.py::scaled")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# model.py::scaled · diverge\n")
    assert "# No result differs by more than rounding" in done.stdout


def test_a_pass_differs(folder: Path):
    shown = diverge(folder, "model.py::scaled", "--pass", "own.py::shift")
    assert shown.returncode == 1, shown.stderr
    assert "# The first difference: in pass:shift, y is not as in inference.\n#   model.py:6\n" in shown.stdout
    done = diverge(folder, "model.py::scaled", "--pass", "own.py::shift", "--json")
    (graph,) = json.loads(done.stdout)["graphs"]
    assert (done.returncode, graph["stage"], graph["first"]["node"]) == (1, "pass:shift", "y")
    assert [(i["name"], i["wrong"]) for i in graph["first"]["inputs"]] == [("relu", False)]


def test_a_stage_with_its_differences(folder: Path):
    done = diverge(folder, "model.py::scaled", "--pass", "own.py::shift", "--stage", "pass:shift")
    (line,) = [line for line in done.stdout.splitlines() if line.lstrip().startswith("y:")]
    assert line.endswith("# differs from inference")


def test_what_is_not_traced(folder: Path):
    done = diverge(folder, "model.py::absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert "absent was not traced" in done.stderr


def test_a_compiler_that_may_not_start(folder: Path):
    if not sys.platform.startswith("linux") or not seccomp.supported():
        pytest.skip("nothing confines the process here")
    done = diverge(folder, "model.py::scaled", "--inductor", "--json")
    rows = {row["stage"]: row for row in json.loads(done.stdout)["graphs"]}
    assert "`--allow-program`" in rows["inductor forward, on the CPU"]["trouble"], done.stdout
    assert done.returncode == 0, "the others agree"


def test_kernels(folder: Path):
    pytest.importorskip("triton")
    done = diverge(folder, "model.py::scaled", "--kernels", "--json")
    rows = json.loads(done.stdout)["graphs"]
    assert [(row["stage"], row["trouble"], row["first"]) for row in rows] == [
        ("kernels forward", "", None),
        ("kernels backward", "", None),
    ]
    assert done.returncode == 0
