"""Several folders in one VS Code, each with an interpreter of its own, and several windows on one cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from vscode.workbench import Code, extension

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

MODEL = "import torch\n\n\n# fx: x=f32[4, 8]\ndef {name}(x):\n    return torch.relu(x)\n"
PROGRAM = """\
import json, sys
from pathlib import Path
Path("recorded.json").write_text(json.dumps([Path.cwd().name, *sys.argv[1:]]))
"""
PYTHON_EXTENSION = """\
const { Uri } = require("vscode");
exports.activate = () => ({
  environments: {
    getActiveEnvironmentPath: (folder) => ({ path: Uri.joinPath(folder, "env", "bin", "python").fsPath }),
    resolveEnvironment: async ({ path }) => ({ executable: { uri: Uri.file(path) }, version: { major: 3, minor: 12 } }),
    onDidChangeActiveEnvironmentPath: () => ({ dispose() {} }),
  },
});
"""
"""What of the Python extension is used, with an interpreter for each folder."""


@pytest.fixture(scope="module")
def folders(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen, and with what the interpreters of both folders were started."""
    base = tmp_path_factory.mktemp("folders")
    one, two = (_folder(base / name, vscode.python) for name in ("one", "two"))
    (one / "model.py").write_text(MODEL.format(name="model"))
    (two / "other.py").write_text(MODEL.format(name="other"))
    (two / "run.py").write_text(PROGRAM)
    workspace = base / "both.code-workspace"
    workspace.write_text(json.dumps({"folders": [{"path": str(one)}, {"path": str(two)}]}))
    stand_in = extension(base, "ms-python", "python", PYTHON_EXTENSION)
    with vscode.extended(stand_in):
        seen = vscode.play(
            "folders.mjs",
            workspace,
            one / "model.py",
            {"fx-lsp.interpreter": None, "fx-lsp.cache.path": str(base / "cache.db")},
            FX_OTHER=str(two),
            FX_RECORDED=str(two / "recorded.json"),
            FX_RAN=str(two / "env" / "ran"),
        )
    return {**seen, "started": {f.name: (f / "env" / "ran").read_text().splitlines() for f in (one, two)}}


def _folder(folder: Path, interpreter: str) -> Path:
    """A folder whose interpreter writes down what it is started with."""
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> "{folder / "env" / "ran"}"\nexec "{interpreter}" "$@"\n')
    python.chmod(0o755)
    return folder


def test_each_folder_is_traced_with_its_own_interpreter(folders: dict[str, Any]) -> None:
    for lenses, started in zip((folders["first"], folders["second"]), folders["started"].values(), strict=True):
        assert lenses[0].startswith("3 ops forward · 1 backward")
        assert any("bootstrap.py" in line for line in started)


def test_a_recorded_program_is_one_of_the_folder_and_its_interpreter(folders: dict[str, Any]) -> None:
    assert folders["recorded"] == ["two", "two words"]
    assert "run.py two words" in folders["started"]["two"]


def test_two_windows_share_a_cache(folders: dict[str, Any]) -> None:
    assert folders["window"][0] == folders["still"][0] == folders["second"][0]
