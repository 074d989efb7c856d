"""Triton kernels in Neovim, and what they are compiled to."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import ENABLE, run_neovim

pytest.importorskip("triton")
pytestmark = [pytest.mark.editor, pytest.mark.torch]

TEXT = """\
import torch


# fx: x=f32[1000, 129]
def squares(x):
    with torch.no_grad():
        return transposed(x)


def transposed(x):
    return (x * x).t().contiguous()
"""


def test_kernels_are_opened_compiled_and_made_again(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(TEXT)
    shown = run_neovim("0.11", ENABLE, "kernels.lua", file, tmp_path, tmp_path / "cache.db")
    assert shown["filetype"] == "python"
    assert shown["listing"] == ["// ptx of squares_kernel for cuda:80 (A100)", "asm"]
    assert "return (x * x).t().contiguous()" in shown["hover"]
    assert "bits for each thread" in shown["hover"]
    assert shown["lens"].startswith("cuda:80: ")
    assert any("tl.load" in problem["text"] for problem in shown["problems"])
    assert "x * x" in shown["related"]["kernels"]
    assert "st.global" in shown["related"]["ptx"]
    assert "- 3.0" in shown["again"]
    assert "save as a file · compared with the original: right" in shown["checked"]
