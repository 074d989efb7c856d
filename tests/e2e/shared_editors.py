"""What the tests of editors share: one VS Code with one browser, and the answers of tracers, for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import scenarios
from scenarios import Neovim, require, run_neovim
from vscode.workbench import Code, Tools, running, tools

EDITORS = {"vscode_tools": "vscode", "neovim": "neovim", "emacs": "emacs"}
"""The fixtures that stand for an editor, and which one."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests that drive an editor, and keep those of each in one process, with `--dist loadgroup`."""
    for item in items:
        for editor in (editor for fixture, editor in EDITORS.items() if fixture in item.fixturenames):
            item.add_marker(pytest.mark.editor)
            item.add_marker(pytest.mark.xdist_group(editor))


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of all editors: what one has traced is not traced again for another, in another process either."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "answers.db"


@pytest.fixture(scope="session")
def neovim() -> Neovim:
    """What runs a script in Neovim."""
    return run_neovim


@pytest.fixture(scope="session")
def emacs() -> str:
    """An Emacs, for `run_emacs`."""
    return require(scenarios.emacs(), "Emacs with eglot")


@pytest.fixture(scope="session")
def vscode_tools() -> Tools:
    """What VS Code is made of, our extension among it."""
    require("", "VS Code")
    return tools()


@pytest.fixture(scope="session")
def vscode(vscode_tools: Tools, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Code]:
    """One VS Code and one browser."""
    settings = {
        "fx-lsp.cache.path": str(answers),
        "fx-lsp.limits.seconds": 300,
        "diffEditor.hideUnchangedRegions.enabled": True,  # what changed is on the screen
    }
    with running(vscode_tools, tmp_path_factory.mktemp("code"), settings) as started:
        yield started
