"""Benchmarks in Neovim, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import ENABLE, run_neovim

pytest.importorskip("execnet")
pytestmark = [pytest.mark.editor, pytest.mark.torch]

TEXT = """\
import torch


# fx: x=f32[64, 32]
def double(x):
    return torch.relu(x) * 2
"""
HOSTS = '[hosts.box]\ncommand = "false"\n'


def test_a_benchmark_is_measured_shown_and_stopped(tmp_path: Path) -> None:
    folder, hosts = tmp_path / "project", tmp_path / ".config" / "fx-lsp"
    folder.mkdir()
    hosts.mkdir(parents=True, mode=0o700)
    (hosts / "hosts.toml").write_text(HOSTS)
    file = folder / "m.py"
    file.write_text(TEXT)
    shown = run_neovim("0.11", ENABLE, "bench.lua", file, tmp_path, tmp_path / "cache.db")
    assert {"local", "box", "what=", "sweep=", "fuse=no"} <= {*shown["completed"]["words"]}
    assert shown["completed"]["hosts"] == ["local"]
    assert shown["completed"]["what"] == ["what=forward,backward", "what=forward,both"]
    assert "there is no option sideways" in shown["messages"]
    assert shown["window"] == ["text", 2]
    assert "measuring" not in shown["stopped"]
    assert "forward · x: f32[32, 16]" in shown["page"]
    assert "measured without the kernels" in shown["lens"]
