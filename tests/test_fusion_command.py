"""`fx-lsp fusion`: the kernels of a function and why they are several, for people and for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from warm import warm_python

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

MODEL = """\
import torch


# fx: x=f32[64, 64]
@torch.no_grad()
def doubled(x):
    return torch.mm(x, x) * 2


def broken(x):
    return x.missing()
"""


def fusion(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "model.py").write_text(MODEL)
    command = [sys.executable, "-m", "fx_lsp", "fusion", *arguments, "--python", warm_python(), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(("option", "title"), [((), "fx-lsp"), (("--inductor",), "Inductor for a GPU")])
def test_the_page_names_the_call_between_kernels(tmp_path: Path, option: tuple[str, ...], title: str):
    done = fusion(tmp_path, "model.py::doubled", *option)
    assert done.returncode == 0, done.stderr
    assert f"# {title}, inference: 1 kernel and 1 call of a library\n" in done.stdout
    assert "#   not in 1: `mm` is a call of a library" in done.stdout
    assert "#     model.py:7  mul = aten.mul.Tensor(mm, 2)\n" in done.stdout


def test_json_has_the_reasons_of_both(tmp_path: Path):
    done = fusion(tmp_path, "model.py::doubled", "--json")
    data = json.loads(done.stdout)
    for generator in ("fx-lsp", "inductor"):
        ((first, second),) = (graph["kernels"] for graph in data[generator]["graphs"])
        assert (first["kind"], second["kind"]) == ("call", "kernel")
        assert [(gap["with"], gap["kind"]) for gap in second["not_fused"]] == [(1, "call")]
        assert [operation["line"] for operation in second["operations"]] == [7]


def test_a_function_that_is_not_traced(tmp_path: Path):
    done = fusion(tmp_path, "model.py::broken")
    assert done.returncode == 1
    assert "broken was not traced" in done.stderr
