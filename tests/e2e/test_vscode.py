"""The extension in VS Code, in a browser, with the real server and the real torch."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from scenarios import REPOSITORY, llama
from vscode.animation import animate
from vscode.pictures import SHOTS, seen, shown
from vscode.workbench import Code, Tools, extension

from fx_lsp import __version__

pytest_plugins = ["shared_editors"]
pytestmark = pytest.mark.torch

PLANTED = """\
import torch


def planted(x):
    # fx: x=f32[4, 8]
    return torch.relu(x)


# fx: x=f32[4, 8
def other(x):
    return torch.relu(x)
"""


NET = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()"
USE = "# fx: x=f32[2, 3]\ndef use(x):\n    y = Net()(x)\n    return y + 1"

PYTHON_EXTENSION = """\
const uri = require("vscode").Uri.file("PYTHON");
exports.activate = () => ({
  environments: {
    getActiveEnvironmentPath: () => ({ id: "selected", path: uri.fsPath }),
    resolveEnvironment: async () => ({ executable: { uri }, version: { major: 3, minor: 12 } }),
    onDidChangeActiveEnvironmentPath: () => ({ dispose() {} }),
  },
});
"""
"""What of the Python extension is used, with one interpreter for all folders."""

ENVIRONMENTS_EXTENSION = """\
exports.activate = () => ({
  getEnvironment: async (scope) => (scope.scheme === "file" ? { name: "selected" } : undefined),
  resolveEnvironment: async (environment) => ({ ...environment, execInfo: { run: { executable: "PYTHON" } } }),
  onDidChangeEnvironment: () => ({ dispose() {} }),
});
"""
"""What of the Python Environments extension is used, with one interpreter for all folders."""

UNSET = {"fx-lsp.interpreter": None}
"""The setting that comes before what extensions say."""

NO_ANSWER = "exports.activate = () => undefined;\n"
"""The Python Environments extension if it is turned off."""


def copied(folder: Path) -> Path:
    """The examples, in a folder that is not easy to name in a URI."""
    return Path(shutil.copytree(REPOSITORY / "examples", folder / "a folder, 100% full" / "examples"))


@pytest.fixture(scope="module")
def graphs(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    workspace = copied(tmp_path_factory.mktemp("graphs"))
    return vscode.play("graphs.mjs", workspace, workspace / "attention.py")


@pytest.fixture(scope="module")
def views(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    workspace = copied(tmp_path_factory.mktemp("views"))
    (workspace / "plain.py").write_text("def add(a, b):\n    return a + b\n")
    found = vscode.play("views.mjs", workspace, workspace / "attention.py")
    return {**found, "svg": (workspace / "attention.backward.svg").read_text()}


@pytest.fixture(scope="module")
def tour(vscode: Code, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    source = REPOSITORY / "tests" / "e2e" / "vscode" / "transformer"
    workspace = Path(shutil.copytree(source, tmp_path_factory.mktemp("tour") / source.name))
    pictures = vscode.play("tour.mjs", workspace, workspace / "attention.py")
    animate([SHOTS / f"{frame}.png" for frame in pictures["frames"]], SHOTS / "tour.gif")
    return pictures


@pytest.fixture(scope="module")
def large(vscode: Code) -> dict[str, Any]:
    file = llama()
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if text.startswith("class LlamaModel("))
    return vscode.play("llama.mjs", file.parent, file, FX_LINE=str(line))


def test_lenses_and_shapes(graphs: dict[str, Any]) -> None:
    assert any(lens.startswith("22 ops forward · 20 backward · saves ") for lens in graphs["lenses"])
    assert "scores: ~f32[4, 8, 12, 24] = q @ k.transpose" in graphs["code"]


def test_a_hover_has_actions(graphs: dict[str, Any]) -> None:
    assert "show forward graph · show joint graph · show backward graph · pin inputs · why saved" in graphs["hover"]


def test_a_graph_opens_beside_the_code_from_a_hover(graphs: dict[str, Any]) -> None:
    assert "weights: f32[4, 8, 12, 24] = aten._softmax.default(masked_fill, -1, False)" in graphs["forward"]
    assert graphs["tabs"] == ["attention", "attention.forward", "attention.backward"]


def test_lines_that_belong_together_are_marked_as_the_cursor_moves(graphs: dict[str, Any]) -> None:
    assert [line.strip().partition(":")[0] for line in graphs["marked"][1:]] == [
        "bitwise_not",
        "masked_fill",
        "weights",
    ]
    assert [line.strip().partition("->")[0] for line in graphs["back"]] == ["return weights @ v"]
    assert graphs["marks"] == [1], "a line of several operations is marked once"
    assert graphs["colors"] > 10


def test_a_graph_has_lenses_and_folds(graphs: dict[str, Any]) -> None:
    assert "picture | backward | joint | memory | compare passes" in graphs["inGraph"]
    assert "attention.py:13" in graphs["folded"] and "bitwise_not" not in graphs["folded"]


def test_a_graph_follows_an_edit_in_place(graphs: dict[str, Any]) -> None:
    assert "tanh_backward" in graphs["edited"]


def test_graphs_survive_a_reload_of_the_window(graphs: dict[str, Any]) -> None:
    assert "grad_v" in graphs["restored"]


def test_functions_are_in_a_tree(views: dict[str, Any]) -> None:
    assert views["tree"][0].startswith("attention22 ops forward")
    assert {"joint88 ops", "forward43 ops", "backward50 ops"} <= set(views["tree"])
    assert {"saved for backward~36.1 KiB", "x: ~f32[4, 8, 64]search"} <= set(views["tree"])


def test_commands_are_in_the_palette_and_in_the_context_menu(views: dict[str, Any]) -> None:
    assert {"FX: Doctor", "FX: Clear Cache", "FX: Restart Server"} <= set(views["commands"])
    assert "FX: Next Pass" not in views["commands"]
    assert {"Show Graph as Picture", "Compare Partitioners", "Generate Triton Kernel"} <= set(views["menu"])
    assert "Show Graph as TorchScript" not in views["menu"]
    assert not [title for title in views["elsewhere"] if title.startswith("FX: ")]


def test_passes_are_diffs_with_a_next_and_a_previous_one(views: dict[str, Any]) -> None:
    assert "joint:remove_noop_ops" in views["passes"]
    first = views["diff"]["tabs"][-1]
    assert first.startswith("attention · joint:remove_noop_ops (")
    removed = "alias: f32[4, 8, 12, 24]"
    assert removed in views["diff"]["before"] and removed not in views["diff"]["after"]
    assert views["next"][-1] != first


def test_the_picture_of_a_graph_is_searched_clicked_and_saved(views: dict[str, Any]) -> None:
    assert views["picture"]["state"] == "ready" and int(views["picture"]["nodes"]) == 26
    assert "aten._softmax.default(masked_fill, -1, False)" in views["details"]
    assert "saved 36 KiB" in views["details"]
    assert views["svg"].startswith("<svg ")
    assert "_softmax_backward_data" in views["svg"] and "recomputed" in views["svg"]


def test_the_picture_of_a_graph_needs_no_mouse(views: dict[str, Any]) -> None:
    assert views["closed"].startswith("attention.py:")


def test_what_cannot_be_parsed_is_said_in_the_picture_and_in_the_tree(views: dict[str, Any]) -> None:
    assert views["failed"].startswith("syntax error: ") and views["told"].startswith("syntax error: ")


def test_memory_ranks_what_is_saved(views: dict[str, Any]) -> None:
    assert "peak " in views["memory"]
    rows = [line.split("\t")[0] for line in views["memory"].splitlines() if "\tinput\t" in line]
    assert rows == ["transpose_2", "transpose_4", "transpose_3"]


def test_partitioners_and_kernels_are_documents(views: dict[str, Any]) -> None:
    assert "recomputed" in views["partitioners"]
    assert "@triton.jit" in views["kernels"]


def test_inputs_are_pinned(views: dict[str, Any]) -> None:
    assert "# fx: q=f32[4, 8, 12, 64], k=f32[4, 8, 24, 64], v=f32[4, 8, 24, 96]" in views["pinned"]


def test_a_mistake_is_reported_while_it_is_typed(tour: dict[str, Any]) -> None:
    assert tour["message"].startswith("matrices of 32×64 and 128×64 cannot be multiplied")


def test_the_moving_picture_of_the_readme_is_small(tour: dict[str, Any]) -> None:
    assert len(tour["frames"]) == 5
    assert 50_000 < (SHOTS / "tour.gif").stat().st_size < 1_500_000


def test_a_large_graph_is_read_and_drawn(large: dict[str, Any]) -> None:
    assert "ops repeat others and are folded" in large["backward"]
    assert int(large["forward"]["nodes"]) > 2000 and int(large["forward"]["shown"]) < 1000
    assert large["shown"] > 5000


def test_nothing_runs_in_a_workspace_that_is_not_trusted(vscode: Code, tmp_path: Path) -> None:
    folder = tmp_path / "downloaded"
    python, ran = folder / ".venv" / "bin" / "python", folder / "ran"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> "{ran}"\nexec "{vscode.python}" "$@"\n')
    python.chmod(0o755)
    (folder / "planted.py").write_text(PLANTED)
    trust = {"security.workspace.trust.enabled": True, "security.workspace.trust.startupPrompt": "never"}
    found = vscode.play("untrusted.mjs", folder, folder / "planted.py", {**UNSET, **trust}, FX_RAN=str(ran))
    assert "this workspace is not trusted" in found["told"]
    assert [row.partition("Nothing")[0] for row in found["tree"]][:2] == ["planted", "other"]
    assert any("cannot parse the `# fx:` comment" in problem for problem in found["problems"])
    assert "- the workspace is not trusted\n" in found["report"]
    assert (found["lenses"], found["ran"]) == (0, False)
    assert any("ops forward" in lens for lens in found["trusted"]) and ran.exists()


ENVIRONMENTS = "ms-python.vscode-python-envs"


@pytest.mark.parametrize(
    ("scripts", "selected"),
    [
        ({"ms-python.python": PYTHON_EXTENSION}, "ms-python.python"),
        ({ENVIRONMENTS: ENVIRONMENTS_EXTENSION, "ms-python.python": PYTHON_EXTENSION}, ENVIRONMENTS),
        ({ENVIRONMENTS: NO_ANSWER, "ms-python.python": PYTHON_EXTENSION}, "ms-python.python"),
    ],
)
def test_the_interpreter_is_the_selected_one(
    vscode: Code, tmp_path: Path, scripts: dict[str, str], selected: str
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "planted.py").write_text(PLANTED)
    packed: list[Path] = []
    for name, script in scripts.items():
        publisher, _, short = name.partition(".")
        python = tmp_path / name / "python"
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\necho "$@" >> "{python}.started"\nexec "{vscode.python}" "$@"\n')
        python.chmod(0o755)
        packed.append(extension(tmp_path, publisher, short, script.replace("PYTHON", str(python))))
    own = {**UNSET, "fx-lsp.cache.path": str(tmp_path / "cache.db")}
    with vscode.extended(*packed):
        found = vscode.play("python.mjs", folder, folder / "planted.py", own)
    assert any("ops forward" in lens for lens in found["lenses"])
    started = (tmp_path / selected / "python.started").read_text().splitlines()
    assert any(line.endswith(" serve") for line in started), "it runs the server"
    assert any("bootstrap.py" in line for line in started), "and traces"
    assert [file.parent.name for file in tmp_path.glob("*/python.started")] == [selected]


def test_a_report_for_an_issue_has_versions_and_no_code(vscode: Code, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "planted.py").write_text(PLANTED)
    cache = str(vscode.run_folder / "cache.db")
    own = {"fx-lsp.cache.path": cache, "fx-lsp.trace.server": "verbose", "fx-lsp.host": "gpu-box"}
    vscode.hosts.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    vscode.hosts.write_text('[hosts.gpu-box]\nssh = "me@there"\n')
    vscode.hosts.chmod(0o600)
    seen = vscode.play("report.mjs", folder, folder / "planted.py", own)
    report = seen["report"]
    assert "Open Issues" in seen["toast"]
    assert f"- fx-lsp {__version__}\n" in report and re.search(r"- interpreter: Python \d.* torch \d", report)
    assert '\n- fx-lsp.cache.path: "~/cache.db"\n' in report and "\n- fx-lsp.host: HOST\n" in report
    assert "- problems: comment 1\n" in report and "\nRunning the server with " in report
    assert [text for text in ("relu", "gpu-box", "there", "127.0.0.1", str(vscode.run_folder)) if text in report] == []


def test_the_vsix_has_what_runs_and_no_more(vscode_tools: Tools) -> None:
    with zipfile.ZipFile(vscode_tools.vsix) as packed:
        names = {name.removeprefix("extension/") for name in packed.namelist() if name.startswith("extension/")}
    assert {"readme.md", "changelog.md", "package.json", "dist/main.js", "server/fx_lsp/cli.py"} <= names
    assert {name.partition("/")[0] for name in names} == {
        *("readme.md", "changelog.md", "LICENSE.txt", "package.json"),
        *("dist", "media", "server"),
    }
    assert {name for name in names if name.startswith("media/") and name.count("/") == 1} == {
        f"media/{name}" for name in ("icon.png", "view.svg", "view-dark.svg", "view-light.svg")
    }
    parts = {part for name in names for part in name.split("/")}
    assert parts.isdisjoint({"src", "tests", "node_modules", "__pycache__"})
    assert {Path(name).suffix for name in names}.isdisjoint({".ts", ".map", ".pyc", ".so", ".vsix"})
    assert vscode_tools.vsix.stat().st_size < 6 * 1024 * 1024


def test_the_cells_of_a_notebook(vscode: Code, tmp_path: Path) -> None:
    sources = {"%matplotlib inline\nimport torch": "code", "# Title": "markdown", NET: "code", USE: "code"}
    empty: dict[str, Any] = {"metadata": {}, "outputs": []}
    cells = [{"cell_type": kind, "source": text, **empty} for text, kind in sources.items()]
    about = {"metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 4}
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": cells, **about}))
    found = vscode.play("notebook.mjs", tmp_path)
    assert "y: f32[2, 3] = Net()(x)\n    return y + 1-> f32[2, 3]" in found["use"]
    assert any(lens.startswith("3 ops forward · 1 backward") for lens in found["lenses"])
    assert "# book.ipynb::use · forward graph" in found["graph"]


def test_there_is_a_picture_of_each_main_view(graphs: dict[str, Any], views: dict[str, Any]) -> None:
    wanted = ("code", "hover", "graph-document", "functions", "diff", "graph-view", "memory-view")
    assert all((SHOTS / f"{name}.png").stat().st_size > 10_000 for name in wanted)


@pytest.mark.parametrize("name", ["graph-document", "diff", "graph-view", "memory-view"])
def test_the_pictures_of_the_pages_show_the_lenses_of_today(
    name: str, graphs: dict[str, Any], views: dict[str, Any]
) -> None:
    assert shown(name) == seen(name), "tests/e2e/vscode/pictures.py copies the screenshots"
