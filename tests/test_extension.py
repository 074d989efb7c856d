"""The manifest of the VS Code extension agrees with its code, with the server, and with what its README says."""

import json
import re
from pathlib import Path

import pytest

from fx_lsp import __version__
from fx_lsp.server.settings import _ROWS as ROWS

EXTENSION = Path(__file__).resolve().parent.parent / "vscode-extension"
OF_THE_EDITOR = {"enable", "server.python", "linkedLines.colors", "trace.server"}
OF_THE_CLIENT = {"virtualDocuments", "commandLinks", "changes", "trust", "trusted", "interpreters"}
RUNS_SOMETHING = {"fx-lsp.interpreter", "fx-lsp.server.python"}

manifest = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
contributes = manifest["contributes"]
source = "\n".join(file.read_text(encoding="utf-8") for file in (EXTENSION / "src").glob("*.ts"))


def test_every_command_is_there_and_begins_with_fx():
    named = {command["command"] for command in contributes["commands"]}
    assert {name for name in named if f"'{name}'" not in source} == set()
    assert {command["category"] for command in contributes["commands"]} == {"FX"}
    used = {entry["command"] for menu in contributes["menus"].values() for entry in menu if "command" in entry}
    assert used | {key["command"] for key in contributes["keybindings"]} <= named


def test_settings_are_the_servers_and_in_the_readme():
    settings = contributes["configuration"]["properties"]
    keys = {name.removeprefix("fx-lsp.") for name in settings}
    assert keys - OF_THE_EDITOR == {row.key for row in ROWS} - OF_THE_CLIENT
    readme = (EXTENSION / "README.md").read_text(encoding="utf-8")
    rows = {"fx-lsp.problems.<code>" if name.startswith("fx-lsp.problems.") else name for name in settings}
    assert {name for name in rows if f"`{name}`" not in readme} <= {"fx-lsp.trace.server"}
    assert all(settings[name]["scope"].startswith("machine") for name in RUNS_SOMETHING)
    restricted = manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"]
    assert set(restricted) >= RUNS_SOMETHING


@pytest.mark.parametrize("theme", ["dark", "light", "highContrast", "highContrastLight"])
def test_every_theme_has_its_own_colors(theme: str):
    colors = [color["defaults"][theme][:7] for color in contributes["colors"] if "Background" not in color["id"]]
    assert len(set(colors)) == len(colors) == 3


def test_the_version_is_ours():
    lock = json.loads((EXTENSION / "package-lock.json").read_text(encoding="utf-8"))
    assert manifest["version"] == lock["version"] == lock["packages"][""]["version"] == __version__


def test_the_lock_names_no_registry():
    lock = json.loads((EXTENSION / "package-lock.json").read_text(encoding="utf-8"))
    assert not any("resolved" in package for package in lock["packages"].values())


def test_views_have_a_strict_content_security_policy():
    policy = re.search(r"const policy = \[(.*?)\]", source, re.DOTALL)
    assert policy is not None and "unsafe" not in policy[1]
    assert "default-src 'none'" in policy[1] and "script-src 'nonce-" in policy[1]
