"""Kernels of a target, compiled for a chip that is not here: how they are launched, and what their lines are from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import TraceFixture
from inline_snapshot import snapshot

from fx_lsp.cli import main

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

SOFT = """\
import torch

# fx: x=bf16[B, 256], mask=b8[256], n=i64[B, 1]
def f(x, mask, n):
    y = torch.where(mask, x, 0.0) * n
    return torch.softmax(y, -1)
"""


def test_each_line_of_a_kernel_knows_its_operation(trace: TraceFixture):
    stage = trace(SOFT, work="triton").stage("triton")
    rows = list(zip(stage.text.splitlines(), stage.origins, strict=True))
    shown = {text.strip(): stage.nodes[number - 1] for text, number in rows if number}
    (stored,) = (node for text, node in shown.items() if text.startswith("tl.store(out"))
    assert stored.target.startswith("prims.convert_element_type") or stored.target.startswith("aten.div")
    assert stored.span is not None and stored.span.line == 6
    assert {node.name for node in shown.values()} >= {"x", "mask", "n"}
    assert dict(rows)["import triton"] == 0


def test_kernels_are_compiled_as_they_are_launched(trace: TraceFixture):
    traced = trace(SOFT, work="lowered&target=cuda:90")
    page = traced.stage("resources")
    assert [row for row in page.text.splitlines() if " for cuda:90 (H100)" in row] == snapshot(
        ["f_forward_kernel for cuda:90 (H100)", "f_backward_kernel for cuda:90 (H100)"]
    )
    assert {s.name for s in traced.trace.stages if s.name.endswith("f_forward_kernel")} == snapshot(
        {
            "llir:f_forward_kernel",
            "ptx:f_forward_kernel",
            "sass:f_forward_kernel",
            "ttgir:f_forward_kernel",
            "ttir:f_forward_kernel",
        }
    )
    ptx = traced.stage("ptx:f_forward_kernel")
    assert ".target sm_90a" in ptx.text
    kernels = trace(SOFT, work="triton").stage("triton").text.splitlines()
    stores = {n for row, n in zip(ptx.text.splitlines(), ptx.origins, strict=True) if "st.global" in row}
    assert all("tl.store" in kernels[n - 1] for n in stores)
    assert any("128 bits" in row and "tl.load(x_ptr" in kernels[n - 1] for row, n in _facts(page.text, page.origins))


def _facts(text: str, origins: tuple[int, ...]) -> list[tuple[str, int]]:
    return list(zip(text.splitlines(), origins, strict=True))


def test_the_command_line_prints_what_kernels_are_compiled_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "soft.py"
    file.write_text(SOFT)
    command = ["kernel", f"{file}::f", "--view", "ptx", "--gpu", "cuda:80", "--no-cache", "--python", sys.executable]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("// ptx of f_forward_kernel for cuda:80 (A100)\n")
    assert "\n\n// ptx of f_backward_kernel for cuda:80 (A100)\n" in printed
    assert main([*command, "--view", "amdgcn"]) == 1
    assert "kernels for cuda:80 have no amdgcn" in capsys.readouterr().err


def test_long_rows_of_doubles_are_compiled(trace: TraceFixture) -> None:
    rows = "import torch\n\n# fx: x=f64[8192, 65536]\ndef f(x):\n    return torch.softmax(x, -1)\n"
    said = trace(rows, work="lowered&target=cuda:90").trace.remarks
    assert [remark.message for remark in said if remark.severity == "error"] == []


def test_what_cannot_be_compiled_says_what_to_do(trace: TraceFixture, monkeypatch: pytest.MonkeyPatch):
    unknown = trace(SOFT, work="lowered&target=cuda:1").failure.message
    assert unknown.startswith("there is no chip 'cuda:1': choose one of cuda:100, ")
    calls = "import torch\n\n# fx: x=i64[4]\ndef f(x):\n    return torch.sort(x).values\n"
    assert trace(calls, work="lowered&target=cuda:90").failure.message == snapshot(
        "nothing to compile: the generated file has no kernels, it calls operations of PyTorch"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "triton", None)
    missing = trace(SOFT, work="lowered&target=cuda:90").failure.message
    assert missing.startswith("the kernels cannot be compiled: this interpreter has no triton. Install triton into it.")
    assert "tl.store" in trace(SOFT, work="triton").stage("triton").text


BALANCED = """\
import torch.nn.functional as F

# fx: x=f32[6, 5], y=f32[6, 5], w=f32[5]
def f(x, y, w):
    return F.binary_cross_entropy_with_logits(x, y, pos_weight=w)
"""


def test_places_that_a_compiler_made_keep_no_kernel_from_being_assembled(trace: TraceFixture):
    traced = trace(BALANCED, work="lowered&target=cuda:90&sizes=traced")
    assert not [remark.message for remark in traced.trace.remarks if remark.severity == "error"]
    assert {s.name for s in traced.trace.stages} >= {"sass:f_forward_kernel", "sass:f_backward_kernel"}
