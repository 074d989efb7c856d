"""Kernels in Neovim that are saved as a file and edited by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import ENABLE, run_neovim

pytest.importorskip("triton")
pytestmark = [pytest.mark.editor, pytest.mark.torch]

TEXT = """\
import torch


# fx: x=f32[64, 256]
def soft(x):
    with torch.no_grad():
        return torch.softmax(x, -1) * 2
"""


def test_what_was_edited_is_there_after_the_function_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(TEXT)
    shown = run_neovim("0.11", ENABLE, "regenerate.lua", file, tmp_path, tmp_path / "cache.db")
    before, changed, after = (without_check(shown[when]) for when in ("before", "changed", "after"))
    assert shown["current"]
    assert before == "kernels of m.py::soft · up to date"
    assert changed == "kernels of m.py::soft · the function has changed since then: update"
    assert "cols = tl.max_contiguous(tl.arange(0, BLOCK), BLOCK)" in shown["merged"]
    assert "<<<<<<<" not in shown["merged"]
    assert after == before
    assert shown["modified"], "the file is the user's to save"
    assert shown["undone"]


def without_check(title: str) -> str:
    """The title of the line above the file, without the result of the check, which may take longer."""
    return " · ".join(title.split(" · ")[:2])
