"""`:checkhealth fx_lsp`: each problem with a remedy, and nothing of an untrusted folder runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scenarios import ASKING, GATE, REPOSITORY, SERVER, STARTS, Neovim
from warm import warm_python

from fx_lsp import __version__

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch


def report(neovim: Neovim, version: str, folder: Path, server: list[str], before: str = "") -> str:
    """What the command shows for a file of a project."""
    project = folder / "project"
    project.mkdir()
    (project / "pyproject.toml").touch()
    (project / "m.py").write_text(GATE)
    start = f"{before}\n{STARTS[version]}"
    shown = neovim(version, "health.lua", project / "m.py", folder, start, server=server)
    return shown["report"]


def problems(text: str) -> list[str]:
    """The warnings and errors."""
    return re.findall(r"(?:WARNING|ERROR):? (.*)", text)


@pytest.mark.parametrize("version", STARTS)
def test_all_is_well(neovim: Neovim, version: str, tmp_path: Path) -> None:
    text = report(neovim, version, tmp_path, SERVER)
    assert problems(text) == []
    assert f"fx-lsp {__version__}: " in text
    assert f"is attached to 1 of 1 Python files, in {tmp_path / 'project'}" in text
    assert f"at {warm_python()}, torch " in text
    assert "a small function was traced" in text
    assert ("has no inlay hints" in text) == (version == "0.7")


@pytest.mark.parametrize("version", STARTS)
def test_an_untrusted_folder_is_reported_and_nothing_of_it_runs(neovim: Neovim, version: str, tmp_path: Path) -> None:
    text = report(neovim, version, tmp_path, ASKING)
    assert f"{tmp_path / 'project'} is not trusted: nothing is traced" in problems(text)
    assert ":FxTrust asks again" in text
    assert "Not checked, because the folder is not trusted" in text
    assert "torch " not in text


@pytest.mark.parametrize("version", STARTS)
def test_a_missing_command(neovim: Neovim, version: str, tmp_path: Path) -> None:
    text = report(neovim, version, tmp_path, ["fx-lsp-elsewhere", "serve"], "vim.g.fx_no_server = true")
    assert problems(text) == ["fx-lsp-elsewhere is not a command", "No client runs"]
    assert "uv tool install ." in text


def test_another_version_and_a_second_client(neovim: Neovim, tmp_path: Path) -> None:
    before = "require('fx_lsp.health').VERSION = '0.0.1'\nvim.g.fx_second = true"
    found = problems(report(neovim, "0.11", tmp_path, SERVER, before))
    assert found[0] == f"fx-lsp is {__version__}, and this plugin is 0.0.1"
    assert found[1].endswith("runs fx-lsp too, as other")
    assert len(found) == 2


def test_the_plugin_has_the_version_of_the_server() -> None:
    source = (REPOSITORY / "editors" / "nvim" / "lua" / "fx_lsp" / "health.lua").read_text()
    assert f"M.VERSION = '{__version__}'" in source
