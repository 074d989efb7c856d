"""The plugins for other editors, and their entries for registries: clean, and in agreement with the package."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fx_lsp import __version__

toml: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ROOT = Path(__file__).resolve().parent.parent
REGISTRIES = ROOT / "editors" / "registries"
EMACS = "editors/emacs/fx-lsp.el"
project: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def installed(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def checked(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_lua_has_no_warnings() -> None:
    options = ["--std", "luajit", "--globals", "vim", "--max-line-length", "120", "--no-color"]
    checked(installed("luacheck"), *options, "editors", "tests/e2e/nvim")


def test_emacs_lisp_compiles_without_warnings(tmp_path: Path) -> None:
    emacs = installed("emacs")
    settings = f"""(progn
        (package-initialize)
        (setq byte-compile-error-on-warn t
              byte-compile-dest-file-function (lambda (_) "{tmp_path}/fx-lsp.elc")))"""
    checked(emacs, "-q", "--batch", "--eval", settings, "-f", "batch-byte-compile", EMACS)


def test_docstrings_of_emacs_lisp_follow_its_conventions() -> None:
    emacs = installed("emacs")
    done = subprocess.run(
        [emacs, "-Q", "--batch", "--eval", f'(checkdoc-file "{EMACS}")'], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_emacs_names_the_version_of_the_server() -> None:
    assert f"\n;; Version: {__version__}\n" in (ROOT / EMACS).read_text(encoding="utf-8")


def test_the_mason_entry_is_that_of_the_package() -> None:
    file = REGISTRIES / "mason" / "packages" / "fx-lsp" / "package.yaml"
    entry = yaml.safe_load(file.read_text(encoding="utf-8"))
    name = project["name"]
    assert set(entry) == {
        "name",
        "description",
        "homepage",
        "licenses",
        "languages",
        "categories",
        "source",
        "bin",
        "neovim",
    }
    assert entry["name"] == file.parent.name == name
    assert entry["source"] == {"id": f"pkg:pypi/{name}@{__version__}"}
    assert entry["homepage"] == project["urls"]["Homepage"]
    assert entry["licenses"] == [project["license"]]
    assert (entry["languages"], entry["categories"]) == (["Python"], ["LSP"])
    assert entry["bin"] == {script: f"pypi:{script}" for script in project["scripts"] if script == name}
    assert (REGISTRIES / "nvim-lspconfig" / "lsp" / f"{entry['neovim']['lspconfig']}.lua").is_file()


def test_settings_in_the_documentation_are_valid_and_start_the_server() -> None:
    page = (ROOT / "docs" / "how-to" / "editors.md").read_text(encoding="utf-8")
    blocks = dict(
        re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```((?:json|toml)\n.*?)^```", page, re.DOTALL | re.MULTILINE)
    )
    settings: dict[str, Any] = {}
    for editor, block in blocks.items():
        language, _, text = block.partition("\n")
        settings[editor] = {"json": json.loads, "toml": toml.loads}[language](text)
    helix = settings["Helix"]["language-server"]["fx-lsp"]
    jupyter = settings["JupyterLab"]["LanguageServerManager"]["language_servers"]["fx-lsp"]
    commands = {
        "Helix": [helix["command"], *helix["args"]],
        "JupyterLab": jupyter["argv"],
        "Kate": settings["Kate"]["servers"]["python"]["command"],
        "Sublime Text": settings["Sublime Text"]["clients"]["fx-lsp"]["command"],
    }
    assert commands == {editor: ["fx-lsp", "serve"] for editor in settings}
