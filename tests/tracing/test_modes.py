"""Where a fork is not safe, each trace has a process of its own, and says the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from warm import warm_python

from fx_lsp.tracing.workers import pool

SOURCE = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.proj = nn.Linear(width, 3 * width)

    def forward(self, x):
        return self.proj(x).relu()


def right(x, w):
    return torch.tanh(x @ w)


def wrong(x):
    return torch.ones(2, 3) @ torch.ones(4, 5) + x


def main():
    block = Block(16)
    print(block(torch.randn(4, 16)).shape)
    print(right(torch.randn(4, 8), torch.randn(8, 2)))


if __name__ == "__main__":
    main()
"""
RUN = """\
import sys
from fx_lsp.tracing.workers import pool
mode = sys.argv.pop(1)
pool.default_mode = lambda: mode
from fx_lsp.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(("platform", "mode"), [("linux", "fork"), ("darwin", "spawn")])
def test_the_default_of_a_platform(platform: str, mode: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", platform)
    assert pool.default_mode() == mode


def test_without_fork_processes_are_started(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "fork")
    assert pool.default_mode() == "spawn"


@pytest.mark.torch
def test_a_check_says_the_same_in_both_modes(tmp_path: Path):
    (tmp_path / "model.py").write_text(SOURCE)
    assert checked(tmp_path, "spawn") == checked(tmp_path, "fork")


def checked(folder: Path, mode: str) -> Any:
    """What a check of the folder says of each target, without its times."""
    command = [
        sys.executable,
        "-c",
        RUN,
        mode,
        "check",
        ".",
        "--format",
        "json",
        "--no-cache",
        "--python",
        warm_python(),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 1, done.stderr
    (file,) = json.loads(done.stdout)["files"]
    assert [target["traced"] for target in file["targets"]] == [True, True, False]
    return [{k: v for k, v in target.items() if "seconds" not in k} for target in file["targets"]]
