"""The README and the tutorial show what their commands print: each runs, and prints the shown lines in their order."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from terminal import fx_lsp
from tutorial import ROOT, code, missing, sessions

pytestmark = pytest.mark.torch

PAGES = [ROOT / "README.md", ROOT / "docs/index.md", *sorted((ROOT / "docs/tutorial").glob("*.md"))]
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


def test_the_kernel_is_the_one_that_is_shown(folder: Path) -> None:
    printed("fx-lsp kernel examples/tutorial/model.py::rms_norm -o shown.py --no-check", folder)
    assert missing(code("kernel", 0), (folder / "shown.py").read_text().splitlines()) == []


def test_a_line_that_is_not_printed_is_missing() -> None:
    assert missing(["a: 1.20 s", "…", "c"], ["a:  7.31 s", "b", "c"]) == []
    assert missing(["c", "a"], ["a", "b", "c"]) == ["a"]


def printed(command: str, folder: Path) -> list[str]:
    """Run a command of fx-lsp and return the lines that it prints."""
    program, *arguments = shlex.split(command)
    assert program == "fx-lsp"
    done = fx_lsp(folder, *arguments)
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]
