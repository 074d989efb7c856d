"""Several folders in one VS Code, each with an interpreter of its own, and several windows on one cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scenarios import require
from vscode.workbench import extension, running, tools
from warm import warm_python

pytestmark = [pytest.mark.editor, pytest.mark.torch]

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
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen, and with what the interpreters of both folders were started."""
    require("", "VS Code")
    made, base = tools(), tmp_path_factory.mktemp("folders")
    one, two = (_folder(base / name) for name in ("one", "two"))
    (one / "model.py").write_text(MODEL.format(name="model"))
    (two / "other.py").write_text(MODEL.format(name="other"))
    (two / "run.py").write_text(PROGRAM)
    workspace = base / "both.code-workspace"
    workspace.write_text(json.dumps({"folders": [{"path": str(one)}, {"path": str(two)}]}))
    stand_in = extension(base, "ms-python", "python", PYTHON_EXTENSION)
    with running(made, base / "code", {"fx-lsp.cache.path": str(base / "cache.db")}, (stand_in, made.vsix)) as code:
        seen = code.play(
            "folders.mjs",
            workspace,
            one / "model.py",
            FX_OTHER=str(two),
            FX_RECORDED=str(two / "recorded.json"),
            FX_RAN=str(two / "env" / "ran"),
        )
    return {**seen, "started": {f.name: (f / "env" / "ran").read_text().splitlines() for f in (one, two)}}


def _folder(folder: Path) -> Path:
    """A folder whose interpreter writes down what it is started with."""
    python = folder / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> "{folder / "env" / "ran"}"\nexec "{warm_python()}" "$@"\n')
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
