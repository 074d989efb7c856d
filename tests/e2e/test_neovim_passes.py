"""What the compiler does, and what one's own passes do, in Neovim."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import ENABLE, run_neovim

pytestmark = [pytest.mark.editor, pytest.mark.torch]

TEXT = """\
import torch
from torch import fx

aten = torch.ops.aten


# fx: x=f32[2, 3]
def gate(x):
    y = torch.relu(x)
    return torch.nn.functional.silu(y)


def relu_to_gelu(gm: fx.GraphModule) -> None:
    for node in gm.graph.nodes:
        if node.target == aten.relu.default:
            node.target = aten.gelu.default
"""


def test_passes_are_listed_run_and_run_again(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(TEXT)
    shown = run_neovim("0.11", ENABLE, "passes.lua", file, tmp_path, tmp_path / "cache.db")
    stages = [step.split()[0] for step in shown["steps"]]
    assert stages[:5] == ["torch", "dynamo", "joint", "forward", "backward"]
    assert "decomposed" in stages
    assert not any(stage.startswith("pre_grad:") for stage in stages)  # they changed nothing
    assert shown["filetype"] == "diff"
    assert "@@ " in shown["diff"]
    assert "# min-cut " in shown["FxPartitions"]
    assert "# duplicated inputs" in shown["FxDebug"]
    assert "line  ops  backward" in shown["FxSummary"]
    assert "torch.compile captures the whole target" in shown["FxBreaks"]
    assert "# calls: 1, compiled again: 0" in shown["FxRecompiles"]
    assert "-    y: f32[2, 3] = aten.relu.default(x)\n+    y: f32[2, 3] = aten.gelu.default(x)\n" in shown["run"]
    assert "+    y: f32[2, 3] = aten.tanh.default(x)" in shown["again"]
    (problem,) = shown["problems"]
    assert problem["text"] == "missing"
    assert "relu_to_gelu raised NameError" in problem["message"]
