"""`fx-lsp diverge`, `fusion` and `recompiles`: what they print for people and for scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from terminal import fx_lsp

from fx_lsp.sandbox import seccomp

pytestmark = pytest.mark.torch

MODEL = """\
import torch


# fx: x=f32[4, 8]
def scaled(x):
    y = torch.relu(x) + 1.0
    return (y * 0.5).sigmoid()


# fx: x=f32[64, 64]
@torch.no_grad()
def doubled(x):
    return torch.mm(x, x) * 2


def branches(x, mode):
    return x.relu() if mode == "relu" else x.tanh()


def broken(x):
    return x.missing()


if __name__ == "__main__":
    branches(torch.randn(8, 4), "relu")
    branches(torch.randn(8, 4), "tanh")
"""
LOOP = "if __name__ == '__main__':\n    for size in range(2, 6):\n        branches(torch.randn(size, 4), 'relu')\n"
OWN = """\
import torch
from torch import fx


def shift(gm: fx.GraphModule):
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor):
        node.args = (node.args[0], 1.1)
    return gm
"""
SHIFTED = ("diverge", "model.py::scaled", "--pass", "own.py::shift")
RECOMPILES = ("recompiles", "model.py::branches")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "model.py").write_text(MODEL)
    (folder / "loop.py").write_text(MODEL.partition("if __name__")[0] + LOOP)
    (folder / "own.py").write_text(OWN)
    return folder


def read(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Return the document that a command prints."""
    done = fx_lsp(folder, *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "said", "not_said"),
    [
        (
            ("diverge", "model.py::scaled"),
            0,
            ["# model.py::scaled · diverge\n", "# No result differs by more than "],
            "",
        ),
        (SHIFTED, 1, ["# The first difference: in pass:shift, y is not as in inference.\n#   model.py:6\n"], ""),
        (
            (*RECOMPILES, "--calls"),
            0,
            [
                "# call 1         line 25: x=f32[8, 4], mode='relu'\n",
                "# call 2         line 26: x=f32[8, 4], mode='tanh'\n",
                "compiled again: the guard `mode == 'relu'` fails (line 17)\n",
            ],
            "what if",
        ),
    ],
)
def test_pages(folder: Path, arguments: tuple[str, ...], code: int, said: list[str], not_said: str):
    done = fx_lsp(folder, *arguments)
    assert done.returncode == code, done.stderr
    assert [text for text in said if text not in done.stdout] == []
    assert not not_said or not_said not in done.stdout


@pytest.mark.parametrize(
    ("command", "target"),
    [("diverge", "absent"), ("fusion", "broken"), ("fusion", "absent"), ("recompiles", "absent")],
)
def test_what_is_not_traced(folder: Path, command: str, target: str):
    done = fx_lsp(folder, command, f"model.py::{target}")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{target} was not traced" in done.stderr


@pytest.mark.parametrize("command", ["graph", "summary", "passes", "diverge", "fusion", "recompiles"])
def test_json_of_what_is_not_traced(folder: Path, command: str):
    document = read(folder, command, "model.py::broken", code=1)
    assert (document["target"], document["failure"]["kind"]) == ("model.py::broken", "unsupported")


def test_json_of_what_differs(folder: Path):
    (graph,) = read(folder, *SHIFTED, code=1)["graphs"]
    assert (graph["stage"], graph["first"]["node"]) == ("pass:shift", "y")
    assert [(i["name"], i["wrong"]) for i in graph["first"]["inputs"]] == [("relu", False)]


def test_a_stage_with_its_differences(folder: Path):
    done = fx_lsp(folder, *SHIFTED, "--stage", "pass:shift")
    (line,) = [line for line in done.stdout.splitlines() if line.lstrip().startswith("y:")]
    assert line.endswith("# differs from inference")


def test_a_compiler_that_may_not_start(folder: Path):
    if not sys.platform.startswith("linux") or not seccomp.supported():
        pytest.skip("nothing confines the process here")
    document = read(folder, "diverge", "model.py::scaled", "--inductor")  # the others agree
    rows = {row["stage"]: row for row in document["graphs"]}
    assert "`--allow-program`" in rows["inductor forward, on the CPU"]["trouble"]


def test_kernels_are_compared(folder: Path):
    pytest.importorskip("triton")
    rows = read(folder, "diverge", "model.py::scaled", "--kernels")["graphs"]
    assert [(row["stage"], row["trouble"], row["first"]) for row in rows] == [
        ("kernels forward", "", None),
        ("kernels backward", "", None),
    ]


@pytest.mark.parametrize(("option", "title"), [((), "fx-lsp"), (("--inductor",), "Inductor for a GPU")])
def test_the_page_names_the_call_between_kernels(folder: Path, option: tuple[str, ...], title: str):
    pytest.importorskip("triton")
    done = fx_lsp(folder, "fusion", "model.py::doubled", *option)
    assert done.returncode == 0, done.stderr
    assert f"# {title}, inference: 1 kernel and 1 call of a library\n" in done.stdout
    assert "#   not in 1: `mm` is a call of a library" in done.stdout
    assert "#     model.py:13  mul = aten.mul.Tensor(mm, 2)\n" in done.stdout


def test_json_has_the_reasons_of_both_generators(folder: Path):
    pytest.importorskip("triton")
    data = read(folder, "fusion", "model.py::doubled")
    for generator in ("fx-lsp", "inductor"):
        ((first, second),) = (graph["kernels"] for graph in data[generator]["graphs"])
        assert (first["kind"], second["kind"]) == ("call", "kernel")
        assert [(gap["with"], gap["kind"]) for gap in second["not_fused"]] == [(1, "call")]
        assert [operation["line"] for operation in second["operations"]] == [13]


def test_the_turns_of_a_loop_are_calls(folder: Path):
    calls = read(folder, "recompiles", "loop.py::branches", "--calls")["calls"]
    assert [call["arguments"].partition(",")[0] for call in calls] == [f"x=f32[{size}" for size in range(2, 6)]
    assert [bool(call["compiled_again"]) for call in calls] == [False, True, False, False]


def test_the_json_has_guards_and_other_arguments(folder: Path):
    contract = read(folder, *RECOMPILES)
    assert [bool(call["compiled_again"]) for call in contract["calls"]] == [False, True]
    (reason,) = contract["calls"][1]["compiled_again"][0]
    assert (reason["condition"], reason["source"]) == ("L['mode'] == 'relu'", "L['mode']")
    assert reason["parameters"] == ["mode"]
    change = next(change for change in contract["changes"] if change["parameter"] == "mode")
    assert change["compiled_again"] == 2
