"""The costs of lines in Neovim, estimated and measured on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import ENABLE, SMALL, run_neovim

pytest.importorskip("execnet")
pytestmark = [pytest.mark.editor, pytest.mark.torch]


def test_the_share_of_each_line_is_at_the_right_edge(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    file = folder / "m.py"
    file.write_text(SMALL)
    shown = run_neovim("0.11", ENABLE, "heat.lua", file, tmp_path, tmp_path / "cache.db")
    product, linear = shown.line("torch.relu(x @ w)"), shown.line("self.proj(x)")
    estimated = {line: (text, color) for line, text, color in shown["estimated"]}
    assert estimated[product] == estimated[linear] == ("100% █", "FxLspHeat5")
    measured = {line for line, _, _ in shown["measured"]}
    assert {product, shown.line("h * x.sum()")} <= measured, "an addition and a sum take time, without a product"
    assert shown["windows"] == 1
    assert shown["hidden"] == []
