"""The entry for nvim-lspconfig in Neovim, without the plugin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scenarios import REPOSITORY, SMALL, run_neovim

pytestmark = [pytest.mark.editor, pytest.mark.torch]

START = f"""
    vim.opt.runtimepath:remove({json.dumps(str(REPOSITORY / "editors" / "nvim"))})
    vim.opt.runtimepath:append({json.dumps(str(REPOSITORY / "editors" / "registries" / "nvim-lspconfig"))})
    vim.g.fx_entry = vim.lsp.config.fx_lsp
    vim.lsp.config('fx_lsp', overrides)
    vim.lsp.enable('fx_lsp')"""
"""How a user starts the server that has nvim-lspconfig; only the command is that of this source tree."""


def test_the_entry_of_nvim_lspconfig_starts_the_server(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "setup.py").touch()
    (file := project / "small.py").write_text(SMALL)
    shown = run_neovim("0.11", START, "registry.lua", file, tmp_path, tmp_path / "cache.db")
    assert shown["own"]["cmd"] == ["fx-lsp", "serve"]
    assert shown["own"]["filetypes"] == ["python"]
    assert shown["root"] == str(project)
    assert [problem["text"] for problem in shown["problems"]] == ["y @ w"]
