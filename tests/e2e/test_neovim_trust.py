"""The question whether code of the workspace may run, in Neovim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scenarios import ASKING, ENABLE, GATE, run_neovim
from warm import warm_python

pytestmark = [pytest.mark.editor, pytest.mark.torch]

STARTS = {"0.11": ENABLE, "0.7": "require('fx_lsp').setup(overrides)"}


@pytest.mark.parametrize("version", STARTS)
def test_the_user_is_asked_trusts_and_revokes(version: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    file = folder / "m.py"
    file.write_text(GATE)
    shown = run_neovim(version, STARTS[version], "trust.lua", file, tmp_path, tmp_path / "cache.db", server=ASKING)
    assert f"Do you trust {folder}?" in shown["question"] and warm_python() in shown["question"]
    assert [title.rpartition(". ")[2] for title in shown["titles"]] == ["Trust", "Not now", "Never"]
    assert "ops forward" in shown["lens"] and shown["questions"] == 2
    answers = json.loads((tmp_path / ".config" / "fx-lsp" / "trusted.json").read_text())
    assert answers["folders"] == {str(folder): "trusted"}
