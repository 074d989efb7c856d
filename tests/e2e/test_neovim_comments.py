"""Writing and editing `# fx:` comments in Neovim, as its user does."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios import ENABLE, run_neovim

pytestmark = [pytest.mark.editor, pytest.mark.torch]

TEXT = """\
import torch


def gate(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.view(2, 3))
"""

STARTS = {"0.11": ENABLE, "0.7": "require('fx_lsp').setup(overrides)"}


@pytest.mark.parametrize("version", STARTS)
def test_inputs_are_pinned_completed_and_checked(version: str, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(TEXT)
    shown = run_neovim(version, STARTS[version], "comments.lua", file, tmp_path, tmp_path / "cache.db")
    assert "Pin these inputs as a # fx: comment" in shown["action"]
    before, comment, *after = shown["pinned"].partition("# fx: x=f32[")
    assert before == TEXT[: TEXT.index("def gate")]
    assert comment and after[0].partition("\n")[2].rstrip() == TEXT[TEXT.index("def gate") :].rstrip()
    assert "from the # fx: comment" in shown["hover"].replace("`", "")
    assert shown["completion"].startswith("f32[")
    (problem,) = shown["problems"]
    assert problem["text"] == "f99"
    assert "unknown dtype" in problem["message"]
