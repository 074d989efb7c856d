"""The manifest of the VS Code extension agrees with its code, with the server, and with what its README says."""

import json
import re
import struct
from pathlib import Path

import pytest

from fx_lsp import __version__
from fx_lsp.server.settings import _ROWS as ROWS

EXTENSION = Path(__file__).resolve().parent.parent / "vscode-extension"
REPOSITORY = "https://github.com/fx-lsp/fx-lsp"
OF_THE_EDITOR = {"enable", "server.python", "linkedLines.colors", "lineCosts.enabled", "lineCosts.of", "trace.server"}
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


def test_the_readme_is_complete_outside_of_the_repository():
    """Galleries show it without the files beside it, and do not show pictures in SVG."""
    readme = (EXTENSION / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "code", readme))
    assert links[0][0], "it begins with a picture"
    pages = [(picture, address.partition("#")[0].removeprefix(f"{REPOSITORY}/")) for picture, address in links]
    for picture, page in pages:
        path = page.removeprefix("raw/HEAD/" if picture else "blob/HEAD/")
        assert page == "issues" or (path != page and (EXTENSION.parent / path).is_file()), page
    assert {Path(page).suffix for picture, page in pages if picture} <= {".png", ".gif"}


def test_galleries_take_the_manifest():
    assert manifest["icon"] == "media/icon.png"
    header = (EXTENSION / manifest["icon"]).read_bytes()[:24]
    width, height = struct.unpack(">II", header[16:])
    assert header.startswith(b"\x89PNG") and width == height >= 128
    assert len(manifest["keywords"]) == len(set(manifest["keywords"])) <= 25, "30 with those that vsce adds"
    assert manifest["bugs"]["url"] == manifest["qna"] == f"{REPOSITORY}/issues"
    assert manifest["repository"]["url"] == f"{REPOSITORY}.git"
    assert set(manifest["galleryBanner"]) == {"color", "theme"}


def test_only_listed_files_are_packed():
    first, *others = (EXTENSION / ".vscodeignore").read_text(encoding="utf-8").splitlines()
    assert first == "**"
    packed = {line.removeprefix("!").partition("/")[0] for line in others if line.startswith("!")}
    assert packed == {"dist", "media", "server", "package.json", "README.md", "CHANGELOG.md", "LICENSE"}
