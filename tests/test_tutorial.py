"""The tutorial shows what its commands print: each runs, and its output has the shown lines in their order."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs/index.md", *sorted((ROOT / "docs/tutorial").glob("*.md"))]
OUTSIDE = re.compile(r"^(pip|python|make) ")
"""Commands that are not those of fx-lsp."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the examples, where commands may write."""
    folder = tmp_path_factory.mktemp("tutorial")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "pyproject.toml").touch()  # a project ends here
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_output_is_what_is_shown(page: Path, folder: Path) -> None:
    for command, shown in sessions(page.read_text(encoding="utf-8")):
        if shown and not OUTSIDE.match(command):
            assert missing(shown, printed(command, folder)) == [], command


def test_a_line_that_is_not_printed_is_missing() -> None:
    assert missing(["a: 1.20 s", "…", "c"], ["a:  7.31 s", "b", "c"]) == []
    assert missing(["c", "a"], ["a", "b", "c"]) == ["a"]


def sessions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command in the blocks of a page that show a terminal, with the lines shown below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield command, lines


def printed(command: str, folder: Path) -> list[str]:
    """Run a command of fx-lsp and return the lines that it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    program, *arguments = shlex.split(command)
    assert program == "fx-lsp"
    run = subprocess.run(
        [sys.executable, "-m", "fx_lsp", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=300,
    )
    return run.stdout.splitlines()


def missing(shown: list[str], lines: list[str]) -> list[str]:
    """Return the shown lines that are not among those printed, in their order; `…` represents any lines."""
    rest = iter([comparable(line) for line in lines])
    return [line for line in shown if line.strip() not in ("", "…") and comparable(line) not in rest]


def comparable(line: str) -> str:
    """Return a line without what differs between machines: times, rounding errors, the version of torch, alignment."""
    line = re.sub(r"\b\d+\.\d+ s\b", "0 s", re.sub(r"\b\d\.\de-\d+", "0", re.sub(r"\btorch \d\S+", "torch", line)))
    return " ".join(line.split())
